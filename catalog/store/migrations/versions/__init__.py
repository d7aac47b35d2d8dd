"""The steps from each version of the schema to the next. They never change once they are released."""
