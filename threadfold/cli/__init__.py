"""The command line. ``main`` is the entry point; every command lives in a module of its own that is
imported when it is called.
"""

from threadfold.cli.main import main

__all__ = ["main"]
