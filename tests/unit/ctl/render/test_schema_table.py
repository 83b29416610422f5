"""Recorded structures for a terminal."""

from __future__ import annotations

from shardmerge.ctl import as_json
from shardmerge.ctl.render import schema_table
from shardmerge.ctl.verdict import judge
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw

ERROR = errors.ddl.SCHEMA_RUNNING(task="merge", source="s2")
ANSWER = pb.OperateSchemaResponse(
    result=False,
    msg=str(ERROR),
    sources=[
        pb.SourceSchema(
            result=True,
            source="s1",
            worker="w1",
            msg="CREATE TABLE `d`.`a` (\n  `id` int [bold]\x1b[2J\n)",
            target="`d`.`t`",
            note="deleted",
        ),
        pb.SourceSchema(result=False, source="s2", worker="w2", msg=str(ERROR), error=error_to_proto(ERROR)),
        pb.SourceSchema(result=True, source="s3", worker="w3", target="`d`.`t`", target_schema="CREATE TABLE `t` (x)"),
    ],
)


def test_what_is_recorded_and_what_the_target_has() -> None:
    lines = [line.rstrip() for line in draw(schema_table.schemas(ANSWER), width=160).splitlines()]
    assert "s1: as recorded (deleted)" in lines
    first = lines.index("CREATE TABLE `d`.`a` (")
    assert lines[first + 1 : first + 3] == ["  `id` int [bold] [2J", ")"]
    assert lines.count("`d`.`t` at the target") == 2
    assert "it is not there" in lines
    assert any("[50160 schema-of-running-task]" in line for line in lines)
    assert "only the columns are recorded, by an earlier version" in lines
    assert "CREATE TABLE `t` (x)" in lines


def test_one_source_that_refuses_is_a_failure() -> None:
    report = judge("binlog-schema list", ANSWER)
    assert report is not None
    assert report.code == ERROR.code


def test_json_speaks_as_dm_does() -> None:
    assert as_json.to_value(ANSWER.sources[2]) == {
        "result": True, "msg": "", "source": "s3", "worker": "w3", "error": None, "target": "`d`.`t`",
        "targetSchema": "CREATE TABLE `t` (x)", "note": "",
    }  # fmt: skip
