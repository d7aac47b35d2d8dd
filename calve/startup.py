"""Errors that end a command before it begins its work.

A `StartupError` has one sentence for the user of the command: what is wrong and what to do. The command line
prints it, without a traceback, and exits with code 2.
"""

from __future__ import annotations


class StartupError(Exception):
    """The message is one whole sentence."""


class SettingsError(StartupError):
    """A setting is unknown, has a wrong value, or contradicts another."""
