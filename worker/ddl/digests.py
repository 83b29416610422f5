"""Digests of shard tables' structures, as one server prints them: equal digests are equal structures.

Each source's server prints a structure in its own words; so every one is asked of a tracker (worker/ddl/tracker.py),
which speaks the target's. Shard tables mostly are alike: what was printed alike is asked about once.
"""

from __future__ import annotations

import hashlib
import re

from worker.connection import Session
from worker.create_table import parse_create_table
from worker.ddl.creation import Creation
from worker.ddl.tracker import Told, Tracker
from worker.table import Table

_AUTO_INCREMENT = re.compile(r"\bAUTO_INCREMENT=\d+\s*")


class Printed:
    """Shard tables' structures in the words of the target's server. For one thread. Raises what :class:`Tracker`
    raises."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Creation] = {}

    def creation(self, table: Table, creation: Creation, tracker: Tracker) -> Creation:
        """Of a shard table as its recorded CREATE TABLE has it."""
        own = _AUTO_INCREMENT.sub("", creation.body)
        key = (own, creation.collation)
        if key not in self._known:
            self._known[key] = tracker.after(table, creation, _nothing, _as_it_is, Told()).creation
        return self._known[key]


class Digests:
    """For one thread. Raises what :class:`Tracker` raises."""

    def __init__(self) -> None:
        self._printed = Printed()

    def digest(self, table: Table, creation: Creation, tracker: Tracker) -> str:
        """Of a shard table as its recorded CREATE TABLE has it."""
        return digest_of(self._printed.creation(table, creation, tracker))


def _nothing(session: Session) -> None:
    pass


def _as_it_is(table: Table) -> Table:
    return table


def digest_of(creation: Creation) -> str:
    """Of what the tracker's server has printed. The order of columns and keys does not count: rows and statements go by
    names."""
    found = parse_create_table(creation.text)
    text = "\n".join([*sorted(found.items), found.comment, creation.collation])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
