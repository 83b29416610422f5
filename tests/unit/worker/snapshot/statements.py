"""A relay log of statements only, and a watch of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import Head, Statement
from shardmerge.worker.relay.serve.locate import GroupEnds
from shardmerge.worker.snapshot.statement_watch import StatementWatch


def place_of(byte: int) -> SourcePosition:
    return SourcePosition("bin.000001", byte)


def statement_at(byte: int, text: str, schema: str = "db") -> Statement:
    """Return a statement whose group is from ``byte`` to ``byte + 10``."""
    start = RelayOffset(1, byte)
    return Statement(start, start, RelayOffset(1, byte + 10), place_of(byte), schema, text, 0)


@dataclass
class Statements:
    """A relay log with these statements, up to byte ``end``. A position's byte is its offset."""

    found: list[Statement] = field(default_factory=list[Statement])
    end: int = 0
    relay_id: str = "relay-1"
    searched_from: list[RelayOffset] = field(default_factory=list[RelayOffset])

    @contextmanager
    def one_generation(self) -> Generator[str]:
        yield self.relay_id

    def head(self) -> Head:
        return Head(RelayOffset(1, self.end), place_of(self.end), 0.0)

    def locate(
        self, position: SourcePosition, deadline_seconds: float, stop: StopSignal, *, ends: GroupEnds | None = None
    ) -> RelayOffset:
        return RelayOffset(1, position.pos)

    def statements_from(self, offset: RelayOffset) -> Iterator[Statement]:
        self.searched_from.append(offset)
        yield from (item for item in self.found if offset <= item.group_start < RelayOffset(1, self.end))


def watch_of(log: Statements, valid_from: Mapping[int, int], tables: Mapping[str, int]) -> StatementWatch:
    """Return a watch of tables by the word in a statement that names them."""
    return StatementWatch(
        log,
        {number: place_of(byte) for number, byte in valid_from.items()},
        lambda statement: frozenset(tables[word] for word in statement.text.split() if word in tables),
        StopSignal(),
    )


def no_statements() -> StatementWatch:
    return watch_of(Statements(), {}, {})
