"""Tests shard tables of several sources that contradict each other, through real daemons."""

from __future__ import annotations

import pytest

from tests.support.cluster import Answer, Json
from tests.support.world import Family, World

_IGNORED = "ignore-checking-items: [schema_of_shard_tables]\n"


def _found(answer: Answer, *codes: int) -> list[Json]:
    return [one for one in answer.json["checkResult"] if one["code"] in codes]


def _alter(family: Family, source: int, clause: str) -> None:
    for table in range(1, family.tables + 1):
        family.sources[source][1].execute(f"ALTER TABLE {family.name}_01.order_{table:02d} {clause}")


@pytest.mark.turns
def test_types_without_a_common_one_are_refused_before_the_start(world: World) -> None:
    family, cluster = world.family("contradict"), world.cluster
    family.create(20)
    _alter(family, 1, "MODIFY amount VARCHAR(20) NOT NULL")
    path = cluster.write("contradict.yaml", family.task())
    for command in (("check-task", path), ("start-task", path), ("start-task", path, "-s", "mysql-01")):
        answer = cluster.dmctl(*command, check=False)
        assert answer.code == 1, answer.text
        [failure] = _found(answer, 12105)
        assert failure["state"] == "fail"
        for part in (
            "contradict.orders: no type of column amount",
            "amount decimal(12,2) in contradict_01.order_01 (source mysql-01)",
            "amount varchar(20) in contradict_01.order_01 (source mysql-02)",
        ):
            assert part in failure["errorMsg"], failure["errorMsg"]
    assert world.target.query("SHOW DATABASES LIKE 'contradict'") == []
    # The way out.
    _alter(family, 1, "MODIFY amount DECIMAL(12,2) NOT NULL")
    assert cluster.dmctl("check-task", path).code == 0
    cluster.dmctl("start-task", path)
    world.judge(family)
    cluster.dmctl("stop-task", "contradict")


@pytest.mark.turns
@pytest.mark.parametrize("mode", ["all", "full"])
def test_structures_are_read_again_while_nothing_is_copied(world: World, mode: str) -> None:
    """The operator changes the shard table's type, and resumes the task."""
    name = f"again_{mode}"
    family, cluster = world.family(name), world.cluster
    family.create(200)
    _alter(family, 1, "MODIFY amount VARCHAR(20) NOT NULL, ADD COLUMN old INT NULL FIRST")
    world.target.execute(f"CREATE DATABASE {name}")
    [(_, creation)] = family.sources[0][1].query(f"SHOW CREATE TABLE {name}_01.order_01")
    world.target.execute(str(creation).replace("`order_01`", f"{name}.orders", 1))
    path = cluster.write("again.yaml", family.task(mode=mode) + _IGNORED)
    cluster.dmctl("start-task", path, check=False)
    paused = cluster.wait_subtasks(
        name, lambda sub: sub.source != "mysql-02" or sub.stage == "Paused", "the second source is paused"
    )
    assert "40030" in str(paused["mysql-02"].raw) and "12105" in str(paused["mysql-02"].raw)
    family.sources[1][1].execute(f"DROP TABLE {name}_01.order_01", f"CREATE TABLE {name}_01.aside (id INT PRIMARY KEY)")
    family.sources[1][1].execute(f"CREATE TABLE {name}_01.order_01 LIKE {name}_01.order_02")
    _alter(family, 1, "MODIFY amount DECIMAL(12,2) NOT NULL, DROP COLUMN old")
    cluster.dmctl("resume-task", name, "-s", "mysql-02")
    if mode == "all":
        world.judge(family)
    else:
        cluster.wait_subtasks(name, lambda sub: sub.stage == "Finished", "both sources have finished")
        assert family.verdict().differences == 0
    cluster.dmctl("stop-task", name, check=False)


@pytest.mark.turns
def test_a_wider_type_is_no_contradiction(world: World) -> None:
    """Which source is first decides whether the created target fits: a warning, and create it by hand."""
    family, cluster = world.family("wider"), world.cluster
    family.create(20)
    _alter(family, 1, "MODIFY amount DECIMAL(20,2) NOT NULL")
    path = cluster.write("wider.yaml", family.task())
    answer = cluster.dmctl("check-task", path, check=False)
    assert answer.code == 0, answer.text
    [warning] = _found(answer, 12106)
    assert warning["state"] == "warn" and "amount" in warning["errorMsg"]
    world.target.execute("CREATE DATABASE wider")
    [(_, creation)] = family.sources[1][1].query("SHOW CREATE TABLE wider_01.order_01")
    world.target.execute(str(creation).replace("`order_01`", "wider.orders", 1))
    assert _found(cluster.dmctl("check-task", path), 12106) == []
    cluster.dmctl("start-task", path)
    world.judge(family)
    cluster.dmctl("stop-task", "wider")


def test_a_column_without_a_default_that_another_source_lacks(world: World) -> None:
    """No source can create a target that fits the other one."""
    family, cluster = world.family("lacks"), world.cluster
    family.create(20)
    _alter(family, 0, "ADD COLUMN own INT NOT NULL")
    path = cluster.write("lacks.yaml", family.task())
    answer = cluster.dmctl("check-task", path, check=False)
    assert answer.code == 1, answer.text
    [failure] = _found(answer, 12106)
    assert failure["state"] == "fail" and "own" in failure["errorMsg"]
    # The way out: a default at the target.
    world.target.execute("CREATE DATABASE lacks")
    [(_, creation)] = family.sources[0][1].query("SHOW CREATE TABLE lacks_01.order_01")
    world.target.execute(
        str(creation).replace("`order_01`", "lacks.orders", 1),
        "ALTER TABLE lacks.orders ALTER COLUMN own SET DEFAULT 7",
    )
    cluster.dmctl("start-task", path)
    cluster.wait_replicating("lacks")
    assert world.target.query("SELECT DISTINCT own FROM lacks.orders ORDER BY own") == [(0,), (7,)]
    cluster.dmctl("stop-task", "lacks")
