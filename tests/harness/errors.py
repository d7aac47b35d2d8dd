"""Why a component could not be used. Tests let these pass: a missing component is a failure, never a skip."""

from __future__ import annotations


class ComponentMissing(Exception):
    """A program that the tests need is not installed; the message says how to get it."""


class ComponentFailed(Exception):
    """A program did not start, or ended by itself; the message carries the end of its log."""
