"""Transforms: Spark SQL over one row that computes the columns of a table's rows at the target.

analyzer (with permitted) checks a transform's text; expressions lists the expressions of a run. A lane or chunk reader
sends rows with client; the driver answers with projection (and evaluation, its part in the JVM) in the session of
session. columns converts whole columns between texts, Arrow and SQL literals, values one value;
spark_errors shortens Spark's errors.
"""
