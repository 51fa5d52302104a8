"""The module-level app for ``faust -A streams.app worker``, configured by the environment."""

from __future__ import annotations

from streams.settings.settings import Settings
from streams.worker import create_app

app = create_app(Settings.load().require())
