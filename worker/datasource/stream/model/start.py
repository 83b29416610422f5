"""The option ``start``: where a stream begins at each source. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from shardmerge.proto import errors
from shardmerge.proto.config.document.yaml_file import read
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import SourcePosition

_POSITION = re.compile(r"(\S+\.\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class WithSnapshot:
    """With the rows that the tables have when the query starts, then the changes after them."""


@dataclass(frozen=True, slots=True)
class Latest:
    """With the changes after the query's start."""


@dataclass(frozen=True, slots=True)
class AtPosition:
    """With the changes after a position, which is the end of a transaction."""

    position: SourcePosition

    def __str__(self) -> str:
        return f"{self.position.file}:{self.position.pos}"


@dataclass(frozen=True, slots=True)
class AfterGtids:
    """With the transactions that are not in a set."""

    gtid_set: str

    def __str__(self) -> str:
        return self.gtid_set


@dataclass(frozen=True, slots=True)
class AtTime:
    """With the first transaction whose commit time is not before a time, which has the source's time zone unless it
    states an offset."""

    text: str

    def __str__(self) -> str:
        return self.text


Start = WithSnapshot | Latest | AtPosition | AfterGtids | AtTime


def parse_starts(text: str, sources: Iterable[str]) -> dict[str, Start]:
    """By source-id. ``text``: one start for all sources, or a mapping of source-ids to starts as JSON or YAML. Raises
    ``read.OPTION``, and what the reader of such a mapping raises."""
    names = list(sources)
    one = _start(text)
    if one is not None:
        if len(names) > 1 and isinstance(one, AtPosition | AfterGtids):
            raise _refused(f"{text} belongs to one server: with several sources give one for each, as a mapping")
        return dict.fromkeys(names, one)
    return _each(text, names)


def _each(text: str, names: list[str]) -> dict[str, Start]:
    if not re.match(r"\s*(?:\{|[^\s:]+:(?:\s|$))", text):
        raise _refused(f"{text!r} is none of snapshot, latest, file:byte, a GTID set and a time")
    given: Mapping[str, object] = read(text, "option start").root
    if given.keys() != set(names):
        raise _refused(f"it has {', '.join(given) or 'no source'}, but the sources are {', '.join(names)}")
    found: dict[str, Start] = {}
    for name in names:
        start = _start(str(given[name]))
        if start is None:
            raise _refused(f"{name}: {given[name]!r} is none of snapshot, latest, file:byte, a GTID set and a time")
        found[name] = start
    return found


def _start(text: str) -> Start | None:
    text = text.strip()
    if text.lower() in ("snapshot", "latest"):
        return WithSnapshot() if text.lower() == "snapshot" else Latest()
    position = _POSITION.fullmatch(text)
    if position is not None:
        return AtPosition(SourcePosition(position[1], int(position[2])))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return AtTime(text)
    gtids = str(GtidSet(text))
    return AfterGtids(gtids) if gtids else None


def _refused(reason: str) -> ShardmergeError:
    return errors.read.OPTION(option="start", reason=reason)
