"""The use cases of the catalog: what each operation decides. No HTTP and no SQL in here."""

from __future__ import annotations
