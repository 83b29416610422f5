"""GTID sets that grow by one GTID after the other, as the relay log keeps them: from text, to text, comparisons."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.worker.binlog.gtid_events import SetPart

MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_MYSQL = re.compile(r"([0-9a-fA-F-]{36})((?::(?:\d+(?:-\d+)?|[a-z_][a-z0-9_]{0,31}))+)")

_Source = tuple[str, str]
"""MySQL: who assigns the numbers: server uuid and tag ("" for none)."""


class GtidSet:
    """An executed set that grows.

    MariaDB: the last GTID per domain ("0-1-5,1-2-9"; of several per domain the last one counts, as
    the server writes its GTID_LIST). MySQL: intervals per server and tag ("uuid:1-5:7:tag:1-3"). A text in neither
    format makes the set unknown: its text is "" from then on.
    """

    __slots__ = ("_domains", "_intervals", "_latest", "_text", "_unknown")

    def __init__(self, text: str, *, known: bool = True) -> None:
        self._domains: dict[str, tuple[str, int]] = {}
        self._intervals: dict[_Source, list[tuple[int, int]]] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self._unknown = not known
        self._text: str | None = None
        self.add_all(text)

    @property
    def is_known(self) -> bool:
        return not self._unknown

    def add(self, text: str) -> None:
        """Add one GTID, or one server's part of a MySQL set."""
        self._text = None
        mariadb = MARIADB.fullmatch(text)
        if mariadb is not None:
            domain, server, number = mariadb.groups()
            self._domains[domain] = (server, int(number))
            self._latest[domain, server] = int(number)
            return
        found = _mysql(text)
        if found is None:
            self.forget()
            return
        for source, first, last in found:
            _insert(self._intervals.setdefault(source, []), first, last)

    def add_all(self, text: str) -> None:
        """Add every part of a set's text."""
        for part in text.replace("\n", "").split(","):
            if part.strip():
                self.add(part.strip())

    def learn(self, text: str) -> None:
        """Merge the GTID list of a file, which was written before that file: a set that has more does not change."""
        for part in filter(None, text.replace("\n", "").split(",")):
            mariadb = MARIADB.fullmatch(part)
            if mariadb is None:
                self.add(part)
                continue
            domain, server, number = mariadb.groups()
            self._latest[domain, server] = max(self._latest.get((domain, server), 0), int(number))
            if self._domains.get(domain, ("", 0))[1] < int(number):
                self._domains[domain] = (server, int(number))
                self._text = None

    def conflict_with(self, text: str) -> str:
        """The GTID of this set that excludes ``text`` as the next GTID; "" when none does.

        MariaDB: the last GTID of the same domain and server, when its number is not lower (other servers of a domain
        may have lower numbers, unless gtid_strict_mode is on). MySQL: the GTID itself, when the set has it.
        """
        mariadb = MARIADB.fullmatch(text)
        if mariadb is not None:
            domain, server, number = mariadb.groups()
            latest = self._latest.get((domain, server), 0)
            return f"{domain}-{server}-{latest}" if latest >= int(number) else ""
        known = any(
            a <= first <= b for source, first, _ in _mysql(text) or () for a, b in self._intervals.get(source, ())
        )
        return text if known else ""

    def gap_after(self, text: str) -> GtidGap | None:
        """The first numbers after a MySQL GTID (or interval) that this set lacks; None for any other GTID."""
        for source, _, last in _mysql(text) or ():
            if source[1]:
                return None
            first, end = last + 1, 1 << 62
            for a, b in self._intervals.get(source, ()):
                if a <= first <= b:
                    first = b + 1
                elif a > first:
                    end = a
                    break
            return GtidGap(uuid.UUID(source[0]).bytes, first, end)
        return None

    def newer_than_list(self, text: str) -> str:
        """A GTID of this set that is newer than ``text``, a MariaDB list of all GTIDs written until now; "" if none.

        A domain that the list does not name was removed from it on purpose (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
        """
        for part in filter(None, text.split(",")):
            mariadb = MARIADB.fullmatch(part)
            if mariadb is not None:
                domain, server, number = mariadb.groups()
                latest = self._latest.get((domain, server), 0)
                if latest > int(number):
                    return f"{domain}-{server}-{latest}"
        return ""

    def lacks(self, other: GtidSet) -> str:
        """The first GTID of ``other`` that this set lacks; "" when this set has all of ``other``.

        MariaDB's numbers ascend per domain, over all servers: "0-*-6" is number 6 of domain 0.
        """
        for domain in sorted(other._domains, key=int):
            server, number = other._domains[domain]
            own = self._domains.get(domain, ("", 0))[1]
            if max(own, self._latest.get((domain, server), 0)) < number:
                return f"{domain}-*-{own + 1}"
        for source in sorted(other._intervals):
            for first, last in other._intervals[source]:
                missing = _first_outside(self._intervals.get(source, []), first, last)
                if missing is not None:
                    return f"{_name(source)}:{missing}"
        return ""

    def never_had(self, other: GtidSet) -> str:
        """A GTID of ``other`` that a server with this executed set never had; "" if it had all of them.

        Like :meth:`lacks`, but a higher number in MariaDB's domain is no proof: another server may have written it.
        """
        for domain in sorted(other._domains, key=int):
            server, number = other._domains[domain]
            if self._latest.get((domain, server), 0) < number:
                return f"{domain}-{server}-{number}"
        return "" if other._domains else self.lacks(other)

    def holes(self) -> list[str]:
        """The gaps of a MySQL set between a server's first and last number: "uuid:6-8". MariaDB's sets have only the
        last numbers, so they have no gaps."""
        found: list[str] = []
        for source in sorted(self._intervals):
            spans = self._intervals[source]
            for (_, last), (first, _) in pairwise(spans):
                gap = f"{last + 1}" if first == last + 2 else f"{last + 1}-{first - 1}"
                found.append(f"{_name(source)}:{gap}")
        return found

    def common(self, other: GtidSet) -> GtidSet:
        """The intersection of both sets."""
        made = GtidSet("")
        for domain, (server, number) in self._domains.items():
            there = other._domains.get(domain)
            if there is not None:
                least = min((number, server), (there[1], there[0]))
                made.add(f"{domain}-{least[1]}-{least[0]}")
        for source, intervals in self._intervals.items():
            for first, last in intervals:
                for a, b in other._intervals.get(source, ()):
                    if max(a, first) <= min(b, last):
                        _insert(made._intervals.setdefault(source, []), max(a, first), min(b, last))
        return made

    def parts(self) -> tuple[SetPart, ...]:
        """The parts of a MySQL set for :func:`shardmerge.worker.binlog.gtid_events.encode_set`."""
        return tuple(
            SetPart(uuid.UUID(server), tag, tuple(self._intervals[server, tag]))
            for server, tag in sorted(self._intervals)
        )

    def forget(self) -> None:
        """Make the set unknown from here on."""
        self._unknown = True
        self._text = None

    def __str__(self) -> str:
        if self._unknown:
            return ""
        if self._text is None:
            parts = [
                f"{domain}-{'-'.join(map(str, self._domains[domain]))}" for domain in sorted(self._domains, key=int)
            ]
            before = ""
            for source in sorted(self._intervals):
                spans = ":".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self._intervals[source])
                server, tag = source
                if server == before:
                    parts[-1] += f":{tag}:{spans}"
                else:
                    parts.append(f"{_name(source)}:{spans}")
                before = server
            self._text = ",".join(parts)
        return self._text


def _name(source: _Source) -> str:
    server, tag = source
    return f"{server}:{tag}" if tag else server


def _mysql(text: str) -> list[tuple[_Source, int, int]] | None:
    """The intervals of one server's part, each with its server and tag; None for an invalid text."""
    match = _MYSQL.fullmatch(text)
    if match is None:
        return None
    server, tag = match.group(1).lower(), ""
    found: list[tuple[_Source, int, int]] = []
    for piece in match.group(2)[1:].split(":"):
        if piece[0].isdigit():
            first, _, last = piece.partition("-")
            found.append(((server, tag), int(first), int(last or first)))
        else:
            tag = piece
    return found


def _first_outside(intervals: list[tuple[int, int]], first: int, last: int) -> int | None:
    """The first number of first..last that none of the ascending intervals contains."""
    for a, b in intervals:
        if a <= first <= b:
            first = b + 1
    return first if first <= last else None


def _insert(intervals: list[tuple[int, int]], first: int, last: int) -> None:
    """Add first..last to sorted, disjoint, non-adjacent intervals."""
    if intervals and intervals[-1][1] + 1 == first:  # the usual case: the next number
        intervals[-1] = (intervals[-1][0], last)
        return
    merged: list[tuple[int, int]] = []
    for a, b in intervals:
        if b + 1 < first or last + 1 < a:
            merged.append((a, b))
        else:
            first, last = min(a, first), max(b, last)
    merged.append((first, last))
    merged.sort()
    intervals[:] = merged


@dataclass(frozen=True, slots=True)
class GtidGap:
    """Numbers of a MySQL server (without a tag) that a GTID set lacks: from ``first`` to before ``end``."""

    server: bytes
    first: int
    end: int
