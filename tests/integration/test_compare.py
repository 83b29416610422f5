"""Tests dmctl compare in parallel with a writer: it reports, names and repairs the planted differences, and no
others."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from shardmerge.proto import errors
from tests.support.cluster import Compared
from tests.support.daemon import command
from tests.support.database import Database
from tests.support.judge import PartitionIds
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import Shape, ShardTable, Writer, beside_a_writer

WRITING_SECONDS = 30.0


def compare(world: World, task: str, *options: str) -> Compared:
    """Run the comparison; any result is accepted."""
    return world.cluster.compare(task, *options, check=False)


def started(world: World, family: Family, rows: int, shape: Shape | None = None) -> None:
    _ = family.create(rows, shape) if shape is not None else family.create(rows)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(family.name)


def found(lines: Sequence[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Return (kind, shard table, key) of each line of a report."""
    return {(line["kind"], line["sourceTable"], int(line["key"]["id"])) for line in lines}


def test_a_running_writer_makes_no_difference(world: World) -> None:
    family = world.family("cmp_live", tables=2)
    started(world, family, 20_000)
    runs = 0
    with Writer(family.shard_tables(), seed=71) as writer:
        ends = time.monotonic() + WRITING_SECONDS
        while time.monotonic() < ends or runs < 2:
            done = compare(world, family.name)
            assert done.answer.code == 0, f"{done.answer.text}\n{done.lines}"
            assert done.rows > 70_000
            runs += 1
        counts = writer.stop()
    assert min(counts.inserts, counts.updates, counts.deletes, counts.key_changes) > 0
    world.judge(family)
    world.cluster.dmctl("stop-task", family.name)


FINE = Shape(
    definition=(
        "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NULL, f FLOAT NULL, d DOUBLE NULL, "
        "note TEXT NULL, n DECIMAL(20,6) NULL, at DATETIME(6) NULL, b VARBINARY(20) NULL"
    ),
    columns=("name", "f", "d", "note", "n", "at", "b"),
    row=lambda rng: (
        f"Name {rng.randrange(10_000)}",
        str(rng.random()),
        str(rng.random()),
        "note " * rng.randrange(1, 9),
        f"{rng.randrange(10_000)}.{rng.randrange(1_000_000):06d}",
        f"2024-01-0{rng.randrange(1, 10)} 10:00:00.{rng.randrange(1_000_000):06d}",
        rng.randbytes(8),
    ),
)
PLANTED = {
    11: "name = CONCAT(name, ' ')",
    12: "name = LOWER(name)",
    13: "d = d + 2.220446049250313e-16 * d",
    14: "f = f * 1.0000002",
    15: "note = NULL",
    16: "n = n + 0.000001",
    17: "at = at + INTERVAL 1 MICROSECOND",
    18: "b = CONCAT(b, X'00')",
}
"""The smallest possible differences, by row."""


def plant(target: Database, table: str, base: int, *, owned: bool = True) -> set[tuple[str, int]]:
    """Write differences into rows whose ids are ``base`` | 10 … 21; return (kind, id) of each."""
    target.execute(
        f"UPDATE {table} SET name = NULL WHERE id = {base | 10}",
        *(f"UPDATE {table} SET {change} WHERE id = {base | at}" for at, change in PLANTED.items()),
        f"DELETE FROM {table} WHERE id = {base | 19}",
        f"UPDATE {table} SET id = {base | 900_000_000} WHERE id = {base | 20}",
        f"INSERT INTO {table} (id, name) VALUES ({base | 900_000_001}, '')",
    )
    different = {("different", base | at) for at in (10, *PLANTED)}
    extra = {("extra", base | 900_000_000), ("extra", base | 900_000_001)} if owned else set[tuple[str, int]]()
    return different | {("missing", base | 19), ("missing", base | 20)} | extra


def test_what_is_planted_is_found_named_and_repaired_beside_a_writer(world: World) -> None:
    family = world.family("cmp_plant", tables=2)
    started(world, family, 3000, FINE)
    # The writer must not change these rows, or it would repair them: it works on the second tables.
    shards = [shard for shard in family.shard_tables() if shard.table == "order_02"]
    first, second = PartitionIds(1, 1, 1)(0), PartitionIds(2, 1, 1)(0)
    for _, server in world.sources:
        server.execute("UPDATE cmp_plant_01.order_01 SET name = '' WHERE id = 10")
    world.settle([family.name])
    with Writer(shards, seed=72, shape=FINE) as writer:
        planted = plant(world.target, "cmp_plant.orders", first) | plant(world.target, "cmp_plant.orders", second)
        # A row that no shard table can have: no instance is number 0.
        world.target.execute("INSERT INTO cmp_plant.orders (id, name) VALUES (7, 'stray')")
        planted.add(("extra", 7))
        done = compare(world, family.name)
        assert done.answer.code == 1, done.answer.text
        assert {(kind, key) for kind, _, key in found(done.lines)} == planted, done.answer.text
        columns = {int(line["key"]["id"]): line["columns"] for line in done.lines if line["kind"] == "different"}
        assert columns[first | 10] == {"name": {"source": "", "target": None}}
        assert {at: list(columns[second | at]) for at in PLANTED} == {
            at: [change.split()[0]] for at, change in PLANTED.items()
        }
        done = compare(world, family.name, "--repair")
        assert done.answer.code == 0, f"{done.answer.text}\n{done.lines}"
        assert done.total("repaired") == len(planted)
        assert all(line["repaired"] for line in done.lines)
        done = compare(world, family.name)
        assert (done.answer.code, done.lines) == (0, []), done.answer.text
        # The lanes check the row counts of their changes: a repaired row can be changed and deleted again.
        for _, server in world.sources:
            server.execute(
                "UPDATE cmp_plant_01.order_01 SET name = 'after' WHERE id IN (10, 11, 19)",
                "DELETE FROM cmp_plant_01.order_01 WHERE id = 20",
            )
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", family.name)


@pytest.mark.parametrize("moment", ["compare.planning", "compare.piece"])
def test_a_source_that_restarts_meanwhile_is_waited_for(world: World, moment: str) -> None:
    name = f"cmp_{moment.removeprefix('compare.')}"
    family = world.family(name, tables=2)
    started(world, family, 3000)
    world.settle([name])
    source_id, server = world.sources[0]
    first = PartitionIds(1, 1, 1)(0)
    world.target.execute(
        f"UPDATE {name}.orders SET note = 'planted' WHERE id IN ({first | 10}, {first | 2000})",
        f"DELETE FROM {name}.orders WHERE id = {first | 11}",
    )
    world.cluster.hooks.hold(moment)
    with comparing(world, name, "--repair") as running:
        world.cluster.hooks.reached(moment)
        server.kill()
        world.cluster.hooks.release_all()
        ends = time.monotonic() + 12  # longer than the pauses of a few attempts
        until(lambda: running.poll() is not None or time.monotonic() > ends, "time passes", 30)
        server.start()
        output, _ = running.communicate(timeout=300)
    assert running.returncode == 0, output
    assert source_id in output
    world.cluster.wait_replicating(name)
    done = compare(world, name)
    assert (done.answer.code, done.lines) == (0, []), done.answer.text
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def test_repairing_rows_that_the_writer_changes(world: World) -> None:
    """The writer changes, deletes and inserts rows everywhere in the table while it is repaired repeatedly; the judge
    checks the final result. Only values are planted, no missing rows: a lane that meets a missing row before its repair
    stops.
    """
    family = world.family("cmp_race", tables=1)
    started(world, family, 2000)
    # The lanes and this statement lock rows that the other one needs: it may lose a deadlock.
    merged = ShardTable(world.target.connect, "cmp_race", "orders")
    with Writer(family.shard_tables(), seed=73, pause_seconds=0.002) as writer:
        for number in range(4):
            seen = writer.counts.changes
            beside_a_writer(
                merged, f"UPDATE {merged.name} SET note = 'planted {number}' WHERE (id & 1023) BETWEEN 100 AND 400"
            )
            done = compare(world, family.name, "--repair")
            assert done.answer.code == 0, f"{done.answer.text}\n{done.lines[:3]}"
            assert done.total("repaired") > 0
            assert writer.counts.changes > seen
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", family.name)


def test_what_does_not_replicate_is_not_compared(world: World) -> None:
    family = world.family("cmp_paused", tables=1)
    started(world, family, 10)
    world.cluster.dmctl("pause-task", family.name)
    world.cluster.wait_paused(family.name)
    done = world.cluster.compare(family.name, check=False, replicates=False)
    assert done.answer.code == 2
    assert str(errors.compare.NOT_REPLICATING.code) in done.answer.text
    world.cluster.dmctl("resume-task", family.name)
    world.cluster.wait_replicating(family.name)
    done = compare(world, family.name, "--table", "cmp_paused.nothing")
    assert done.answer.code == 2
    assert str(errors.compare.TABLE_UNKNOWN.code) in done.answer.text
    done = compare(world, family.name, "--table", "cmp_paused_01.order_01")
    assert done.answer.code == 0, done.answer.text
    assert {table["sourceTable"] for table in done.answer.json["tables"]} == {"cmp_paused_01.order_01"}
    done = compare(world, "no-such-task")
    assert done.answer.code == 2
    assert str(errors.master.TASK_UNKNOWN.code) in done.answer.text
    world.cluster.dmctl("stop-task", family.name)


def test_a_table_that_is_copied_in_part_is_not_compared(world: World) -> None:
    """Its missing rows are no differences, and a repair must not add them: the rest of the copy does."""
    name = "cmp_partial"
    family = world.family(name, tables=1)
    started(world, family, 10)
    place = '{"position": {"file": "mysql-bin.000001", "pos": 4}, "at": 0}'
    world.target.execute(
        f"DELETE FROM {name}.orders LIMIT 3",
        f"INSERT INTO dm_meta.snapshot_interrupted SELECT '{name}', source, 0, "
        f'\'{{"number": 1, "place": {place}, "key": []}}\' FROM dm_meta.subtask WHERE task = \'{name}\'',
    )
    done = compare(world, name, "--repair")
    assert done.lines == []
    assert done.answer.text.count("interrupted the copy") == 2, done.answer.text
    world.target.execute(f"DELETE FROM dm_meta.snapshot_interrupted WHERE task = '{name}'")
    done = compare(world, name, "--repair")
    assert len(done.lines) == 3, done.answer.text
    world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("key", ["VARCHAR(20) CHARACTER SET latin1", "BIGINT", "DECIMAL(12,2)"])
def test_shards_without_partition_id(world: World, key: str) -> None:
    """Keys are unique over all shards without a mapping: missing and different rows are found, and the answer reports
    that extra rows are not searched."""
    name = f"cmp_{key[:3].lower()}"
    for number, (_, server) in enumerate(world.sources):
        server.execute(
            f"CREATE DATABASE {name}_01",
            f"CREATE TABLE {name}_01.order_01 (id {key} NOT NULL PRIMARY KEY, name VARCHAR(40))",
            *(f"INSERT INTO {name}_01.order_01 VALUES ({2 * at + number}, 'Name {at}')" for at in range(200)),
        )
    family = world.family(name, tables=1)
    task = "\n".join(line for line in family.task().splitlines() if "column-mapping-rules" not in line)
    world.cluster.start_task(task[: task.index("column-mappings:")])
    world.cluster.wait_replicating(name)
    done = compare(world, name)
    assert done.answer.code == 0, done.answer.text
    assert done.rows == 400
    assert all("shard tables" in table["extraUnsought"] for table in done.answer.json["tables"])
    world.target.execute(
        f"DELETE FROM {name}.orders WHERE id = 20",
        f"UPDATE {name}.orders SET name = UPPER(name) WHERE id = 33",
    )
    done = compare(world, name, "--repair")
    assert done.answer.code == 0, done.answer.text
    assert {(line["kind"], float(line["key"]["id"])) for line in done.lines} == {("missing", 20), ("different", 33)}
    done = compare(world, name)
    assert (done.answer.code, done.lines) == (0, []), done.answer.text
    world.cluster.dmctl("stop-task", name)


def test_the_only_shard_of_a_target_may_have_any_key(world: World) -> None:
    """Every row of the target belongs to the shard: extra rows are found by looking up the target's keys in it."""
    [(source_id, server), _] = world.sources
    server.execute(
        "CREATE DATABASE cmp_solo_01",
        "CREATE TABLE cmp_solo_01.order_01 (id VARCHAR(20) COLLATE utf8mb4_general_ci, at DATE, name VARCHAR(40), "
        "PRIMARY KEY (id, at)) DEFAULT CHARSET=utf8mb4",
        *(f"INSERT INTO cmp_solo_01.order_01 VALUES ('Key {at}', '2024-01-0{1 + at % 9}', 'x')" for at in range(300)),
    )
    family = Family("cmp_solo", ((source_id, server),), world.target, tables=1)
    task = "\n".join(line for line in family.task().splitlines() if "column-mapping-rules" not in line)
    world.cluster.start_task(task[: task.index("column-mappings:")])
    world.cluster.wait_replicating("cmp_solo")
    done = compare(world, "cmp_solo")
    assert (done.answer.code, done.rows) == (0, 300), done.answer.text
    assert [table["extraUnsought"] for table in done.answer.json["tables"]] == [""]
    world.target.execute(
        "INSERT INTO cmp_solo.orders VALUES ('Key 999', '2024-01-01', 'x')",
        "UPDATE cmp_solo.orders SET id = 'KEY 9' WHERE id = 'Key 9'",
        "UPDATE cmp_solo.orders SET at = '2025-01-01' WHERE id = 'Key 20'",
    )
    done = compare(world, "cmp_solo")
    assert done.answer.code == 1, done.answer.text
    kinds = {(line["kind"], line["key"]["id"], line["key"]["at"]) for line in done.lines}
    assert kinds == {
        ("extra", "Key 999", "2024-01-01"),
        ("missing", "Key 9", "2024-01-01"),
        ("extra", "KEY 9", "2024-01-01"),
        ("missing", "Key 20", "2024-01-03"),
        ("extra", "Key 20", "2025-01-01"),
    }
    done = compare(world, "cmp_solo", "--repair")
    assert done.answer.code == 0, f"{done.answer.text}\n{done.lines}"
    done = compare(world, "cmp_solo")
    assert (done.answer.code, done.lines) == (0, []), done.answer.text
    world.cluster.dmctl("stop-task", "cmp_solo")


def test_a_row_that_the_target_changes_when_it_is_repaired_is_still_different(world: World) -> None:
    """Only what is equal when it is read again counts as repaired."""
    name = "cmp_trigger"
    family = world.family(name, tables=1)
    started(world, family, 20, FINE)
    [(first,), (second,), (third,)] = world.target.query(f"SELECT id FROM {name}.orders ORDER BY id LIMIT 3")
    world.target.execute(
        f"UPDATE {name}.orders SET name = 'planted' WHERE id IN ({first}, {second})",
        f"DELETE FROM {name}.orders WHERE id = {third}",
        f"CREATE TRIGGER {name}.changes BEFORE INSERT ON {name}.orders FOR EACH ROW "
        f"SET NEW.name = IF(NEW.id = {second}, 'changed', NEW.name)",
    )
    done = compare(world, name, "--repair")
    assert done.answer.code == 1, done.answer.text
    assert "3 differences found, 2 repaired, 1 left" in done.answer.text
    assert {(int(line["key"]["id"]), line["repaired"]) for line in done.lines} == {
        (first, True),
        (second, False),
        (third, True),
    }
    [reason] = [line["notRepaired"] for line in done.lines if "notRepaired" in line]
    assert "when it was read again it differs in name" in reason
    world.target.execute(f"DROP TRIGGER {name}.changes")
    done = compare(world, name, "--repair")
    assert (done.answer.code, len(done.lines), done.total("repaired")) == (0, 1, 1), done.answer.text
    world.cluster.dmctl("stop-task", name)


@contextmanager
def comparing(world: World, task: str, *options: str) -> Generator[subprocess.Popen[str]]:
    """Run dmctl compare, at most for the duration of the block."""
    addresses = ",".join(master.address for master in world.cluster.masters)
    with subprocess.Popen(
        [command("dmctl"), "--master-addr", addresses, "--output", "json", "compare", task, *options],
        cwd=world.directory,
        env={**os.environ, "SHARDMERGE_SECRET_KEY": str(world.cluster.masters[0].key)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_tables_without_a_key_are_compared_as_a_whole(world: World) -> None:
    """Equal rows count as often as they are there, those of both sources together."""
    family = world.family("cmp_nokey", tables=2)
    for number, (_, server) in enumerate(world.sources):
        server.execute(
            "CREATE DATABASE cmp_nokey_01",
            *(
                statement
                for table in ("order_01", "order_02")
                for statement in (
                    f"CREATE TABLE cmp_nokey_01.{table} (n INT NULL, f DOUBLE NULL, note VARCHAR(40) NULL)",
                    f"INSERT INTO cmp_nokey_01.{table} VALUES (1, 0.1, 'same'), (1, 0.1, 'same'), (NULL, NULL, NULL), "
                    f"({number + 5}, -2.5, '{table}')",
                )
            ),
        )
    lines = family.task().splitlines()
    text = "\n".join(line for line in lines[: lines.index("column-mappings:")] if "column-mapping" not in line) + "\n"
    world.cluster.start_task(text)
    world.cluster.wait_replicating(family.name)
    world.settle([family.name])
    for _, server in world.sources:
        server.execute("INSERT INTO cmp_nokey_01.order_01 VALUES (9, 9.5, 'later')")
    done = compare(world, family.name)
    assert done.answer.code == 0, done.answer.text
    assert done.rows == 18
    assert {table["notCompared"] for table in done.answer.json["tables"]} == {""}
    done = compare(world, family.name, "--table", "cmp_nokey_01.order_01")
    assert done.answer.code == 2, done.answer.text
    assert "2 of the target's 4 shard tables were read" in done.answer.text

    changes = (
        ("UPDATE cmp_nokey.orders SET note = 'SAME' WHERE note = 'same' LIMIT 1", (0, 0, 1)),
        ("DELETE FROM cmp_nokey.orders WHERE n IS NULL LIMIT 1", (1, 0, 0)),
        ("INSERT INTO cmp_nokey.orders VALUES (1, 0.1, 'same'), (1, 0.1, 'same')", (0, 1, 0)),
    )
    for change, counts in changes:
        world.target.execute(change)
        done = compare(world, family.name)
        assert done.answer.code == 1, done.answer.text
        assert tuple(map(done.total, ("missing", "extra", "different"))) == counts, done.answer.text
    assert "18 rows in the shard tables, 19 at the target; rows differ" in done.answer.text
    world.cluster.dmctl("stop-task", family.name)


def test_tables_without_a_key_that_change_all_the_time_are_unjudged(world: World) -> None:
    family = world.family("cmp_nokey_live", tables=1)
    for _, server in world.sources:
        # Reading the sums takes many times as long as the pause between two changes.
        server.execute(
            "CREATE DATABASE cmp_nokey_live_01",
            "USE cmp_nokey_live_01",
            "CREATE TABLE order_01 (n INT, filler CHAR(200))",
            "INSERT INTO order_01 SELECT seq, 'x' FROM seq_1_to_100000",
        )
    lines = family.task().splitlines()
    text = "\n".join(line for line in lines[: lines.index("column-mappings:")] if "column-mapping" not in line) + "\n"
    world.cluster.start_task(text)
    world.cluster.wait_replicating(family.name)
    over = threading.Event()
    server = world.sources[0][1]

    def write() -> None:
        connection = server.connect()
        with connection.cursor() as cursor:
            while not over.wait(0.005):
                cursor.execute("INSERT INTO cmp_nokey_live_01.order_01 VALUES (1, 'y')")
                connection.commit()
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = compare(world, family.name)
        left_out = compare(world, family.name, "--leave-out", "cmp_nokey_live.orders")
        unknown = compare(world, family.name, "--leave-out", "cmp_nokey_live.order")
    finally:
        over.set()
        writer.join()
    assert done.answer.code == 2, done.answer.text
    assert done.total("unjudged") == 1, done.answer.text
    assert "not everything could be judged: cmp_nokey_live.orders (" in str(done.answer.json["msg"])
    assert "it has no key, and its rows changed" in done.answer.text
    assert left_out.answer.code == 0, left_out.answer.text
    assert left_out.answer.json["msg"] == "no differences; left out: cmp_nokey_live.orders"
    assert unknown.answer.code == 2 and "cmp_nokey_live.order" in unknown.answer.text
    world.settle([family.name])
    done = compare(world, family.name)
    assert done.answer.code == 0, done.answer.text
    world.cluster.dmctl("stop-task", family.name)


def test_lanes_that_lag_are_waited_for(world: World) -> None:
    """Ctrl-C ends the wait, at the worker too."""
    family = world.family("cmp_behind", tables=2)
    started(world, family, 100)
    [(_, server), _] = world.sources
    hooks = world.cluster.hooks
    for lane in range(2):
        hooks.hold(f"lane{lane}.commit")
    hooks.hold("compare.lanes_behind")
    server.execute("UPDATE cmp_behind_01.order_01 SET note = 'held up'")

    def is_running() -> bool:
        # This table has no differences: the command would not wait.
        done = compare(world, family.name, "--table", "cmp_behind_01.order_02")
        assert done.answer.code == 0 or str(errors.compare.ALREADY_RUNNING.code) in done.answer.text, done.answer.text
        return done.answer.code != 0

    with comparing(world, family.name) as running:
        hooks.reached("compare.lanes_behind")
        assert is_running()
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=300)
        assert running.returncode == 130, said
    hooks.release("compare.lanes_behind")
    until(lambda: not is_running(), "the comparison has ended at the worker")
    hooks.hold("compare.lanes_behind")
    with comparing(world, family.name) as running:
        hooks.reached("compare.lanes_behind")
        hooks.release_all()
        said, _ = running.communicate(timeout=300)
        assert running.returncode == 0, said
    world.cluster.dmctl("stop-task", family.name)
