"""Transforms: Spark SQL over one row, for what a table's rows become at the target."""
