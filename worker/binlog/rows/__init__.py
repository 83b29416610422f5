"""Converts row images of the binlog to SQL literals, and filters rows by them. The hot path is compiled with Cython.

table_map makes the image_reader of a table. image_reader (on image_literals, on image_scanner) finds the values of
each row image, writes their literals with one column_codec per column into a literal_buffer, and applies row_filter
(filter_expression). A column_codec selects the function for its kind of value: text_literals writes texts and binary
values, numbers and temporal the others, with the inline functions of digits; charsets knows the introducers, characters
the text of bytes in every character set.
row_literals makes the same literals of rows that were read by SELECT, literal_text the reverse.
"""
