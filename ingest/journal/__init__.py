"""The journal: changes are durable here from the moment a producer is told so, until they have landed."""
