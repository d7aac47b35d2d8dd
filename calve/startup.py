"""Why a command could not begin its work.

A `StartupError` carries one sentence for the person who typed the command: what is wrong and what to do. The
command line prints it and ends with exit code 2; nobody ever sees a traceback for one.
"""

from __future__ import annotations


class StartupError(Exception):
    """The message is one whole sentence."""


class SettingsError(StartupError):
    """A setting is unknown, has a wrong value, or contradicts another."""
