"""Applies rules that depend on a row's values, between the decoder and the batch: expression filters, transforms.

row_stage is the entry; server_filter evaluates expressions at the target, transformed_rows applies a table's transform.
"""
