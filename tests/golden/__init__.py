"""Logs as releases wrote them, and what was read of them then. ``docs/events-versions.md`` says
when they are made, and by what.
"""
