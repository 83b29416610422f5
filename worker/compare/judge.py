"""What the difference between two reads of a key says. Pure.

A shard table's row is read between a low and a high watermark, then, once every lane has committed what lies before the
high watermark, the target's row. A key that no event touches from the low watermark to the source's end behind the
second read had one value all the time: if the target's differs, it is wrong. Of a key that an event touches nothing can
be said; it is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from worker.compare.canonical import ComparedColumn, same_value
from worker.compare.keys import Key
from worker.rows import Literals

Value = bytes | None


@dataclass(frozen=True, slots=True)
class Row:
    """``values``: of the compared columns, as compared; ``shown``: as shown."""

    values: tuple[Value, ...]
    shown: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    key: Key


@dataclass(frozen=True, slots=True)
class Extra:
    key: Key


@dataclass(frozen=True, slots=True)
class Different:
    """``columns``: indexes of those that differ."""

    key: Key
    columns: tuple[int, ...]
    source: Row
    target: Row


Finding = Missing | Extra | Different


@dataclass(frozen=True, slots=True)
class Verdict:
    """``open``: keys that changed meanwhile."""

    findings: tuple[Finding, ...]
    open: tuple[Key, ...]


def candidates(source: Mapping[Key, bytes | None], target: Mapping[Key, Sequence[bytes | None]]) -> list[Key]:
    """Keys whose rows' checksums differ, or that are on one side only. A row without a checksum always is one."""
    found = [key for key, checksum in source.items() if checksum is None or list(target.get(key, ())) != [checksum]]
    return found + [key for key in target if key not in source]


def judge(
    keys: Iterable[Key],
    source: Mapping[Literals, Row],
    target: Mapping[Literals, Sequence[Row]],
    touched: Collection[Literals],
    columns: Sequence[ComparedColumn],
) -> Verdict:
    """``source``, ``target``: the rows read, by the target's key; ``touched``: keys of the events in between."""
    findings: list[Finding] = []
    left: list[Key] = []
    for key in keys:
        if key.target in touched:
            left.append(key)
            continue
        ours, theirs = source.get(key.target), target.get(key.target, ())
        if ours is None:
            findings += [Extra(key) for _ in theirs]
        elif not theirs:
            findings.append(Missing(key))
        else:
            differing = [differing_columns(ours, row, columns) for row in theirs]
            best = min(range(len(theirs)), key=lambda at: len(differing[at]))
            if differing[best]:
                findings.append(Different(key, differing[best], ours, theirs[best]))
            findings += [Extra(key) for _ in theirs[1:]]
    return Verdict(tuple(findings), tuple(left))


def differing_columns(source: Row, target: Row, columns: Sequence[ComparedColumn]) -> tuple[int, ...]:
    return tuple(
        at for at, column in enumerate(columns) if not same_value(column.kind, source.values[at], target.values[at])
    )
