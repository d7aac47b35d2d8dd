"""Pure ASGI middleware: what holds for every request, whatever route serves it."""
