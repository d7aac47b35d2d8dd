"""Parse the body of a request into changes, for each producer's format. Pure.

Every event of the request is in the result: as changes, as a reject with its reason, as the end of a
transaction, or as ignored. `Invalid` is raised only if there is no event at all, or if the request names an
unknown format.
"""
