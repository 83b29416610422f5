"""The judge reads sources and target row by row and reports where they differ (I1).

It shares no code with the program under test: it computes the merge, including the `partition id` layout, a second
time. Sources must be quiet while it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from pymysql.connections import Connection
from pymysql.cursors import SSCursor

Row = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class PartitionIds:
    """`partition id` as its documentation describes it: bit 63 is 0, then 4 bits instance, 7 schema, 8 table, 44
    original id; None for a part takes no bits and widens the original id."""

    instance: int | None
    schema: int | None
    table: int | None

    def __call__(self, original: int) -> int:
        shift = 63
        merged = 0
        for bits, number in ((4, self.instance), (7, self.schema), (8, self.table)):
            if number is not None:
                if not 0 <= number < 1 << bits:
                    raise ValueError(f"{number} does not fit {bits} bits")
                shift -= bits
                merged |= number << shift
        if not 0 <= original < 1 << shift:
            raise ValueError(f"id {original} does not fit {shift} bits")
        return merged | original


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard table as the judge reads it. ``ids`` maps the column ``id_column``; None: unchanged."""

    connect: Callable[[], Connection]
    schema: str
    table: str
    ids: Callable[[int], int] | None = None
    id_column: str = "id"


@dataclass(frozen=True, slots=True)
class Target:
    connect: Callable[[], Connection]
    schema: str
    table: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's result. ``rows``: rows the target should have. ``examples``: texts about the first differences;
    ``identities``: their keys, or the whole rows where there is no key."""

    rows: int
    missing: int
    extra: int
    changed: int
    collisions: int
    examples: tuple[str, ...]
    identities: tuple[Row, ...] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.changed + self.collisions

    def __str__(self) -> str:
        head = (
            f"rows={self.rows} missing={self.missing} extra={self.extra} "
            f"changed={self.changed} collisions={self.collisions}"
        )
        return "\n  ".join((head, *self.examples))


def compare(
    shards: Sequence[Shard],
    target: Target,
    *,
    key: Sequence[str] = ("id",),
    columns: Sequence[str] | None = None,
    examples: int = 10,
) -> Verdict:
    """Compare every row of ``target`` with the merge of ``shards``.

    ``columns``: what to compare; None: the columns of the first shard that are not generated. ``key``:
    columns that identify a row of the target; () for tables without a key, compared as multisets.
    """
    names = tuple(columns) if columns is not None else _columns(shards[0])
    expected: dict[Row, Row] = {}
    bag: Counter[Row] = Counter()
    found: list[tuple[str, Row]] = []

    def say(example: str, identity: Row) -> None:
        if len(found) < examples:
            found.append((example, identity))

    collisions = 0
    places = tuple(names.index(name) for name in key)
    for shard in shards:
        mapped = names.index(shard.id_column) if shard.ids is not None else -1
        for row in _rows(shard.connect, shard.schema, shard.table, names):
            if shard.ids is not None:
                number = row[mapped]
                assert isinstance(number, int)
                row = (*row[:mapped], shard.ids(number), *row[mapped + 1 :])
            if not places:
                bag[row] += 1
                continue
            identity = tuple(row[place] for place in places)
            if identity in expected:
                collisions += 1
                say(f"collision: two rows merge to {identity}", identity)
            expected[identity] = row
    if not places:
        return _compare_bags(bag, Counter(_rows(target.connect, target.schema, target.table, names)), examples)
    rows = len(expected)
    extra = changed = 0
    for row in _rows(target.connect, target.schema, target.table, names):
        identity = tuple(row[place] for place in places)
        wanted = expected.pop(identity, None)
        if wanted is None:
            extra += 1
            say(f"extra: {row}", identity)
        elif wanted != row:
            changed += 1
            say(f"changed: is {row}, should be {wanted}", identity)
    for identity, row in expected.items():
        say(f"missing: {row}", identity)
    texts, identities = tuple(text for text, _ in found), tuple(identity for _, identity in found)
    return Verdict(rows, len(expected), extra, changed, collisions, texts, identities)


def _compare_bags(wanted: Counter[Row], present: Counter[Row], examples: int) -> Verdict:
    missing, extra = wanted - present, present - wanted
    found = [f"missing {count}x: {row}" for row, count in missing.items()]
    found += [f"extra {count}x: {row}" for row, count in extra.items()]
    rows = (*missing, *extra)[:examples]
    return Verdict(wanted.total(), missing.total(), extra.total(), 0, 0, tuple(found[:examples]), rows)


def _columns(shard: Shard) -> tuple[str, ...]:
    connection = shard.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND "
                "table_name = %s AND COALESCE(generation_expression, '') = '' ORDER BY ordinal_position",
                (shard.schema, shard.table),
            )
            return tuple(str(row[0]) for row in cursor.fetchall())
    finally:
        connection.close()


def _rows(connect: Callable[[], Connection], schema: str, table: str, names: Sequence[str]) -> Iterator[Row]:
    """Return rows as Python values; FLOAT as DOUBLE, because its own text form may lack digits."""
    connection = connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND "
                "table_name = %s AND data_type = 'float'",
                (schema, table),
            )
            floats = {str(row[0]) for row in cursor.fetchall()}
        selected = ", ".join(f"`{name}` + 0e0" if name in floats else f"`{name}`" for name in names)
        with connection.cursor(SSCursor) as stream:
            stream.execute(f"SELECT {selected} FROM `{schema}`.`{table}`")
            while batch := stream.fetchmany(2000):
                yield from batch
    finally:
        connection.close()
