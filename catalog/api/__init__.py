"""The HTTP edge: the spec's operations and Calve's own, as thin endpoints over the services.

`operations.py` says which operations there are; everything else here reads a request, calls one use case of
`catalog/service` and writes its answer. No rule of the catalog lives here.
"""
