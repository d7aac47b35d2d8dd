"""Match table names with patterns, in which `*` stands for any characters. Pure.

Matching takes time in proportion to the lengths of both texts. Users set patterns and producers send names,
so a regular expression could be made slow on purpose.
"""

from __future__ import annotations


def matched(pattern: str, name: str) -> list[str] | None:
    """Return the text that each `*` matches, each as short as possible except the last; None if the name does
    not match.
    """
    first, *parts = pattern.split("*")
    if not parts:
        return [] if name == pattern else None
    last = parts.pop()
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or end < len(first):
        return None
    found: list[str] = []
    start = len(first)
    for part in parts:
        index = name.find(part, start, end)
        if index < 0:
            return None
        found.append(name[start:index])
        start = index + len(part)
    return [*found, name[start:end]]


def filled(pattern: str, parts: list[str]) -> str:
    """Return the pattern with its `*` replaced by these texts, in order."""
    first, *rest = pattern.split("*")
    return first + "".join(part + piece for part, piece in zip(parts, rest, strict=False))
