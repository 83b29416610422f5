"""Reads statements and the text of CREATE TABLE on tokens. Pure.

token_reader        reads a statement's tokens from left to right
clause              the clauses of ALTER TABLE
table_text          the parts of a CREATE TABLE that a server has printed
foreign_keys        the foreign keys of a table, and those that a statement adds
sequence_defaults   a statement without defaults that are numbers of a sequence
"""
