"""Sources under control: which of their tables and columns are stored, and what is paused."""
