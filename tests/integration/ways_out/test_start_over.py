"""Tests start-task --remove-meta for one source: its own rows are removed and copied again, no others."""

from __future__ import annotations

from pathlib import Path

from tests.integration.ways_out.printed import Operator
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


def test_rows_that_cannot_be_identified_stop_it(world: World) -> None:
    """Without `partition id` the rows of two sources are mixed: all sources start again, and the table is emptied."""
    family = world.family("over_mixed")
    family.create(0)
    for number, (_, server) in enumerate(family.sources):
        for table in (1, 2):
            first = number * 100_000 + table * 10_000
            server.execute(
                f"INSERT INTO over_mixed_01.order_0{table} (id, customer, amount, state, token, created) "
                f"SELECT seq, 'c', 1, 'new', '', '2024-01-01' FROM over_mixed_01.seq_{first}_to_{first + 50}"
            )
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
    assert "the column mapping of" in printed.message
    operator.runs(printed, "start-task")
    cluster.dmctl("start-task", operator.file, "-s", TWO)
    world.judge(family)
    cluster.dmctl("stop-task", "over_map")
    assert Path(file).exists()
