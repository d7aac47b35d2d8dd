"""Comparison of a table of the lake with its source. Client code: it imports none of the server."""
