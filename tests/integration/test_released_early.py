"""Tests a shard table that is released after it was recorded as parked, but before the driver's process has noted
it."""

from __future__ import annotations

import pytest

from tests.support.database import Database
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import World

pytestmark = pytest.mark.turns

_NAME = "early"
_ALTER = "ADD COLUMN extra INT NOT NULL DEFAULT 7"
_MOMENT = "ddl.passed"
"""At this moment the statement is recorded as executed; in the worker's memory its table is not parked yet."""


def _released(target: Database, source: str) -> bool:
    found = target.query(f"SELECT parked FROM dm_meta.parked_table WHERE task = '{_NAME}' AND source = '{source}'")
    return any('"released":true' in str(text) for (text,) in found)


def _waiting(target: Database) -> int:
    return len(target.query(f"SELECT 1 FROM dm_meta.parked_table WHERE task = '{_NAME}'"))


def test_its_rows_come_up_all_the_same(world: World) -> None:
    (first_id, first), (second_id, second) = world.sources
    hooks, target = world.cluster.hooks, world.target
    for number, server in enumerate((first, second), 1):
        server.execute(
            f"CREATE DATABASE {_NAME}_s",
            *(f"CREATE TABLE {_NAME}_s.{table} (id INT PRIMARY KEY, n INT)" for table in "ab"),
            *(f"INSERT INTO {_NAME}_s.{table} VALUES ({number}, 0)" for table in "ab"),
        )
    world.cluster.start_task(_task(target, (first_id, second_id)))
    world.cluster.wait_replicating(_NAME)
    # One of the locks is only a trigger: the first source is parked at both, the second has reached neither.
    first.execute(*(f"ALTER TABLE {_NAME}_s.{table} {_ALTER}" for table in "ab"))
    until(lambda: _waiting(target) == 2, "the first source's tables wait")
    until(lambda: len(locks_of(world, _NAME) or ()) == 2, "both are told")
    hooks.hold(_MOMENT)
    second.execute(f"ALTER TABLE {_NAME}_s.a {_ALTER}", f"INSERT INTO {_NAME}_s.a VALUES (12, 1, 2)")
    hooks.reached(_MOMENT)
    # Any change of the task's locks makes the second source's worker read its records.
    world.cluster.dmctl("shard-ddl-lock", "unlock", f"{_NAME}-`{_NAME}`.`b`")
    until(lambda: _released(target, second_id), "the table is let go on")
    hooks.release(_MOMENT)
    until(
        lambda: target.query(f"SELECT id, n, extra FROM {_NAME}.a ORDER BY id") == [(1, 0, 7), (2, 0, 7), (12, 1, 2)],
        "its rows are at the target",
    )
    until(lambda: _waiting(target) == 0, "nobody waits any more")
    second.execute(f"INSERT INTO {_NAME}_s.a VALUES (13, 3, 3)")
    world.cluster.wait_caught_up(_NAME, dict(world.sources))
    assert target.query(f"SELECT n FROM {_NAME}.a WHERE id = 13") == [(3,)]


def _task(target: Database, sources: tuple[str, ...]) -> str:
    instances = "".join(
        f"  - {{source-id: {source}, block-allow-list: own, route-rules: [all]}}\n" for source in sources
    )
    return f"""\
name: {_NAME}
task-mode: all
shard-mode: pessimistic
meta-schema: dm_meta
target-database: {target.login}
mysql-instances:
{instances}block-allow-list:
  own: {{do-dbs: [{_NAME}_s]}}
routes:
  all: {{schema-pattern: {_NAME}_s, target-schema: {_NAME}}}
"""
