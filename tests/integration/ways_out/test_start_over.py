"""Tests start-task --remove-meta for one source: its own rows are removed and copied again, no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.ways_out.printed import Operator, Printed
from tests.support.world import Family, World

ONE, TWO = "mysql-01", "mysql-02"


def _started(world: World, name: str, rows: int = 600, text: str = "") -> tuple[Family, Operator]:
    family = world.family(name)
    family.create(rows)
    file = world.cluster.write(f"{name}.task.yaml", text or family.task())
    world.cluster.start_task(text or family.task())
    world.cluster.wait_replicating(name)
    return family, Operator(world.cluster, name, file)


def _without_ids(family: Family) -> str:
    """Return the task file without `partition id`; the ids of the sources' rows must not collide."""
    lines = family.task().split("\n")
    kept = [line for line in lines if "column-mapping-rules" not in line]
    return "\n".join(kept[: kept.index("column-mappings:")]) + "\n"


def _with_texts(family: Family) -> str:
    """Return the task file without `partition id`, with columns of the names of table and source. Ids collide."""
    route = f"    target-schema: {family.name}\n    target-table: orders\n"
    extract = (
        '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
        '    extract-source: {source-regexp: "mysql-(.*)", target-column: c_source}\n'
    )
    text = _without_ids(family)
    assert route in text
    return text.replace(route, route + extract)


def _judge_texts(world: World, family: Family) -> None:
    """Check the rows of each shard table by the texts that they have at the target."""
    world.settle([family.name])
    columns = "id, customer, amount, state, token, created"
    count = 0
    for source, server in family.sources:
        for table in ("01", "02"):
            rows = server.query(f"SELECT {columns} FROM {family.name}_01.order_{table} ORDER BY id")
            assert rows == world.target.query(
                f"SELECT {columns} FROM {family.name}.orders "
                f"WHERE c_source = '{source.removeprefix('mysql-')}' AND c_table = '{table}' ORDER BY id"
            )
            count += len(rows)
    assert _count(world, f"{family.name}.orders") == count
    assert world.cluster.compare(family.name).rows == count


def _purged(world: World, family: Family) -> None:
    """The first source changes rows and removes that binlog while no worker runs, and the relay logs are lost."""
    cluster, server = world.cluster, world.sources[0][1]
    for worker in cluster.workers:
        worker.kill()
    server.execute(
        f"DELETE FROM {family.name}_01.order_01 WHERE id % 3 = 0",
        f"UPDATE {family.name}_01.order_02 SET amount = 7",
        f"INSERT INTO {family.name}_01.order_01 (id, customer, amount, state, token, created) "
        "VALUES (900001, 'purged', 1, 'new', '', '2024-01-01')",
    )
    server.purge()
    for worker in cluster.workers:
        shutil.rmtree(cluster.directory / f"{worker.name}-relay", ignore_errors=True)
    for worker in cluster.workers:
        worker.start()


def _count(world: World, table: str) -> int:
    return int(str(world.target.query(f"SELECT COUNT(*) FROM {table}")[0][0]))


def test_only_the_rows_of_the_source_are_copied_again(world: World) -> None:
    family, operator = _started(world, "over_one")
    cluster, server = world.cluster, world.sources[0][1]
    cluster.dmctl("stop-task", "over_one", "-s", ONE)
    server.execute("DELETE FROM over_one_01.order_01 WHERE id % 3 = 0", "UPDATE over_one_01.order_02 SET amount = 7")
    answer = cluster.dmctl("start-task", operator.file, "--remove-meta", "-s", ONE)
    assert 12082 in [int(check["code"]) for check in answer.json["checkResult"]], answer.text
    world.judge(family)
    cluster.dmctl("stop-task", "over_one")


def test_a_removal_that_is_killed_is_continued_without_the_option(world: World) -> None:
    """After the removal has begun, the records of the earlier run must not be continued: rows would be missing."""
    family, operator = _started(world, "over_kill")
    cluster, hooks = world.cluster, world.cluster.hooks
    cluster.dmctl("stop-task", "over_kill", "-s", ONE)
    hooks.hold("start_over.deleted")
    cluster.dmctl("start-task", operator.file, "--remove-meta", "-s", ONE, check=False)
    hooks.reached("start_over.deleted")
    for worker in cluster.workers:
        worker.kill()
    hooks.release_all()
    assert _count(world, "over_kill.orders") == 1800
    for worker in cluster.workers:
        worker.start()
    cluster.dmctl("stop-task", "over_kill", "-s", ONE)
    cluster.dmctl("start-task", operator.file, "-s", ONE)
    world.judge(family)
    cluster.dmctl("stop-task", "over_kill")


@pytest.mark.parametrize("keys", ["auto", "never"])
def test_rows_are_identified_by_extracted_columns(world: World, keys: str) -> None:
    """The binlog is purged, and the way out is followed as it is printed; with the columns in the key, and without a
    key."""
    name = f"over_text_{keys}"
    family = world.family(name)
    family.create(600)
    if keys == "never":
        for _, server in family.sources:
            for table in (1, 2):
                server.execute(f"ALTER TABLE {name}_01.order_0{table} MODIFY id BIGINT NOT NULL, DROP PRIMARY KEY")
    text = _with_texts(family)
    file = world.cluster.write(f"{name}.task.yaml", text)
    world.cluster.start_task(text)
    world.cluster.wait_replicating(name)
    operator = Operator(world.cluster, name, file)
    _judge_texts(world, family)
    _purged(world, family)
    printed = operator.stopped(20001, ONE, or_code=20011)
    operator.runs(printed, "stop-task")
    answer = operator.runs(printed, "start-task")
    assert 12082 in [int(check["code"]) for check in answer.json["checkResult"]], answer.text
    world.cluster.wait_replicating(name)
    world.sources[0][1].execute(f"UPDATE {name}_01.order_01 SET amount = amount + 1 WHERE id % 7 = 0")
    _judge_texts(world, family)
    if keys == "auto":
        # The lanes of the second source have committed nothing since its relay log was lost.
        world.target.execute(f"UPDATE {name}.orders SET amount = 5 WHERE c_source = '02' AND id < 4")
        assert world.cluster.compare(name, "--repair", check=False).total("repaired") == 6
        _judge_texts(world, family)
    world.cluster.dmctl("stop-task", name)


def _fill_apart(family: Family) -> None:
    """Create the shard tables, with keys that no other one has."""
    family.create(0)
    for number, (_, server) in enumerate(family.sources):
        for table in (1, 2):
            first = number * 100_000 + table * 10_000
            server.execute(
                f"INSERT INTO {family.name}_01.order_0{table} (id, customer, amount, state, token, created) "
                f"SELECT seq, 'c', 1, 'new', '', '2024-01-01' FROM {family.name}_01.seq_{first}_to_{first + 50}"
            )


def test_a_way_out_that_would_be_refused_is_not_printed(world: World) -> None:
    """The binlog is purged, and nothing separates the rows of the two sources: all of them are copied again."""
    name = "over_all"
    family = world.family(name)
    _fill_apart(family)
    text = _without_ids(family)
    file = world.cluster.write(f"{name}.task.yaml", text)
    world.cluster.start_task(text)
    world.cluster.wait_replicating(name)
    operator = Operator(world.cluster, name, file)
    world.settle([name])
    _purged(world, family)
    printed = operator.stopped(20001, ONE, or_code=20011)
    assert "--remove-meta -s" not in printed.way_out
    assert f"empty {name}.orders at the target" in printed.way_out
    operator.runs(printed, "query-status")
    operator.runs(printed, "stop-task")
    world.target.execute(f"DELETE FROM {name}.orders")
    operator.runs(printed, "start-task")
    world.settle([name])
    assert _sums(world, family) == world.target.query(f"SELECT COUNT(*), SUM(id) FROM {name}.orders")[0]
    world.cluster.dmctl("stop-task", name)


def _not_forgotten(operator: Operator, *words: str) -> Printed:
    """Run a command that must be refused with 60316."""
    answer = operator.cluster.dmctl(*words, check=False)
    message, found, way_out = answer.text.partition("what to do: ")
    assert found and "error: [60316 " in message, answer.text
    return Printed(60316, message, way_out)


def test_the_records_of_one_source_are_not_removed_alone(world: World) -> None:
    """60316 prints the commands that copy one source again, checked for this task."""
    family, operator = _started(world, "over_some")
    printed = _not_forgotten(operator, "stop-task", "over_some", "--remove-meta", "-s", ONE)
    operator.runs(printed, "stop-task", 1)
    operator.runs(printed, "start-task")
    world.judge(family)
    world.cluster.dmctl("stop-task", "over_some")
    # A task that is stopped is known by its file.
    printed = _not_forgotten(operator, "stop-task", operator.file, "--remove-meta", "-s", ONE)
    assert f"--remove-meta -s {ONE}" in printed.way_out


def test_a_refusal_prints_no_way_out_that_would_be_refused(world: World) -> None:
    """60316 where nothing separates the rows of the sources."""
    name = "over_none"
    family = world.family(name)
    _fill_apart(family)
    text = _without_ids(family)
    operator = Operator(world.cluster, name, world.cluster.write(f"{name}.task.yaml", text))
    world.cluster.start_task(text)
    world.cluster.wait_replicating(name)
    for words in ((name,), (operator.file,)):
        printed = _not_forgotten(operator, "stop-task", *words, "--remove-meta", "-s", ONE)
        assert "--remove-meta -s" not in printed.way_out
        assert f"empty {name}.orders at the target" in printed.way_out
    operator.runs(printed, "stop-task", 1)
    world.target.execute(f"DELETE FROM {name}.orders")
    operator.runs(printed, "start-task")
    world.settle([name])
    assert _sums(world, family) == world.target.query(f"SELECT COUNT(*), SUM(id) FROM {name}.orders")[0]
    world.cluster.dmctl("stop-task", name)
    printed = _not_forgotten(operator, "stop-task", operator.file, "--remove-meta", "-s", ONE)
    assert "--remove-meta -s" not in printed.way_out


def test_rows_that_cannot_be_identified_stop_it(world: World) -> None:
    """Without `partition id` the rows of two sources are mixed: all sources start again, and the table is emptied."""
    family = world.family("over_mixed")
    _fill_apart(family)
    text = _without_ids(family)
    file = world.cluster.write("over_mixed.task.yaml", text)
    world.cluster.start_task(text)
    world.cluster.wait_replicating("over_mixed")
    operator = Operator(world.cluster, "over_mixed", file)
    world.cluster.dmctl("stop-task", "over_mixed", "-s", ONE)
    printed = operator.refused(12080, "start-task", file, "--remove-meta", "-s", ONE)
    assert "empty over_mixed.orders" in printed.way_out
    operator.runs(printed, "start-task", 0)
    world.cluster.wait_replicating("over_mixed")
    operator.runs(printed, "stop-task")
    world.target.execute("DELETE FROM over_mixed.orders")
    operator.runs(printed, "start-task", 1)
    world.settle(["over_mixed"])
    assert _sums(world, family) == world.target.query("SELECT COUNT(*), SUM(id) FROM over_mixed.orders")[0]
    world.cluster.dmctl("stop-task", "over_mixed")


def _sums(world: World, family: Family) -> tuple[object, ...]:
    found = [
        server.query(f"SELECT COUNT(*), SUM(id) FROM {family.name}_01.order_0{table}")[0]
        for _, server in world.sources
        for table in (1, 2)
    ]
    return (sum(int(str(count)) for count, _ in found), sum(int(str(total)) for _, total in found))


def test_a_target_that_was_emptied_for_one_source(world: World) -> None:
    """The rows of the other source would be missing, and both would be shown as synced."""
    family, operator = _started(world, "over_empty")
    cluster = world.cluster
    cluster.dmctl("stop-task", "over_empty", "-s", ONE)
    world.target.execute("TRUNCATE TABLE over_empty.orders")
    printed = operator.refused(12081, "start-task", operator.file, "--remove-meta", "-s", ONE)
    assert "1200 row(s) of source(s) mysql-02" in printed.message
    operator.runs(printed, "stop-task")
    operator.runs(printed, "start-task")
    world.judge(family)
    cluster.dmctl("stop-task", "over_empty")


def test_another_mapping_leaves_no_rows_twice(world: World) -> None:
    family, operator = _started(world, "over_map")
    cluster = world.cluster
    cluster.dmctl("stop-task", "over_map")
    other = family.task().replace('arguments: ["1",', 'arguments: ["3",')
    file = cluster.write("over_map.other.yaml", other)
    printed = Operator(world.cluster, "over_map", file).refused(12080, "start-task", file, "--remove-meta")
    assert "the column mapping or the extracted columns of" in printed.message
    operator.runs(printed, "start-task")
    cluster.dmctl("start-task", operator.file, "-s", TWO)
    world.judge(family)
    cluster.dmctl("stop-task", "over_map")
    assert Path(file).exists()
