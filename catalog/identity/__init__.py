"""Authentication and roles: principals, their secrets and grants, and the tokens of callers."""
