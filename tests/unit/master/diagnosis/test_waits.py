"""What is concluded about locks, held rows and joining tables."""

from __future__ import annotations

import shlex

import pytest

from shardmerge.master.diagnosis.conclude import unknown_facts
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import common_pb2, master_pb2, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto.common_pb2 import ErrorDetail
from tests.unit.master.diagnosis.views import SOURCE, TASK, behind, findings, ids, lane, looked, one, sync, view

_TABLE = "`shop`.`orders`"
_BUSY = {"target": 1.0}


def _holder(number: int = 692, command: str = "Sleep", statement: str = "") -> pb.LockHolder:
    return pb.LockHolder(
        connection=number,
        visible=True,
        user="app",
        host="10.0.0.9:4711",
        command=command,
        seconds=31,
        statement=statement,
    )


def _waiting(
    *holders: pb.LockHolder, kind: str = "row lock", hint: str = "", seconds: float = 23.0, hidden: str = ""
) -> SourceView:
    wait = pb.TargetWait(lane=1, kind=kind, table=_TABLE, holders=holders, hint=hint)
    return view(
        lane(0, {"idle": 1.0}, connection=10),
        lane(1, _BUSY, connection=11),
        status=behind(phase_seconds=seconds),
        target=looked(waits=[wait], hidden=hidden),
    )


def test_the_holder_of_a_row_lock_is_named() -> None:
    seen = _waiting(_holder())
    assert ids(seen)[0] == "row-lock"
    found = one("row-lock", seen)
    assert "Lane 1 has waited 23 s for a row of `shop`.`orders`: connection 692 holds it" in found.text
    assert "app@10.0.0.9:4711, idle for 31 s in a transaction" in found.text
    assert found.names["connection"] == "692" and found.names["lane"] == "1"
    assert found.figures == {"wait_seconds": 23, "holder_seconds": 31}
    assert "`KILL 692`" in found.actions[1]


def test_a_lane_that_waits_for_a_lock_has_no_other_cause() -> None:
    assert ids(_waiting(_holder())) == ["row-lock"]


def test_the_statement_of_a_holder_is_cut() -> None:
    found = one("row-lock", _waiting(_holder(command="Query", statement="UPDATE " + "x" * 500)))
    assert "running for 31 s: UPDATE xxx" in found.text
    assert len(found.text) < 420


def test_a_metadata_lock_without_its_holder() -> None:
    found = one("metadata-lock", _waiting(kind="metadata lock", hint="INSTALL SONAME 'metadata_lock_info' shows it"))
    assert "who holds it is not known: INSTALL SONAME" in found.text
    assert "connection" not in found.names


def test_a_holder_that_the_account_may_not_see() -> None:
    seen = _waiting(pb.LockHolder(connection=692), hidden="the sessions of other accounts (the account needs PROCESS)")
    found = one("row-lock", seen)
    assert "connection 692 holds it (its user and statement are not visible: needs PROCESS)" in found.text
    assert "user" not in found.names
    assert unknown_facts([seen]) == [
        f"{SOURCE}: not visible at the target: the sessions of other accounts (the account needs PROCESS)."
    ]


def test_another_lane_that_waits_for_the_lock_is_not_its_holder() -> None:
    found = one("row-lock", _waiting(_holder(10), _holder(692)))
    assert found.names["connection"] == "692"


def test_a_lane_of_the_task_that_holds_the_lock() -> None:
    found = one("row-lock", _waiting(_holder(10)))
    assert f"connection 10, lane 0 of source {SOURCE}, holds it" in found.text
    assert not any("KILL" in action for action in found.actions)
    assert found.weight < 50


def test_a_prepared_xa_transaction_is_no_connection_to_kill() -> None:
    found = one("row-lock", _waiting(pb.LockHolder()))
    assert "a prepared XA transaction holds it" in found.text and "connection 0" not in found.text
    assert "`XA RECOVER`" in found.actions[0] and not any("KILL" in action for action in found.actions)


def test_lanes_that_wait_for_one_session_are_one_finding() -> None:
    """Also with 128 lanes: the answer stays one screen."""
    status = behind(128, phase_seconds=2.0)
    status.lanes[7].phase_seconds = 60
    waits = [pb.TargetWait(lane=n, kind="row lock", table=_TABLE, holders=[_holder(692)]) for n in range(128)]
    waits[5].holders[0].connection = 700
    seen = view(*(lane(n, _BUSY) for n in range(128)), status=status, target=looked(waits=waits))
    first, second = [found for found in findings(seen) if found.id == "row-lock"]
    assert "Lanes 7, 0, 1 and 124 more have waited 60 s for a row of `shop`.`orders`: connection 692" in first.text
    assert (first.figures["lanes"], first.names["lane"]) == (127, "7")
    assert (second.names["lane"], second.names["connection"]) == ("5", "700")
    assert ids(seen) == ["row-lock", "row-lock"]


def _statement(
    *holders: pb.LockHolder, connection: int = 61, seconds: float = 8.0, table: str = _TABLE
) -> pb.TargetWait:
    return pb.TargetWait(
        kind="metadata lock",
        table=table,
        holders=holders,
        hint="" if holders else "INSTALL SONAME 'metadata_lock_info' shows it",
        statement="ALTER TABLE `shop`.`orders` ADD COLUMN c INT",
        connection=connection,
        seconds=seconds,
    )


def test_a_ddl_that_runs_is_shown_once_and_with_its_progress() -> None:
    """Each source's worker sees it; the lanes wait at it."""
    running = [
        pb.TargetStatement(
            connection=61, seconds=5_400.0, statement="ALTER TABLE `shop`.`orders` FORCE", progress=0.42
        ),
        pb.TargetStatement(connection=62, seconds=4.0, statement="CREATE INDEX i ON `shop`.`orders` (c)"),
    ]
    looks = [pb.TargetLook(answered=True, round_trip=0.001, running=some) for some in (running, running[:1])]
    views = [
        view(lane(0, {"barrier": 1.0}), status=behind(1), target=look, source=source)
        for look, source in zip(looks, ("mysql-01", "mysql-02"), strict=True)
    ]
    first, second = [found for found in findings(*views) if found.id == "target-statement"]
    assert "for 90m (42 % of it is done): ALTER TABLE `shop`.`orders` FORCE" in first.text
    assert first.sources == () and first.figures == {"seconds": 5_400.0, "progress": pytest.approx(0.42)}
    assert first.names == {"connection": "61", "statement": "ALTER TABLE `shop`.`orders` FORCE"}
    assert "for 4.0 s: CREATE INDEX" in second.text and "progress" not in second.figures
    assert findings(*views)[0] == first and "barrier" in ids(*views)


def test_a_ddl_that_waits_for_a_lock_is_the_first_cause() -> None:
    """The lanes are idle meanwhile, and each source's worker sees the statement."""
    views = [
        view(
            lane(0, {"idle": 1.0}), status=sync(1, synced=True), target=looked(waits=[_statement(_holder())]), source=s
        )
        for s in ("mysql-01", "mysql-02")
    ]
    lock = _lock(("mysql-01", "orders", "ready"), ("mysql-02", "orders", "ready"), stage="executing")
    assert ids(*views, locks=[lock]) == ["metadata-lock", "ddl-lock"], "a source with parked tables is not idle"
    found = one("metadata-lock", *views, locks=[lock])
    assert found.text.startswith(
        "A statement of the task's account (of readers, or a DDL) has waited 8.0 s for a metadata lock of "
        "`shop`.`orders`: connection 692 holds it"
    )
    assert found.text.endswith(" The statement: ALTER TABLE `shop`.`orders` ADD COLUMN c INT")
    assert (found.sources, found.names["connection"], found.figures["statements"]) == ((), "692", 1)
    assert "`KILL 692`" in found.actions[1]


def test_readers_that_wait_for_one_lock_are_one_finding() -> None:
    """Each of them is shown as a holder for the others, too."""
    waits = [_statement(_holder(61), _holder(692), connection=n, seconds=n - 60) for n in range(61, 69)]
    seen = view(lane(0, {"idle": 1.0}), target=looked(waits=waits))
    found = one("metadata-lock", seen)
    assert "8 statements of the task's account" in found.text and "have waited 8.0 s" in found.text
    assert found.names["connection"] == "692"
    hidden = one("metadata-lock", view(lane(0, {"idle": 1.0}), target=looked(waits=[_statement()])))
    assert "who holds it is not known: INSTALL SONAME" in hidden.text


def test_the_lane_of_another_source_is_no_other_statement() -> None:
    one_source = view(lane(0, _BUSY), target=looked(waits=[_statement(_holder(), connection=11)]))
    other = view(lane(0, {"idle": 1.0}, connection=11), status=sync(1, synced=True), source="mysql-02")
    assert "metadata-lock" not in ids(one_source, other)


def test_other_holders_of_a_lock() -> None:
    found = one("row-lock", _waiting(_holder(692), _holder(693), pb.LockHolder()))
    assert "Connection(s) 693 hold it, or wait for it, too." in found.text


def test_a_short_wait_is_not_reported() -> None:
    assert "row-lock" not in ids(_waiting(_holder(), seconds=0.4))


# --- DDL locks


def _lock(
    *tables: tuple[str, str, str], stage: str = "gathering", conflict: ErrorDetail | None = None
) -> master_pb2.DDLLock:
    made = master_pb2.DDLLock(
        id="orders-`shop`.`orders`",
        task=TASK,
        owner="mysql-01",
        ddls=["ALTER TABLE `shop`.`orders` ADD COLUMN note TEXT"],
        synced=["mysql-01"],
        unsynced=["mysql-02"],
        stage=stage,
        seconds=605,
        waiting_for="shard table(s) mysql-02 `shop_01`.`orders` to reach the statement",
        conflict=conflict,
    )
    for source, table, standing in tables:
        made.tables.add(source=source, schema="shop_01", table=table, standing=standing)
    return made


def test_a_ddl_lock_names_the_missing_tables_and_the_commands() -> None:
    lock = _lock(("mysql-01", "orders", "ready"), ("mysql-02", "orders", "missing"))
    found = one("ddl-lock", view(lane(0, {"idle": 1.0}), status=sync(1, synced=True)), locks=[lock])
    assert found.sources == ("mysql-02",)
    assert found.names["missing"] == "mysql-02 `shop_01`.`orders`"
    assert found.names["lock"] == "orders-`shop`.`orders`"
    assert "for 10m by now" in found.text and "It waits for shard table(s)" in found.text
    assert "all shard tables of `shop`.`orders`" in found.text
    assert found.actions[0].startswith("`dmctl shard-ddl-lock orders`")
    assert "`dmctl shard-ddl-lock unlock 'orders-`shop`.`orders`'`" in found.actions[2]
    assert found.figures["missing_tables"] == 1
    assert ids(view(*(lane(n, _BUSY) for n in range(2))), locks=[lock])[0] == "ddl-lock"
    fast = view(*(lane(n, _BUSY, changes=40, transactions=4) for n in range(2)), status=sync(oldest_ms=200, lag_ms=40))
    assert one("keeps-up", fast, locks=[lock]).text.startswith(
        "Apart from the shard tables that wait at a sharding DDL"
    )
    assert one("keeps-up", fast).text.startswith("It keeps up")


def test_the_id_of_a_lock_is_quoted_for_a_shell() -> None:
    lock = _lock(("mysql-01", "it's", "ready"), ("mysql-02", "it's", "missing"))
    lock.id = "orders-`shop`.`it's`"
    command = one("ddl-lock", locks=[lock]).actions[2].split("`", 1)[1].removesuffix("`")
    assert shlex.split(command) == ["dmctl", "shard-ddl-lock", "unlock", lock.id]


def test_a_conflict_has_its_way_out() -> None:
    error = ErrorDetail(code=50101, name="ddl-lock-conflict", message="m", workaround="decide")
    lock = _lock(("mysql-01", "orders", "ready"), ("mysql-02", "orders", "conflicting"), conflict=error)
    found = one("ddl-lock", locks=[lock])
    assert "decide" in found.actions
    assert found.text.startswith("[50101 ddl-lock-conflict] m. This has lasted for 10m")


def test_a_statement_that_scans_is_named_before_the_time_of_the_target() -> None:
    scan = pb.TargetScan(connection=7, table="`shop`.`orders`", read_rows=1_200_000, most_keys=3, statement="UPDATE x")
    ended = pb.TargetScan(connection=8, table="`shop`.`orders`", read_rows=90_000, changed_rows=2, statement="DELETE x")
    lanes = (lane(0, {"target": 1.0}, changes=9, transactions=3, commit=1.0, connection=7), lane(1, {"target": 1.0}))
    shown = view(*lanes, target=looked(scans=[scan, ended]))
    assert ids(shown)[:3] == ["statement-scans", "statement-scans", "target-slow"]
    first, second = findings(shown)[:2]
    assert first.sources == (shown.source,) and not second.sources
    for part in ("lane 0 of source mysql-01", "1,200,000 rows of `shop`.`orders`", "3 key(s) at most", "UPDATE x"):
        assert part in first.text
    assert "A statement of the task has read 90,000 rows" in second.text and "changed 2" in second.text
    assert second.figures == {"read_rows": 90_000, "changed_rows": 2}
    # Two workers see the same session.
    other = view(target=looked(scans=[ended]), source="mysql-02")
    assert ids(shown, other).count("statement-scans") == 2


def test_what_is_hidden_is_shown_with_the_statement_that_allows_it() -> None:
    look = looked(hidden="who holds row locks", grants=["GRANT PROCESS ON *.* TO 'dm'@'%';"])
    [fact] = unknown_facts([view(lane(0, {"target": 1.0}), target=look)])
    assert "`GRANT PROCESS ON *.* TO 'dm'@'%';` Only `dmctl why` uses that" in fact


def test_a_source_that_has_not_reported_its_tables() -> None:
    lock = _lock(("mysql-01", "orders", "ready"), ("mysql-02", "", "unknown"))
    found = one("ddl-lock", locks=[lock])
    assert found.sources == ("mysql-02",)
    assert "mysql-02 have not reported" in found.actions[1]


def test_a_lock_that_is_being_executed_is_less() -> None:
    done = _lock(("mysql-01", "orders", "ready"), ("mysql-02", "orders", "ready"), stage="executing")
    assert one("ddl-lock", locks=[done]).weight == 40


# --- rows and tables


def test_held_rows() -> None:
    found = one("quarantine", view(lane(0, {"idle": 1.0}), status=sync(1, held_keys=12)))
    assert found.text.startswith("12 key(s) are held")
    assert "`dmctl quarantine list orders -s mysql-01`" in found.actions[0]
    assert "quarantine" not in ids(view(lane(0, {"idle": 1.0}), status=sync(1)))


@pytest.mark.parametrize(("phase", "wanted"), [("copying", "tables-joining"), ("failed", "join-failed")])
def test_joining_tables(phase: str, wanted: str) -> None:
    error = ErrorDetail(code=30006, name="n", message="m") if phase == "failed" else None
    join = worker_pb2.JoinStatus(tables=["shop_01.a"], phase=phase, error=error, retry_seconds=7)
    subtask = worker_pb2.SubTaskStatus(
        name=TASK, stage=common_pb2.STAGE_RUNNING, unit=common_pb2.UNIT_REPLICATE, sync=sync(1), join=join
    )
    assert one(wanted, view(subtask=subtask)).names["tables"] == "shop_01.a"


@pytest.mark.parametrize("retryable", [True, False])
def test_tables_that_wait_for_a_person_are_resumed(*, retryable: bool) -> None:
    error = ErrorDetail(code=40030, name="n", message="m", workaround="repair it", retryable=retryable)
    join = worker_pb2.JoinStatus(tables=["shop_01.a"], phase="failed", error=error)
    subtask = worker_pb2.SubTaskStatus(
        name=TASK, stage=common_pb2.STAGE_RUNNING, unit=common_pb2.UNIT_REPLICATE, sync=sync(1), join=join
    )
    first, *rest = one("join-failed", view(subtask=subtask)).actions
    assert first == "repair it"
    assert rest == ([] if retryable else [f"Then `dmctl resume-task {TASK} -s mysql-01`."])


def test_no_way_out_that_loses_rows_is_without_its_consequence() -> None:
    [_, second] = one("quarantine", view(lane(0, {"idle": 1.0}), status=sync(1, held_keys=2))).actions
    assert "--all" not in second and "the target lacks them" in second


# --- what is not known


def test_a_silent_lane() -> None:
    status = behind()
    status.lanes[1].unknown = "has not reported for 8 s"
    found = one("lane-silent", view(lane(0, {"idle": 1.0}), lane(1, {}), status=status))
    assert found.text == "Lane 1 has not reported for 8 s: what it does is not known."


def test_many_silent_lanes_are_one_finding() -> None:
    status = behind(128)
    for each in status.lanes:
        each.unknown = "has not reported for 8 s"
    found = one("lane-silent", view(*(lane(n, {}) for n in range(128)), status=status))
    assert found.text.endswith("what it does is not known. Nor is it of lane(s) 1, 2, 3 and 124 more.")
    assert found.figures == {"lanes": 128}


def test_lanes_that_have_not_started() -> None:
    status = behind()
    for each in status.lanes:
        each.unknown = "has not started"
    seen = view(lane(0, {}), lane(1, {}), status=status)
    assert seen.answer is not None
    seen.answer.use.spark.total_slots, seen.answer.use.spark.free_slots = 16, 0
    assert ids(seen) == ["lanes-starting"]
    found = one("lanes-starting", seen)
    assert "Lane(s) 0, 1 have not started" in found.text and "0 of 16 Spark slots are free" in found.text


def test_a_target_that_cannot_be_asked() -> None:
    error = ErrorDetail(code=40020, name="target-lost", message="gone", workaround="repair it")
    seen = view(lane(0, _BUSY), target=pb.TargetLook(error=error))
    found = one("target-unreachable", seen)
    assert "[40020 target-lost] gone" in found.text and found.actions == ("repair it",)
    assert unknown_facts([seen]) == []


def test_a_target_that_is_down_explains_what_the_lanes_do() -> None:
    error = ErrorDetail(code=40004, name="target-unreachable", message="refused")
    status = behind()
    status.lanes[1].error.CopyFrom(error)
    down = view(lane(0, {"idle": 1.0}), lane(1, {"retry": 1.0}), status=status, target=pb.TargetLook(error=error))
    assert ids(down) == ["target-unreachable"]


def test_lanes_that_commit_are_no_sign_of_a_target_that_is_down() -> None:
    """As when the account may open no further connection."""
    error = ErrorDetail(code=40005, name="target-login-failed", message="too many connections")
    busy = [lane(n, _BUSY, changes=50, transactions=5, commit=0.5) for n in range(2)]
    assert ids(view(*busy, target=pb.TargetLook(error=error))) == ["target-slow", "target-unreachable"]


def test_the_way_out_names_the_task_and_the_source() -> None:
    error = ErrorDetail(code=1, name="n", message="m", workaround="`resume-task <task> -s <source>`")
    seen = view(lane(0, _BUSY), target=pb.TargetLook(error=error))
    assert one("target-unreachable", seen).actions == (f"`resume-task {TASK} -s {SOURCE}`",)


def test_a_target_that_does_not_answer_in_time() -> None:
    seen = view(lane(0, _BUSY), lane(1, {}), target=pb.TargetLook())
    assert unknown_facts([seen]) == [
        f"{SOURCE}: the target did not answer in time (or another look at a target had not ended), so locks there are "
        "not known.",
        f"{SOURCE}: 1 lane(s) did not report while they were measured.",
    ]
