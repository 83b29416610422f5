"""Reads binlog positions from the texts of a status. Pure."""

from __future__ import annotations

import re

_PLACE = re.compile(r"\(.*?(\d+), (\d+)\)")


def file_and_position(text: str) -> tuple[int, int] | None:
    """(number of the file, byte) of a text like "(mysql-bin.000003, 2022)"; None for another text."""
    found = _PLACE.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))
