"""Definitions of target tables and shard tables for a terminal, and the script of foreign keys."""

from __future__ import annotations

from rich.console import Console

from shardmerge.ctl import as_json
from shardmerge.ctl.render import definitions
from shardmerge.ctl.render.definitions import foreign_keys_script, targets
from shardmerge.ctl.verdict import judge
from shardmerge.proto import common_pb2, errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw


def _schema(*groups: worker_pb2.ShardGroup, statement: str = "CREATE TABLE x\n(id)") -> worker_pb2.TargetSchema:
    return worker_pb2.TargetSchema(target="`m`.`t`", statement=statement, groups=groups)


def _lines(answer: pb.ShowTargetsResponse) -> list[str]:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(targets(answer))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_equal_tables_are_one_line() -> None:
    alike = worker_pb2.ShardGroup(count=1024, examples=["s.t_1", "s.t_2"])
    other = worker_pb2.ShardGroup(count=1, examples=["s.x\x1b"], only_here=["`a` int"], lacking=["`b` int"])
    answer = pb.ShowTargetsResponse(
        result=True,
        sources=[
            pb.SourceTargets(result=True, source="one", targets=[_schema(alike, other)]),
            pb.SourceTargets(result=True, source="two", targets=[_schema(alike)]),
        ],
    )
    lines = _lines(answer)
    text = "\n".join(lines)
    assert text.count("CREATE TABLE x") == 1
    assert "`m`.`t` does not exist: if source one is the first, it is created as" in text
    assert "  one: 1024 shard tables (s.t_1, s.t_2 and 1022 more): equal definitions" in lines
    assert "  two: 1024 shard tables (s.t_1, s.t_2 and 1022 more): equal definitions" in lines
    assert "    only here: `a` int" in lines
    assert "    lacking: `b` int" in lines
    assert "\x1b]" not in text
    assert judge("schema", answer) is None


def test_a_group_without_other_parts_ends_no_line_with_a_colon() -> None:
    alike = worker_pb2.ShardGroup(count=2, examples=["s.t_1", "s.t_2"])
    ordered = worker_pb2.ShardGroup(count=1, examples=["s.x"])
    part = pb.SourceTargets(result=True, source="one", targets=[_schema(alike, ordered)])
    [line] = [line for line in _lines(pb.ShowTargetsResponse(result=True, sources=[part])) if "s.x" in line]
    assert "differ in the order of columns or keys" in line


def test_the_error_of_a_target() -> None:
    shown = _schema()
    shown.error.CopyFrom(common_pb2.ErrorDetail(code=40012, name="target-table-differs", message="column p is missing"))
    part = pb.SourceTargets(result=False, source="one", targets=[shown], error=shown.error, msg="column p is missing")
    answer = pb.ShowTargetsResponse(result=False, sources=[part])
    assert "\n".join(_lines(answer)).count("column p is missing") == 1
    assert judge("schema", answer) is not None


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
    lines = [line.rstrip() for line in draw(definitions.schemas(ANSWER), width=160).splitlines()]
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


def answer(*keys: worker_pb2.TargetForeignKey) -> pb.ShowTargetsResponse:
    """Return an answer with one source for each key."""
    return pb.ShowTargetsResponse(
        sources=[
            pb.SourceTargets(
                source=f"s{number}", targets=[worker_pb2.TargetSchema(target="`m`.`orders`", foreign_keys=[key])]
            )
            for number, key in enumerate(keys)
        ]
    )


def key(**values: object) -> worker_pb2.TargetForeignKey:
    named = {"reference": "a to b", "tables": ["s.o_1"], "count": 9, "name": "k", "add": "ADD", "orphans": "SELECT"}
    return worker_pb2.TargetForeignKey(**{**named, **values})  # pyright: ignore[reportArgumentType]


def statements(*keys: worker_pb2.TargetForeignKey) -> list[str]:
    lines = foreign_keys_script(answer(*keys)).splitlines()
    return [line for line in lines if line and not line.startswith("--")][1:]


def test_equal_keys_of_two_sources_are_added_once() -> None:
    assert statements(key(), key()) == ["SELECT;", "ADD;"]
    assert "of 18 shard tables (s0: s.o_1 and 8 more, s1:" in foreign_keys_script(answer(key(), key()))


def test_no_statement_for_what_is_left_out_differs_or_exists() -> None:
    assert not statements(key(), key(add="", left_out="why\nDROP"))
    assert not statements(key(), key(add="ANOTHER"))
    assert not statements(key(exists=True))
    assert "left out: why" in foreign_keys_script(answer(key(left_out="why\nDROP")))
