"""``python -m threadfold.cli``: the same as the ``threadfold`` command, wherever that is not on the
PATH.
"""

import sys

from threadfold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
