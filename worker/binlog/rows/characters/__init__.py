"""Reads text of every character set as the servers do, and writes it.

character_set finds the character set of a name; single_byte and multi_byte have the tables. tests/integration/
test_character_sets.py compares every code with MariaDB and MySQL.
"""
