"""Parses the output of SHOW GRANTS and answers which privileges an account has. Pure.

Source of the format: MySQL 8.4 Reference Manual, "SHOW GRANTS Statement"; MariaDB Knowledge Base, "SHOW
GRANTS". Lines that grant nothing of interest here (roles by name, proxies, routines) are ignored; a
privilege on single columns does not count as one on the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = r"(\*|`(?:[^`]|``)*`|\"[^\"]*\"|[^\s.`\"]+)"
_LINE = re.compile(rf"(GRANT|REVOKE)\s+(.+?)\s+ON\s+(?:TABLE\s+)?{_NAME}\.{_NAME}\s+(?:TO|FROM)\s", re.DOTALL)
_COLUMNS = re.compile(r"[A-Z ]+\([^)]*\)\s*,?")
_STRONGER = {
    # Other privileges that grant the same: MariaDB's names since 10.5, and SUPER before that.
    "REPLICATION CLIENT": frozenset({"BINLOG MONITOR", "SUPER"}),
    "REPLICATION SLAVE": frozenset({"REPLICATION REPLICA"}),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """One line: ``schema`` is a LIKE pattern as granted, None for ``*.*``; ``table`` None for the whole schema."""

    schema: str | None
    table: str | None
    privileges: frozenset[str]
    revoked: bool = False

    def covers(self, schema: str | None, table: str | None) -> bool:
        """Whether the line reaches the schema and table (None: all of them)."""
        if self.schema is None:
            return True
        if schema is None:
            return False
        if self.table is None:
            return _like(self.schema, schema)
        # Names in a table's grant are literal.
        return self.schema == schema and self.table == table

    def gives(self, privilege: str) -> bool:
        wanted = _STRONGER.get(privilege, frozenset()) | {privilege, "ALL", "ALL PRIVILEGES"}
        return bool(self.privileges & wanted)


@dataclass(frozen=True, slots=True)
class Grants:
    """All lines of one account. ``account``: CURRENT_USER(), e.g. "dm@10.0.%"."""

    account: str
    lines: tuple[Grant, ...]

    def has(self, privilege: str, schema: str | None = None, table: str | None = None) -> bool:
        """Whether the account has the privilege on a table, on a whole schema, or (None) everywhere."""
        given = [line for line in self.lines if line.gives(privilege) and line.covers(schema, table)]
        revoked = any(line.revoked for line in given)  # MySQL's partial revokes: below *.* only
        if revoked:
            return any(not line.revoked and line.schema is not None for line in given)
        return bool(given)

    def lacks(self, privileges: Iterable[str], schema: str | None = None, table: str | None = None) -> list[str]:
        """Those of ``privileges`` that are missing."""
        return [privilege for privilege in privileges if not self.has(privilege, schema, table)]

    @property
    def quoted_account(self) -> str:
        """The account as a GRANT statement names it."""
        user, _, host = self.account.rpartition("@")
        return f"'{_escape(user)}'@'{_escape(host)}'"

    def schema_statement(self, privileges: Iterable[str], schema: str) -> str:
        """The GRANT for every table of one schema, and of no other: "_" and "%" are wildcards in a grant."""
        pattern = schema.replace("`", "``").replace("_", "\\_").replace("%", "\\%")
        return self.statement(privileges, f"`{pattern}`.*")

    def statement(self, privileges: Iterable[str], on: str) -> str:
        """The GRANT that an administrator runs; ``on``: e.g. "*.*"."""
        return f"GRANT {', '.join(privileges)} ON {on} TO {self.quoted_account};"


def parse_grants(account: str, texts: Iterable[str]) -> Grants:
    """Read the lines of SHOW GRANTS."""
    lines: list[Grant] = []
    for text in texts:
        match = _LINE.match(text)
        if match is None:
            continue
        verb, privileges, schema, table = match.groups()
        names = (name.strip().upper() for name in _COLUMNS.sub("", privileges).split(","))
        lines.append(
            Grant(
                None if schema == "*" else _unquote(schema),
                None if table == "*" else _unquote(table),
                frozenset(name for name in names if name),
                verb == "REVOKE",
            )
        )
    return Grants(account, tuple(lines))


def _unquote(name: str) -> str:
    if name[0] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")


def _like(pattern: str, name: str) -> bool:
    """SQL LIKE, with backslash as escape, as the servers match a schema's grant."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        elif character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        else:
            parts.append(re.escape(character))
        at += 1
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None
