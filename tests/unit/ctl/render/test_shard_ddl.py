"""Sharding DDLs as tables: their locks, and the dry run of one."""

from __future__ import annotations

from shardmerge.ctl import as_json
from shardmerge.ctl.render import shard_ddl
from shardmerge.ctl.verdict import judge
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw


def _lock(**fields: object) -> pb.DDLLock:
    lock = pb.DDLLock(
        id="merge-`shop`.`orders`", task="merge", owner="s1", ddls=["ALTER TABLE t ADD COLUMN c INT"], synced=["s1"],
        unsynced=["s2", "s3"], stage="gathering", since="2026-01-02T03:04:05Z", seconds=125.0,
        waiting_for="all tables",
        tables=[
            pb.DDLLockTable(source="s1", schema="d", table="a", standing="ready", since="x", seconds=90.0,
                            position="(b.1, 4)", ddl="ALTER A"),
            pb.DDLLockTable(source="s1", schema="d", table="b", standing="passed"),
            pb.DDLLockTable(source="s2", schema="d", table="[bold]c", standing="missing", since="x", seconds=3700.0),
            pb.DDLLockTable(source="s3", standing="unknown"),
        ],
    )  # fmt: skip
    lock.MergeFrom(pb.DDLLock(**fields))  # type: ignore[arg-type]
    return lock


def test_a_lock_and_how_its_tables_stand() -> None:
    text = draw(shard_ddl.locks(pb.ShowDDLLocksResponse(result=True, locks=[_lock()])), width=200)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "merge-`shop`.`orders` s1 gathering 2m 05s s1 s2, s3 ALTER TABLE t ADD COLUMN c INT" in lines
    assert "merge-`shop`.`orders` waits for all tables" in lines
    assert "s1 d.a ready 1m 30s (b.1, 4) ALTER A" in lines
    assert "s1 d.b passed – – –" in lines
    assert any(line.startswith("s2 d.[bold]c missing 1h 01m") for line in lines)
    assert "s3 has not reported unknown – – –" in lines
    assert "what to do" not in text


def test_a_conflict_names_both_statements_and_the_ways_out() -> None:
    error = errors.ddl.LOCK_CONFLICT(
        task="merge",
        lock="L",
        tables="s2 `d`.`c`",
        source="s2",
        position="p",
        other="ALTER B",
        owner="s1",
        statement="ALTER A",
    )
    lock = _lock(conflict=error_to_proto(error), forced=True)
    text = " ".join(draw(shard_ddl.locks(pb.ShowDDLLocksResponse(locks=[lock])), width=200).split())
    assert "gathering, forced" in text
    statements, ways_out = ("ALTER A", "ALTER B"), ("what to do:", "unlock 'L'", "stop-task merge -s s2")
    for part in ("[50101 ddl-lock-conflict]", *statements, *ways_out):
        assert part in text


def test_no_lock_and_what_was_decided() -> None:
    assert "no DDL lock exists" in draw(shard_ddl.locks(pb.ShowDDLLocksResponse(msg="no DDL lock exists")))
    assert "source s1 runs it" in draw(shard_ddl.unlocked(pb.UnlockDDLLockResponse(msg="source s1 runs it")))


ERROR = errors.ddl.NEEDS_SHARD_MODE(
    source="s1", task="merge", table="`d`.`a`", shards=2, target="`d`.`t`", position="p", statement="ALTER A"
)
ANSWER = pb.PreviewDDLResponse(
    result=True,
    mode="optimistic",
    tables=[
        worker_pb2.DDLPreview(source="s1", schema="d", table="a", target="`d`.`t`", outcome="at-once",
                              statement="ALTER TABLE `d`.`t` ADD c", risks=["rows of [bold]b have 7"]),
        worker_pb2.DDLPreview(source="s1", schema="d", table="b", target="`d`.`t`", outcome="nothing"),
        worker_pb2.DDLPreview(source="s2", schema="d", table="a", target="`d`.`t`", outcome="waits", owner="s2",
                              statement="ALTER B", reason="why not", contradicts=True,
                              missing=[worker_pb2.ShardTableName(source="s3", schema="d", table="c")] * 21),
        worker_pb2.DDLPreview(source="s2", schema="d", table="b", target="`d`.`t`", outcome="stops",
                              reason=ERROR.message, error=error_to_proto(ERROR)),
    ],
)  # fmt: skip


def test_every_outcome_and_what_is_to_be_known() -> None:
    lines = [" ".join(line.split()) for line in draw(shard_ddl.previewed(ANSWER), width=200).splitlines()]
    assert "1 s1 d.a `d`.`t` at once ALTER TABLE `d`.`t` ADD c" in lines
    assert "2 s1 d.b `d`.`t` at once, nothing to do –" in lines
    assert "3 s2 d.a `d`.`t` waits, contradicts when all have reached it: ALTER B" in lines
    assert "4 s2 d.b `d`.`t` the task would stop –" in lines
    assert "! rows of [bold]b have 7" in lines
    assert "waits: why not" in lines
    text = " ".join(lines)
    assert "missing: s3 d.c, s3 d.c," in text
    assert "s3 d.c and 1 more" in text
    assert text.count("s3 d.c") == 20
    assert "[50005 ddl-of-shards-without-mode]" in text
    assert text.count("is one of 2 shard tables") == 1
    assert "2 s1 d.b because" not in text
    assert lines[-1] == "shard-mode optimistic: a dry run, nothing has run."


def test_what_would_stop_a_task_is_an_answer() -> None:
    assert judge("shard-ddl preview", ANSWER) is None


def test_json_has_every_field() -> None:
    tables = as_json.to_value(ANSWER)["tables"]
    assert isinstance(tables, list)
    assert isinstance(tables[1], dict)
    assert tables[1] == {
        "source": "s1", "schema": "d", "table": "b", "target": "`d`.`t`", "outcome": "nothing", "statement": "",
        "reason": "", "contradicts": False, "owner": "", "missing": [], "risks": [], "error": None,
    }  # fmt: skip
