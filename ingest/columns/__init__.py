"""Columns: which types they have, how values become them, and how a table's schema follows.

    types       Iceberg types as Arrow types; which widen into which
    infer       the type of a column whose producer declares none
    values      one JSON value -> one value of an Iceberg type, or why not
    arrays      a list of values -> an Arrow array, and the values that did not fit
    schemas     the schema plan of a table: create, add, widen, refuse
    transposing rows -> columns
    facts       what is known of a change besides its row -> Arrow arrays
    staging     changes -> the Arrow table that a worker reads

Pure: nothing here reads a file, a database or a clock.
"""
