"""Unit tests of maintenance."""
