"""From method and undecoded path to an endpoint, in one walk over the segments of the path.

FastAPI finds a route by trying one pattern after the other. The operations of the spec are found here
instead: in a tree of their segments, where `{name}` takes any one segment. What is not found goes on to
FastAPI, which answers 404 or 405.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from starlette.routing import Route

KNOWN_PATHS = 4096  # how many are remembered with what was found
KNOWN_PATH_CHARS_MAX = 512  # longer ones are walked each time: nobody fills the memory with them
Found = tuple[Any, dict[str, str]]


class Node:
    """What may follow at one place of a path."""

    __slots__ = ("any", "any_name", "endpoints", "named")

    def __init__(self) -> None:
        self.named: dict[str, Node] = {}
        self.any: Node | None = None
        self.any_name = ""
        self.endpoints: dict[
            str, tuple[Any, tuple[str, ...]]
        ] = {}  # method -> endpoint, names of its parameters


class RouteTree:
    def __init__(self, routes: list[Route]) -> None:
        self._root = Node()
        for route in routes:
            self._add(route)
        self._known = lru_cache(KNOWN_PATHS)(self._search)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.any = node.any or Node()
                node = node.any
            else:
                node = node.named.setdefault(segment, Node())
        for method in route.methods or ():
            if method != "HEAD" or method not in node.endpoints:
                node.endpoints.setdefault(method, (route.endpoint, tuple(names)))

    def find(self, method: str, path: str) -> Found | None:
        """The endpoint and its path parameters, which are shared: not to be changed.

        A fixed segment is preferred to a parameter, all the way down.
        """
        return (self._known if len(path) <= KNOWN_PATH_CHARS_MAX else self._search)(method, path)

    def _search(self, method: str, path: str) -> Found | None:
        segments = path.split("/")[1:]
        found = self._walk(self._root, segments, 0, [], method)
        if found is None:
            return None
        (endpoint, names), values = found
        return endpoint, dict(zip(names, values, strict=True))

    def _walk(
        self, node: Node, segments: list[str], at: int, values: list[str], method: str
    ) -> tuple[tuple[Any, tuple[str, ...]], list[str]] | None:
        while at < len(segments):
            segment = segments[at]
            at += 1
            fixed = node.named.get(segment)
            if fixed is None or node.any is None:
                node_next = fixed or (node.any if segment else None)
                if node_next is None:
                    return None
                if fixed is None:
                    values.append(segment)
                node = node_next
                continue
            found = self._walk(fixed, segments, at, list(values), method)
            if found is not None:
                return found
            node = node.any
            values.append(segment)
        endpoint = node.endpoints.get(method)
        return (endpoint, values) if endpoint is not None else None
