"""Tests of maintenance on a catalog, a server and a worker."""
