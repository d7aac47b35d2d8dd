"""`python -m calve` is the command `calve`."""

from __future__ import annotations

import sys

from calve.cli import main

sys.exit(main())
