"""``python -m threadfold.cli``: the ``threadfold`` command where it is not on the PATH."""

import sys

from threadfold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
