"""The ways out of checks of a task that does not exist yet."""

from __future__ import annotations

from shardmerge.master.precheck.precheck import with_ways_to_start
from shardmerge.proto import worker_pb2 as pb


def _result(source: str, name: str, code: int) -> pb.CheckResult:
    return pb.CheckResult(source=source, name=name, code=code, instruction="Then `dmctl resume-task <task>`.")


def test_a_refused_login_of_a_new_task_names_start_task() -> None:
    results = [
        _result("s1", "target_connection", 12030),
        _result("s1", "schema_of_shard_tables", 12050),
        _result("s1", "binlog_db", 12050),
        _result("s2", "connection", 12003),
        _result("s3", "schema_of_shard_tables", 12050),
        _result("s4", "target_connection", 12030),
    ]
    found = [one.instruction for one in with_ways_to_start(results, {"s1", "s2", "s3"})]
    for at, what in ((0, "`target-database` in the task file"), (3, "`dmctl operate-source update <source-file>`")):
        assert what in found[at] and "`dmctl start-task <file>`" in found[at] and "resume-task" not in found[at]
        assert "with --remove-meta" in found[at], "a start that copies again has these options"
    assert found[1] == "See item target_connection."
    assert [found[at] for at in (2, 4, 5)] == [results[0].instruction] * 3
    assert results[0].instruction == "Then `dmctl resume-task <task>`."
