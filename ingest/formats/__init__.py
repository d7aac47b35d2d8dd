"""Bytes to changes: `read(body, context)` for the body of a request, whichever producer sent it. Pure.

Every event of the request is in the answer: as changes, as a reject with its reason, as the end of a
transaction, or as ignored. `Invalid` is raised only where there is no event at all, or where the request
names a format that is not known.
"""
