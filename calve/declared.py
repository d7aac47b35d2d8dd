"""How a setting is declared: its documentation, bounds and derived default stand beside the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DERIVED: Any = None  # stands for a default that the constructor computes from the other settings


def about(
    doc: str,
    *,
    derived: Callable[[Any], Any] | None = None,
    shown: str | None = None,
    secret: bool = False,
    least: float | None = None,
    most: float | None = None,
) -> dict[str, Any]:
    """What is known of a setting. `derived` computes its default, `shown` describes that default in words."""
    return {
        "doc": doc,
        "derived": derived,
        "shown": shown,
        "secret": secret,
        "least": least,
        "most": most,
    }
