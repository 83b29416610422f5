"""The situations that errors describe, and what an operator does who follows the printed way out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import source_yaml
from tests.support.database import Database
from tests.support.wait import until
from tests.support.world import Family, World

ONE, TWO = "mysql-01", "mysql-02"


@dataclass(frozen=True, slots=True)
class Merge:
    """A running merge of two sources, two shard tables each. ``text``: of its task file."""

    world: World
    family: Family
    operator: Operator
    text: str

    def source(self, number: int) -> Database:
        return self.world.sources[number - 1][1]

    def target(self, *statements: str) -> None:
        """Run statements at the target: as another writer, or as an operator."""
        self.world.target.execute(*statements)

    @property
    def merged(self) -> str:
        return f"{self.family.name}.orders"

    def shard(self, table: int) -> str:
        return f"{self.family.name}_01.order_0{table}"

    def insert(self, source: int, table: int, customer: str) -> None:
        self.source(source).execute(
            f"INSERT INTO {self.shard(table)} (customer, amount, state, token, created) "
            f"VALUES ('{customer}', 1, 'new', '', '2024-01-01')"
        )

    def file(self, text: str) -> None:
        """Write the task file anew, at the same path."""
        self.world.cluster.write(f"{self.family.name}.task.yaml", text)


@dataclass(frozen=True, slots=True)
class WayOut:
    """``code``: of the error. ``situation``: what has happened. ``produce``: brings it about and returns the error as
    it is printed. ``follow``: does what the error prints, and returns what is to be judged if that has changed.
    ``text``: of the task file. ``tables``: shard tables of each source. ``sources``: the number of sources. ``part``:
    distinguishes several situations of one code."""

    code: int
    situation: str
    produce: Callable[[Merge], Printed]
    follow: Callable[[Merge, Printed], Family | None]
    text: Callable[[Family], str] = Family.task
    tables: int = 2
    sources: int = 2
    part: str = ""

    @property
    def name(self) -> str:
        return f"way_{self.code}{self.part}"


def _second(merge: Merge) -> tuple[Family, Operator]:
    """Another task of the same sources."""
    world, name = merge.world, merge.family.name.replace("way", "second")
    family = world.family(name)
    return family, Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml"))


def _purge(merge: Merge) -> Printed:
    """The source removes binlogs while no worker runs, and the relay logs are lost with their machine."""
    cluster, (second, _) = merge.world.cluster, _second(merge)
    second.create(50)
    cluster.start_task(second.task())
    cluster.wait_replicating(second.name)
    merge.world.settle([second.name])
    for worker in cluster.workers:
        worker.kill()
    merge.insert(1, 1, "purged")
    merge.source(1).execute(f"DELETE FROM {merge.shard(2)} WHERE id % 5 = 0")
    merge.source(1).purge()
    for worker in cluster.workers:
        shutil.rmtree(cluster.directory / f"{worker.name}-relay", ignore_errors=True)
    for worker in cluster.workers:
        worker.start()
    return merge.operator.stopped(20001, ONE)


def _copy_again(merge: Merge, printed: Printed) -> None:
    world, operator, (second, other) = merge.world, merge.operator, _second(merge)
    operator.runs(printed, "query-status")
    operator.runs(printed, "stop-task")
    # Too early: the other task still needs the purged binlog. No row may be removed.
    count = f"SELECT COUNT(*) FROM {merge.merged}"
    before = world.target.query(count)
    world.cluster.dmctl("start-task", operator.file, "--remove-meta", "-s", ONE, check=False)
    printed = operator.stopped(20001, ONE)
    assert world.target.query(count) == before
    for one in (operator, other):
        one.runs(printed, "stop-task")
    for one in (operator, other):
        one.runs(printed, "start-task")
    world.settle([second.name])
    assert second.verdict().differences == 0
    world.cluster.dmctl("stop-task", second.name)


def _lose_row(merge: Merge) -> Printed:
    """Another writer removes rows at the target, and the source changes one of them."""
    merge.target(f"DELETE FROM {merge.merged} ORDER BY id LIMIT 3")
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 5 ORDER BY id LIMIT 2")
    return merge.operator.stopped(40002, ONE)


def _skip_and_repair(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


def _repeat_value(merge: Merge) -> Printed:
    """Two shard tables have the same value of a key that is unique at the target."""
    merge.insert(1, 1, "first")
    merge.world.settle([merge.family.name])
    merge.target(
        f"ALTER TABLE {merge.merged} ADD COLUMN one VARCHAR(64) AS (IF(amount = 1, customer, NULL)) STORED UNIQUE"
    )
    merge.insert(2, 1, "first")
    return merge.operator.stopped(40012, TWO)


def _hold_and_change(merge: Merge, printed: Printed) -> None:
    """The error names the shard table of the other row, and prints its id."""
    owner = f"of `{merge.family.name}_01`.`order_01` of source {ONE}"
    assert owner in printed.message, printed.message
    [decoded] = merge.operator.runs(printed, "decode-id").json["ids"]
    assert (decoded["sources"], decoded["tables"]) == ([ONE], ["order_1"])
    merge.file(merge.text + "replicate: {on-row-error: quarantine}\n")
    merge.operator.runs(printed, "update-task")
    held = f"SELECT COUNT(*) FROM dm_meta.held_change WHERE task = '{merge.family.name}'"
    until(lambda: merge.world.target.query(held) == [(1,)], "the row is held", 120)
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET customer = 'changed' WHERE customer = 'first'")
    changed = f"SELECT COUNT(*) FROM {merge.merged} WHERE customer = 'changed'"
    until(lambda: merge.world.target.query(changed) == [(1,)], "the other row has changed", 120)
    merge.operator.runs(printed, "quarantine retry")
    merge.target(f"ALTER TABLE {merge.merged} DROP COLUMN one")


def _narrow(merge: Merge) -> Printed:
    """The merged table no longer holds every value of the shard tables."""
    cluster, name = merge.world.cluster, merge.family.name
    cluster.dmctl("pause-task", name)
    merge.target(f"ALTER TABLE {merge.merged} MODIFY note VARCHAR(90) NULL")
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET note = 'late' ORDER BY id LIMIT 5")
    cluster.dmctl("resume-task", name, check=False)
    return merge.operator.stopped(40030, ONE)


def _widen(merge: Merge, printed: Printed) -> None:
    merge.target(f"ALTER TABLE {merge.merged} MODIFY note VARCHAR(120) NULL")
    merge.operator.runs(printed, "resume-task")
    other = merge.operator.stopped(40030, TWO)
    merge.operator.runs(other, "resume-task")


def _lock_out(merge: Merge) -> Printed:
    """The password of the task's account at the target is changed."""
    cluster, name = merge.world.cluster, merge.family.name
    cluster.dmctl("pause-task", name)
    merge.target(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'now'", f"GRANT ALL ON *.* TO {name}@'127.0.0.1'")
    merge.file(as_account(merge, "now"))
    cluster.dmctl("update-task", merge.operator.file)
    cluster.dmctl("resume-task", name)
    cluster.wait_replicating(name)
    cluster.dmctl("pause-task", name)
    merge.target(f"ALTER USER {name}@'127.0.0.1' IDENTIFIED BY 'other'")
    merge.insert(1, 1, "later")
    cluster.dmctl("resume-task", name, check=False)
    return merge.operator.stopped(40020, ONE)


def as_account(merge: Merge, password: str) -> str:
    target = merge.world.target
    login = f"{{host: {target.host}, port: {target.port}, user: {merge.family.name}, password: {password}}}"
    return merge.text.replace(target.login, login)


def _correct_account(merge: Merge, printed: Printed) -> None:
    merge.file(as_account(merge, "other"))
    merge.operator.runs(printed, "update-task")


def _refuse_row(merge: Merge) -> Printed:
    """The target refuses one row by a constraint of its own."""
    merge.target(f"ALTER TABLE {merge.merged} ADD CONSTRAINT short CHECK (customer <> 'refused')")
    merge.insert(1, 1, "refused")
    return merge.operator.stopped(40060, ONE)


def _skip_then_accept(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")
    merge.world.settle([merge.family.name])
    merge.target(f"ALTER TABLE {merge.merged} DROP CONSTRAINT short")
    merge.operator.runs(printed, "compare")


def _foreign_row(merge: Merge) -> Printed:
    """Another writer inserts a row at the target, under an id of a shard table."""
    server, target = merge.source(1), merge.world.target
    [(following,)] = server.query(f"SELECT MAX(id) + 1 FROM {merge.shard(2)}")
    first = merge.family.shard_tables()
    assert first
    [(highest,)] = target.query(f"SELECT MAX(id) FROM {merge.merged} WHERE id < ({1 << 59} | {1 << 52} | {3 << 44})")
    target.execute(
        f"INSERT INTO {merge.merged} (id, customer, amount, state, token, created) "
        f"VALUES ({int(str(highest)) + 1}, 'foreign', 1, 'new', '', '2024-01-01')"
    )
    assert following is not None
    merge.insert(1, 2, "own")
    return merge.operator.stopped(40001, ONE)


def _remove_foreign(merge: Merge, printed: Printed) -> None:
    merge.target(f"DELETE FROM {merge.merged} WHERE customer = 'foreign'")
    merge.operator.runs(printed, "resume-task")


def _own_row(merge: Merge) -> Printed:
    """The target has an earlier row of the same shard table, because its removal is not in the binlog."""
    merge.source(1).execute(
        "SET SESSION sql_log_bin = 0",
        f"DELETE FROM {merge.shard(2)} WHERE id = 7",
        "SET SESSION sql_log_bin = 1",
        f"INSERT INTO {merge.shard(2)} (id, customer, amount, state, token, created) "
        "VALUES (7, 'again', 1, 'new', '', '2024-01-01')",
    )
    return merge.operator.stopped(40001, ONE)


def _skip_own_and_repair(merge: Merge, printed: Printed) -> None:
    """`partition id` proves that the row at the target is of this shard table: the comparison replaces it. Later
    changes are applied to it."""
    name, cluster = merge.family.name, merge.world.cluster
    found = re.search(r" at (\(\S+, \d+\)) ", printed.message)
    assert found is not None, printed.message
    merge.operator.runs(printed, "binlog skip", position=found[1])
    merge.world.settle([name])
    merge.operator.runs(printed, "compare")
    merge.source(1).execute(f"UPDATE {merge.shard(2)} SET customer = 'changed' WHERE id = 7")
    merge.world.settle([name])
    assert cluster.compare(name).total("different") == 0


def _source_password(merge: Merge) -> Printed:
    """The password of a source's account is changed."""
    cluster, server = merge.world.cluster, merge.source(2)
    server.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'now'", "GRANT ALL ON *.* TO reader@'127.0.0.1'")
    path = cluster.write("source-2.yaml", _reader(server, "now"))
    cluster.dmctl("operate-source", "update", path)
    cluster.wait_replicating(merge.family.name)
    cluster.dmctl("pause-task", merge.family.name, "-s", TWO)
    server.execute("ALTER USER reader@'127.0.0.1' IDENTIFIED BY 'other'")
    server.kill_threads("reader")
    merge.insert(2, 1, "later")
    cluster.dmctl("resume-task", merge.family.name, "-s", TWO, check=False)
    return merge.operator.stopped(20101, TWO)


def _reader(server: Database, password: str) -> str:
    return source_yaml(TWO, server, "reader", password) + _FILTERS


_FILTERS = """\
filters:
  - schema-pattern: source_filters
    table-pattern: t
    events: [delete, truncate table]
    action: Ignore
"""
"""As in tests/support/world.py: the filters of the second source."""


def _correct_source(merge: Merge, printed: Printed) -> None:
    cluster, server = merge.world.cluster, merge.source(2)
    path = cluster.write("source-2.yaml", _reader(server, "other"))
    merge.operator.runs(printed, "operate-source update", source_file=path)
    if any(one.stage == "Paused" for one in cluster.subtasks(merge.family.name).values()):
        merge.operator.runs(printed, "resume-task")


def _add_cascade(merge: Merge) -> Printed:
    """A foreign key begins to delete rows of a shard table, which the binlog does not show."""
    parent = f"{merge.family.name.replace('way', 'parent')}.p"
    merge.source(1).execute(
        f"CREATE DATABASE {parent.partition('.')[0]}",
        f"CREATE TABLE {parent} (customer VARCHAR(64) PRIMARY KEY) DEFAULT CHARSET=utf8mb4 "
        f"AS SELECT DISTINCT customer FROM {merge.shard(2)}",
        f"ALTER TABLE {merge.shard(2)} ADD CONSTRAINT up FOREIGN KEY (customer) REFERENCES {parent} (customer) "
        "ON DELETE CASCADE",
        f"DELETE FROM {parent} LIMIT 3",
    )
    return merge.operator.stopped(50065, ONE)


def _replace_cascade(merge: Merge, printed: Printed) -> None:
    parent = f"{merge.family.name.replace('way', 'parent')}.p"
    merge.source(1).execute(
        f"ALTER TABLE {merge.shard(2)} DROP FOREIGN KEY up",
        f"ALTER TABLE {merge.shard(2)} ADD CONSTRAINT down FOREIGN KEY (customer) REFERENCES {parent} (customer)",
    )
    merge.operator.runs(printed, "binlog skip")
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


WAYS_OUT = (
    WayOut(40002, "another writer has removed rows at the target", _lose_row, _skip_and_repair),
    WayOut(40012, "two shard tables have one value of a unique key", _repeat_value, _hold_and_change),
    WayOut(40030, "the merged table no longer fits", _narrow, _widen),
    WayOut(40001, "another writer has inserted a row at the target", _foreign_row, _remove_foreign),
    WayOut(40001, "an earlier row of the shard table is at the target", _own_row, _skip_own_and_repair, part="_own"),
    WayOut(40060, "the target refuses one row", _refuse_row, _skip_then_accept),
    WayOut(50065, "a foreign key of a shard table deletes rows by cascade", _add_cascade, _replace_cascade),
    WayOut(40020, "the password at the target has changed", _lock_out, _correct_account),
    WayOut(20101, "the password at the source has changed", _source_password, _correct_source),
    WayOut(20001, "the source has removed binlogs that a task needs", _purge, _copy_again),
)
"""In the order of the tests: what changes a source or its binlog is last, because the tests share the servers."""
