"""Expands version comments (comments with code) as the server that ran the statement read them. Pure.

Rules: MySQL Reference Manual, "Comments"; MariaDB, "Comment Syntax". Another server may read such comments differently,
so it gets only the code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Kind, pieces

_BEGIN = re.compile(r"/\*(M?)!(\d{5,6})?")
_MYSQLS_ALONE = range(5_07_00, 10_00_00)
"""Versions whose comments MariaDB 10 and newer ignore, because they are meant for MySQL."""


@dataclass(frozen=True, slots=True)
class Server:
    is_mariadb: bool
    version: tuple[int, int, int]

    def executes(self, mark: str) -> bool:
        """Whether it executes the code after this beginning of a comment."""
        found = _BEGIN.match(mark)
        if found is None:
            return False
        if found.group(1) and not self.is_mariadb:
            return False
        if found.group(2) is None:
            return True
        wanted = int(found.group(2))
        if self.is_mariadb and not found.group(1) and wanted in _MYSQLS_ALONE:
            return False
        major, minor, patch = self.version
        return wanted <= major * 10_000 + minor * 100 + patch


def expand_version_comments(text: str, sql_mode: int, server: Server) -> str:
    """The statement with version comments replaced by the code that ``server`` executed."""
    parts: list[str] = []
    at = 0
    running: list[bool] = []
    for piece in pieces(text, sql_mode):
        if piece.kind is not Kind.MARK:
            continue
        if all(running):
            parts.append(text[at : piece.start])
        parts.append(" ")
        at = piece.end
        if piece.text == "*/":
            running.pop()
        else:
            begin = _BEGIN.match(piece.text)
            at = piece.start + (begin.end() if begin is not None else len(piece.text))
            running.append(server.executes(piece.text))
    if not parts:
        return text
    return "".join((*parts, text[at:] if all(running) else ""))
