"""Log lines as text, each with its time, for a process whose libraries set up none
(``log_format = "text"``).
"""

from __future__ import annotations

import logging
import sys

OURS = ("projections", "streams", "threadfold")
LINE = "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s"
"""As Faust writes them in a worker."""


def write_text(level: str) -> None:
    """Have the lines of this process written to stderr in this form: ours from ``level`` on, those
    of libraries from ``level`` or ``warning`` on, whichever is higher.

    Where the process has set up its logging already, that stays.
    """
    if any(not isinstance(one, logging.NullHandler) for one in logging.root.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LINE))
    logging.root.addHandler(handler)
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.root.setLevel(max(number, logging.WARNING))
    for name in OURS:
        logging.getLogger(name).setLevel(number)
