"""Reads a binlog position in the forms in which people and messages write it. Pure."""

from __future__ import annotations

import re

_POSITION = re.compile(r"([^\s:|]+)[:|]([0-9]{1,19})")
_SHOWN = re.compile(r"\(([^\s,()]+), ([0-9]{1,19})\)")
_RELAY_FILE = re.compile(r"([^\s:|]+)\|[0-9]+\.([0-9]+)(?=[:|,])")
"""DM names a file of its relay log so: the number of the relay directory, "|000001", before the suffix."""


def parse_binlog_place(text: str) -> tuple[str, int] | None:
    """The file's name and the offset; None: it is no position.

    >>> parse_binlog_place("mysql-bin.000003:1234")
    ('mysql-bin.000003', 1234)
    >>> parse_binlog_place("(mysql-bin.000003, 1234)")  # as messages show it
    ('mysql-bin.000003', 1234)
    >>> parse_binlog_place("(mysql-bin|000001.000003, 1234)")  # as DM shows it
    ('mysql-bin.000003', 1234)
    """
    plain = _RELAY_FILE.sub(r"\1.\2", text.strip())
    found = _POSITION.fullmatch(plain) or _SHOWN.fullmatch(plain)
    return None if found is None else (found[1], int(found[2]))
