"""Column types: inference, conversion of values, and schema evolution. Pure.

iceberg      Iceberg types as Arrow types; which widen into which; the columns of a batch
evolution    how the type of a column may change
numbers      numbers, bytes, and the type of a column that no producer declares
dates        dates, times, timestamps
values       one JSON value to one value of an Iceberg type, or why not
arrays       a list of values to an Arrow array, and the values that do not fit
schema_plan  create, add, widen, refuse
"""
