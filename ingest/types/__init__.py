"""Types: which type a column has, how values are converted to it, and how a table's schema follows. Pure.

iceberg      Iceberg types as Arrow types; which widen into which; the columns that a batch shows
evolution    how the type of a column may change
numbers      numbers, bytes, and the type of a column that no producer declares
dates        dates, times, timestamps
values       one JSON value to one value of an Iceberg type, or why not
arrays       a list of values to an Arrow array, and the values that do not fit
schema_plan  create, add, widen, refuse
"""
