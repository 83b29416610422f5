"""Tests a task with transforms during changes: tables are added and removed, the file changes, a comparison runs."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from tests.support.wait import until
from tests.support.world import World

pytestmark = pytest.mark.spark

NAME = "transformed_updates"
ALL = "*, upper(v) AS loud"


def file(world: World, *tables: str, projection: str = ALL, condition: str = "n >= 0") -> str:
    listed = ", ".join(f"{{db-name: {NAME}, tbl-name: {table}}}" for table in tables)
    return "\n".join(
        [
            *world.head_of_task(NAME, "route-rules: [r], transform-rules: [t]"),
            f"block-allow-list: {{own: {{do-tables: [{listed}]}}}}",
            "routes:",
            f"  r: {{schema-pattern: {NAME}, target-schema: {NAME}_merged}}",
            "transforms:",
            f'  t: {{schema-pattern: {NAME}, filter: "{condition}", projection: "{projection}"}}',
        ]
    )


def seen(world: World, table: str, columns: str = "id, v, loud, n") -> list[tuple[object, ...]]:
    return list(world.target.query(f"SELECT {columns} FROM {NAME}_merged.{table} ORDER BY id"))


def update(world: World, text: str, *options: str) -> str:
    """Return the text of an answer with an error; "" for success."""
    cluster = world.cluster
    answer = cluster.dmctl("update-task", cluster.write("updated.task.yaml", text), *options, check=False)
    return "" if answer.code == 0 else answer.text


def begin(world: World, text: str) -> None:
    """Start a task that a subtask refuses: the answer shows the error only if the subtask is faster than the answer."""
    world.cluster.dmctl("start-task", world.cluster.write("begun.task.yaml", text), check=False)


def test_a_table_joins_with_its_transform_and_changes_it_by_leaving(world: World) -> None:
    source, cluster = world.sources[0][1], world.cluster
    source.execute(f"CREATE DATABASE {NAME}")
    for table in ("a", "b"):
        source.execute(
            f"CREATE TABLE {NAME}.{table} (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
            f"INSERT INTO {NAME}.{table} VALUES (1, 'one', 1), (2, 'two', -2), (3, NULL, 3)",
        )
    cluster.start_task(file(world, "a"))
    cluster.wait_replicating(NAME)
    # A table joins with its history.
    assert update(world, file(world, "a", "b")) == ""
    cluster.wait_joined(NAME)
    source.execute(f"UPDATE {NAME}.b SET n = -n", f"UPDATE {NAME}.a SET v = 'uno' WHERE id = 1")
    world.settle([NAME])
    assert seen(world, "b") == [(2, "two", "TWO", 2)]
    assert seen(world, "a") == [(1, "uno", "UNO", 1), (3, None, None, 3)]
    # The comparison reports of each table that it is not compared, and why.
    compared = cluster.compare(NAME, check=False)
    assert compared.answer.text.count("transform t changes its rows") == 2, compared.answer.text
    # The target's rows were made by this transform: another one is refused.
    for other in (
        file(world, "a", "b", projection="*, lower(v) AS loud"),
        file(world, "a", "b", condition="n > 1"),
        file(world, "a", "b", projection="id, v, n"),
    ):
        for options in ((), ("--dry-run",)):
            said = update(world, other, *options)
            assert f"[{errors.replicate.UPDATE_REMAPS.code} " in said, said
    cluster.wait_joined(NAME)
    # The way out that the error names: remove the table, delete its rows, add it again.
    assert update(world, file(world, "a")) == ""
    cluster.wait_joined(NAME)
    world.target.execute(f"TRUNCATE {NAME}_merged.b")
    own = f'\n  own: {{schema-pattern: {NAME}, table-pattern: b, filter: "n < 2", projection: "*, lower(v) AS loud"}}'
    text = file(world, "a", "b").replace("transform-rules: [t]", "transform-rules: [t, own]") + own
    assert update(world, text) == ""
    cluster.wait_joined(NAME)
    source.execute(f"UPDATE {NAME}.b SET v = 'TRE', n = 0 WHERE id = 3", f"UPDATE {NAME}.a SET n = 0 WHERE id = 2")
    world.settle([NAME])
    assert seen(world, "b") == [(1, "one", "one", -1), (3, "TRE", "tre", 0)]
    assert seen(world, "a") == [(1, "uno", "UNO", 1), (2, "two", "TWO", 0), (3, None, None, 3)]
    # A start may use another projection; existing rows stay unchanged. It must not use another filter.
    cluster.dmctl("stop-task", NAME)
    begin(world, file(world, "a", "b", projection="*, lower(v) AS loud", condition="n > 0"))
    found = cluster.wait_subtasks(NAME, lambda sub: sub.stage == "Paused", "is paused")
    [[(code, message)]] = [sub.errors for sub in found.values()]
    assert code == errors.replicate.TRANSFORM_FILTER_CHANGED.code
    assert "n >= 0" in message
    cluster.dmctl("stop-task", NAME)
    cluster.start_task(text.replace("upper(v)", "concat(v, '?')"))
    cluster.wait_replicating(NAME)
    source.execute(f"UPDATE {NAME}.a SET v = 'dos' WHERE id = 2", f"DELETE FROM {NAME}.b WHERE id = 1")
    world.settle([NAME])
    assert seen(world, "a") == [(1, "uno", "UNO", 1), (2, "dos", "dos?", 0), (3, None, None, 3)]
    assert seen(world, "b") == [(3, "TRE", "tre", 0)]
    cluster.dmctl("stop-task", NAME)


def test_a_task_that_stops_between_chunks_keeps_to_the_filter(world: World) -> None:
    """The copy continues by the rules that it began with; the other filter is refused where the stream begins."""
    source, cluster = world.sources[0][1], world.cluster
    source.execute(f"CREATE OR REPLACE DATABASE {NAME}")
    world.target.execute(f"DROP DATABASE IF EXISTS {NAME}_merged")
    source.execute(
        f"CREATE TABLE {NAME}.c (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
        f"INSERT INTO {NAME}.c SELECT seq, seq, CAST(seq % 3 AS SIGNED) - 1 FROM {NAME}.seq_1_to_9000",
    )
    text = file(world, "c") + "\nsnapshot: {chunk-rows: 300, threads: 1, rows-per-second: 300}"
    cluster.hooks.hold("snapshot.after_commit")
    cluster.start_task(text, "--remove-meta")  # the previous test has left its checkpoint
    cluster.hooks.reached("snapshot.after_commit")
    cluster.dmctl("stop-task", NAME)
    cluster.hooks.release("snapshot.after_commit")
    assert 0 < len(seen(world, "c")) < 6000
    begin(world, text.replace("n >= 0", "n = 0").replace(", rows-per-second: 300", ""))
    found = cluster.wait_subtasks(NAME, lambda sub: sub.stage == "Paused", "is paused")
    assert [code for sub in found.values() for code, _ in sub.errors] == [
        errors.replicate.TRANSFORM_FILTER_CHANGED.code
    ]
    cluster.dmctl("stop-task", NAME)
    cluster.start_task(text)
    cluster.wait_replicating(NAME)
    until(lambda: len(seen(world, "c")) == 6000, "all is there")
    cluster.dmctl("stop-task", NAME)
