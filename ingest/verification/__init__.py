"""Verification of mirrors: requests, jobs for workers, and what they found."""
