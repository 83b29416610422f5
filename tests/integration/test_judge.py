"""Tests writer and judge with a merge in SQL: the judge finds every kind of difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.judge import PartitionIds, Shard, Target, Verdict, compare
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.writer import ORDERS, Counts, ShardTable, Writer, create_tables, fill


@dataclass(frozen=True, slots=True)
class Merge:
    server: MariaDB
    tables: tuple[ShardTable, ...]
    shards: tuple[Shard, ...]

    def verdict(self, key: tuple[str, ...] = ("id",)) -> Verdict:
        return compare(self.shards, Target(self.server.connect, "merged", "orders"), key=key)

    def by_hand(self) -> None:
        """Merge in SQL, with a third implementation of the layout of `partition id`."""
        self.server.execute(
            "CREATE OR REPLACE DATABASE merged CHARACTER SET utf8mb4",
            f"CREATE TABLE merged.orders ({ORDERS.definition})",
        )
        for number, table in enumerate(self.tables, 1):
            self.server.execute(
                f"INSERT INTO merged.orders SELECT (1 << 59) + (1 << 52) + ({number} << 44) + id, "
                f"{', '.join(ORDERS.columns)} FROM {table.name}"
            )


@pytest.fixture
def merge(make_server: Callable[..., MariaDB]) -> Merge:
    server = make_server("source")
    tables = tuple(ShardTable(server.connect, "shard_01", f"order_{number:02d}") for number in (1, 2))
    create_tables(tables)
    for table in tables:
        fill(table, 500, seed=1)
    shards = tuple(Shard(t.connect, t.schema, t.table, PartitionIds(1, 1, n)) for n, t in enumerate(tables, 1))
    return Merge(server, tables, shards)


def test_the_writer_writes_everything_and_the_judge_agrees_with_sql(merge: Merge) -> None:
    with Writer(merge.tables, seed=5, threads=2, pause_seconds=0, large_transaction=50) as writer:

        def all_kinds(counts: Counts) -> bool:
            return min(counts.inserts, counts.updates, counts.deletes, counts.key_changes, counts.rollbacks) > 0

        until(lambda: all_kinds(writer.counts) and writer.counts.transactions > 200, "all kinds of changes")
        writer.pause()
        before = writer.counts.changes
        merge.by_hand()
        verdict = merge.verdict()
        assert verdict.differences == 0, str(verdict)
        assert writer.counts.changes == before
        writer.resume()
        until(lambda: writer.counts.changes > before, "the writer goes on")
        # A source that is killed and restarted is no failure of the writer.
        merge.server.kill()
        merge.server.start()
        before = writer.counts.changes
        until(lambda: writer.counts.changes > before, "the writer goes on after a crash")


@pytest.mark.parametrize(
    ("damage", "counted"),
    [
        ("DELETE FROM merged.orders ORDER BY id LIMIT 3", (3, 0, 0)),
        ("INSERT INTO merged.orders SELECT 7, customer, amount, state, note, token, created "
         "FROM merged.orders LIMIT 1", (0, 1, 0)),
        ("UPDATE merged.orders SET customer = CONCAT(customer, ' ') ORDER BY id DESC LIMIT 2", (0, 0, 2)),
        ("UPDATE merged.orders SET token = X'FF00FF' ORDER BY id LIMIT 1", (0, 0, 1)),
        ("UPDATE merged.orders SET created = created + INTERVAL 1000 MICROSECOND ORDER BY id LIMIT 1", (0, 0, 1)),
    ],
)  # fmt: skip
def test_every_kind_of_difference_is_counted(merge: Merge, damage: str, counted: tuple[int, int, int]) -> None:
    merge.by_hand()
    merge.server.execute(damage)
    verdict = merge.verdict()
    assert (verdict.missing, verdict.extra, verdict.changed) == counted
    assert len(verdict.examples) == sum(counted)
    as_bag = merge.verdict(key=())
    missing, extra, changed = counted
    assert (as_bag.missing, as_bag.extra) == (missing + changed, extra + changed)


def test_colliding_shards_are_a_difference(merge: Merge) -> None:
    merge.by_hand()
    unmapped = [Shard(shard.connect, shard.schema, shard.table) for shard in merge.shards]
    assert compare(unmapped, Target(merge.server.connect, "merged", "orders")).collisions == 500
