"""Converts MySQL's binary JSON to text and to SQL literals.

binary prints a document (scalars prints its scalar values), partial_update applies the changes of an UPDATE to it,
and literals makes the SQL literal.
"""
