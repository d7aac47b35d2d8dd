"""Webhooks: the server posts changes to an address, signed, in order, until they are accepted."""
