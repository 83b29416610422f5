"""Writes rows of tables with a transform for the target, except for the columns that the transform computes.

image_rows reads them from row images of the binlog, text_rows from rows of a SELECT; both use open_columns.
"""
