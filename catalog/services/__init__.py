"""Use cases of the catalog. Routes call these functions; they call the store. They contain no HTTP and no
SQL.
"""

from __future__ import annotations
