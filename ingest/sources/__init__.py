"""Rules and pauses of sources: which of their tables and columns are stored, and which do not land."""
