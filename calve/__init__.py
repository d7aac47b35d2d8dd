"""Calve: what a person touches. The command line, the settings, the server process and its telemetry."""

from __future__ import annotations

__version__ = "0.1.0"
