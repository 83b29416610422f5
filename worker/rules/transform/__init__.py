"""Transforms: Spark SQL over one row that computes the columns of a table's rows at the target.

analyzer (with permitted) checks a transform's text; expressions lists the expressions of a run. A lane or chunk reader
sends rows with client; the driver answers with evaluator, which uses projection in the session of session. values
converts between SQL literals and values of Spark; spark_errors shortens Spark's errors.
"""
