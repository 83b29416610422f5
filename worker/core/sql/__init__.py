"""Reads statements and the text of CREATE TABLE on tokens. Pure.

token_reader   reads a statement's tokens from left to right
clause         the clauses of ALTER TABLE
foreign_keys   the foreign keys of a table, and those that a statement adds
"""
