"""The journal: it stores acknowledged changes durably until they have landed."""
