"""Digests of shard tables' structures in one server's notation: equal digests mean equal structures.

Each source's server prints a structure in its own notation. So the tracker (worker/ddl/structure/schema_tracker.py)
converts each one to the target's notation. Most shard tables are equal: each printed text is converted once.
"""

from __future__ import annotations

import hashlib
import re

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import lowercase_names, read_create_table
from shardmerge.worker.core.table import Table
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.structure.schema_tracker import DeclaredColumns, SchemaTracker

_RECENT = 20_000
"""Recorded texts whose conversion is kept."""

_AUTO_INCREMENT = re.compile(r"\bAUTO_INCREMENT=\d+\s*")


class CanonicalCreates:
    """Shard tables' CREATE TABLE texts in the notation of the target's server. For one thread. Raises what
    :class:`SchemaTracker` raises."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], CreateStatement] = {}
        self._definitions: dict[CreateStatement, TableDefinition] = {}
        self._digests: dict[CreateStatement, str] = {}
        self._recent: dict[CreateStatement, CreateStatement] = {}

    def canonical(self, table: Table, creation: CreateStatement, tracker: SchemaTracker) -> CreateStatement:
        """A shard table's recorded CREATE TABLE in the target's notation."""
        known = self._recent.get(creation)
        if known is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            known = self._recent[creation] = self._canonical(table, creation, tracker)
        return known

    def definition(self, table: Table, creation: CreateStatement, tracker: SchemaTracker) -> TableDefinition:
        """A shard table's structure; equal ones are one object."""
        canonical = self.canonical(table, creation, tracker)
        found = self._definitions.get(canonical)
        if found is None:
            found = self._definitions[canonical] = parse_table_definition(canonical)
        return found

    def digest(self, table: Table, creation: CreateStatement, tracker: SchemaTracker) -> str:
        """The digest of a shard table's recorded structure."""
        canonical = self.canonical(table, creation, tracker)
        found = self._digests.get(canonical)
        if found is None:
            found = self._digests[canonical] = digest_of(canonical)
        return found

    def _canonical(self, table: Table, creation: CreateStatement, tracker: SchemaTracker) -> CreateStatement:
        own = _AUTO_INCREMENT.sub("", creation.body)
        key = (own, creation.collation)
        if key not in self._known:
            self._known[key] = tracker.after(table, creation, _nothing, _as_it_is, DeclaredColumns()).creation
        return self._known[key]


def _nothing(session: Session) -> None:
    pass


def _as_it_is(table: Table) -> Table:
    return table


def digest_of(creation: CreateStatement) -> str:
    """The digest of a CREATE TABLE from the tracker's server. The order of columns and keys does not count, nor does
    the letter case of their names, because rows and statements use names."""
    found = read_create_table(creation.text)
    items = sorted(lowercase_names(item.text) for item in found.items)
    text = "\n".join([*items, found.comment, found.collation or creation.collation])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
