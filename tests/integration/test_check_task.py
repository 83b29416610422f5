"""Tests check-task and start-task through real daemons: what they refuse, and which checks can be ignored."""

from __future__ import annotations

from tests.support.cluster import Answer, Json
from tests.support.world import Family, World
from tests.support.writer import fill


def _checks(answer: Answer, item: str) -> list[Json]:
    found: list[Json] = answer.json["checkResult"]
    return [one for one in found if one["name"] == item]


def _unmapped(family: Family, *ignored: str) -> str:
    """Return the task file without `partition id`: the sources' ids collide."""
    lines = family.task().split("\n")
    kept = [line for line in lines if "column-mapping-rules" not in line]
    text = "\n".join(kept[: kept.index("column-mappings:")]) + "\n"
    return text + (f"ignore-checking-items: [{', '.join(ignored)}]\n" if ignored else "")


def test_every_item_is_reported(world: World) -> None:
    family = world.family("told")
    family.create(200)
    answer = world.cluster.dmctl("check-task", world.cluster.write("told.yaml", family.task()), check=False)
    assert answer.code == 0, answer.text
    spark, other = _checks(answer, "spark")
    assert {spark["source"], other["source"]} == {"mysql-01", "mysql-02"}
    assert "of 16 free" in spark["desc"]
    for item in ("clock_skew", "relay_disk", "conn_number", "duplicate_keys", "gtid_gaps", "binlog_retention"):
        assert {one["source"] for one in _checks(answer, item)} >= {"mysql-01"}, item
        assert {one["state"] for one in _checks(answer, item)} <= {"success", "warn"}, item
    assert "does not apply here" in _checks(answer, "empty_region")[0]["desc"]


def test_keys_of_two_sources_are_refused_before_anything_is_copied(world: World) -> None:
    family = world.family("twice", tables=1)
    family.create(500)  # ids collide between all of them
    path = world.cluster.write("twice.yaml", _unmapped(family))
    for more in ((), ("--prove-keys",)):
        answer = world.cluster.dmctl("check-task", path, *more, check=False)
        assert answer.code == 1
        [failure] = [one for one in _checks(answer, "duplicate_keys") if one["state"] == "fail"]
        assert failure["code"] == 12023
        assert (
            "mysql-01 twice_01.order_01" in failure["errorMsg"] and "mysql-02 twice_01.order_01" in failure["errorMsg"]
        )
    refused = world.cluster.dmctl("start-task", path, check=False)
    assert refused.code == 1 and "60307 pre-check-failed" in refused.text
    assert [one["code"] for one in _checks(refused, "duplicate_keys")] == [12023]
    assert world.target.query("SHOW DATABASES LIKE 'twice'") == []
    passed_over = world.cluster.write("twice-2.yaml", _unmapped(family, "duplicate_keys"))
    answer = world.cluster.dmctl("check-task", passed_over, check=False)
    assert answer.code == 0, answer.text
    assert _checks(answer, "duplicate_keys") == []


def test_all_keys_of_a_mapped_task_are_proven(world: World) -> None:
    """The sources have no common range of ids, so nothing is read. Text keys of two servers of one version can be
    proven."""
    family = world.family("proof", tables=1)
    family.create(10)
    for number, (_, server) in enumerate(family.sources, 1):
        server.execute(
            "DROP TABLE proof_01.order_01",
            "CREATE TABLE proof_01.order_01 (id varchar(40) PRIMARY KEY, v int)",
            f"INSERT INTO proof_01.order_01 SELECT CONCAT('k', seq * 2 + {number}), 0 FROM proof_01.seq_1_to_5000",
        )
    path = world.cluster.write("proof.yaml", _unmapped(family))
    answer = world.cluster.dmctl("check-task", path, "--prove-keys", check=False)
    assert answer.code == 0, answer.text
    assert "all 10000 keys were read, none exists twice" in _checks(answer, "duplicate_keys")[0]["desc"]
    family.sources[1][1].execute("INSERT INTO proof_01.order_01 VALUES ('K4001', 0)")
    answer = world.cluster.dmctl("check-task", path, "--prove-keys", check=False)
    assert [one["code"] for one in _checks(answer, "duplicate_keys") if one["state"] == "fail"] == [12023]
    # The error of a worker that cannot prove a key is returned unchanged.
    for _, server in family.sources:
        server.execute("ALTER TABLE proof_01.order_01 ADD f double, ADD UNIQUE (f)")
    answer = world.cluster.dmctl("check-task", path, "--prove-keys", check=False)
    assert {one["code"] for one in _checks(answer, "duplicate_keys") if one["code"]} == {12023, 12024}


def test_a_second_task_into_the_rows_of_the_first(world: World) -> None:
    family = world.family("full")
    family.create(100)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating("full")
    again = world.cluster.dmctl("check-task", world.cluster.write("full-2.yaml", family.task("second")), check=False)
    assert again.code == 1
    assert {one["code"] for one in _checks(again, "downstream_table_empty")} == {12037}
    # The task itself continues from its records.
    world.cluster.dmctl("stop-task", "full")
    own = world.cluster.write("full-3.yaml", family.task())
    assert world.cluster.dmctl("check-task", own, check=False).code == 0
    # A new copy first removes the task's own rows.
    anew = world.cluster.dmctl("start-task", own, "--remove-meta")
    assert {one["code"] for one in _checks(anew, "downstream_table_empty")} == {12082}
    world.judge(family)
    world.cluster.dmctl("stop-task", "full")


def test_a_task_that_began_without_a_copy_continues_as_one_with_a_copy(world: World) -> None:
    """With task-mode incremental no record names a copy, but the rows are the task's own."""
    family = world.family("gap")
    family.create(0)
    world.cluster.start_task(family.task(mode="incremental"))
    world.cluster.wait_replicating("gap")
    for shard in family.shard_tables():
        fill(shard, 3, 1)
    world.settle(["gap"])
    world.cluster.dmctl("stop-task", "gap")
    path = world.cluster.write("gap.task.yaml", family.task())
    assert _checks(world.cluster.dmctl("check-task", path), "downstream_table_empty")[0]["state"] == "success"
    world.cluster.dmctl("start-task", path)
    world.judge(family)
    world.cluster.dmctl("stop-task", "gap")
