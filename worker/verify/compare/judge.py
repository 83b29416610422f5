"""Decides what a difference between the two reads of a key means. Pure.

A shard table's row is read between a low and a high watermark. Once every lane has committed everything before the
high watermark, the target's row is read. A key that no event touches from the low watermark to the source's end after
the second read had one value all the time: if the target's value differs, it is wrong. For a key that an event touches
nothing can be concluded; it is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.verify.compare.canonical_values import ComparedColumn, same_value
from shardmerge.worker.verify.compare.keys import RowKey

Value = bytes | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was read. ``values``: of the compared columns, as compared; ``shown``: as shown."""

    values: tuple[Value, ...]
    shown: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A row of the shard table that the target lacks."""

    key: RowKey


@dataclass(frozen=True, slots=True)
class Extra:
    """A row of the target that the shard table does not have."""

    key: RowKey


@dataclass(frozen=True, slots=True)
class Different:
    """A row whose values differ. ``columns``: the indexes of the columns that differ."""

    key: RowKey
    columns: tuple[int, ...]
    source: Row
    target: Row


Finding = Missing | Extra | Different


@dataclass(frozen=True, slots=True)
class Verdict:
    """``still_changing``: keys that changed meanwhile and must be read again."""

    findings: tuple[Finding, ...]
    still_changing: tuple[RowKey, ...]


def candidates(source: Mapping[RowKey, bytes | None], target: Mapping[RowKey, Sequence[bytes | None]]) -> list[RowKey]:
    """Keys whose rows' checksums differ or that exist on one side only; always those of rows without a checksum."""
    found = [key for key, checksum in source.items() if checksum is None or list(target.get(key, ())) != [checksum]]
    return found + [key for key in target if key not in source]


def diff_rows(
    keys: Iterable[RowKey],
    source: Mapping[Literals, Row],
    target: Mapping[Literals, Sequence[Row]],
    touched: Collection[Literals],
    columns: Sequence[ComparedColumn],
) -> Verdict:
    """Compare the rows of ``keys``. ``source``, ``target``: the rows read, by the target's key; ``touched``: keys of
    the events in between."""
    findings: list[Finding] = []
    left: list[RowKey] = []
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
        at for at, column in enumerate(columns) if not same_value(column, source.values[at], target.values[at])
    )
