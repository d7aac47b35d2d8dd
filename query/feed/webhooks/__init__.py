"""Webhooks: the server posts changes to an address, signed, in order, and until they are accepted."""
