"""Write a mirror anew: from its changes table, or with other column types."""
