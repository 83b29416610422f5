"""Reads chunks from a source and learns at which binlog position each was read.

``chunk_source`` reads a chunk at one position or between two ``watermarks``. ``raw_query`` reads the answer to a SELECT
as bytes, and ``text_rows`` (compiled) cuts those into rows.
"""
