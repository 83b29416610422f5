"""Target tables for a terminal: each once, and the shard tables of each source in groups."""

from __future__ import annotations

from rich.console import Console

from shardmerge.ctl.render.targets_table import targets
from shardmerge.ctl.verdict import judge
from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto import master_pb2 as pb


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


def test_the_error_of_a_target() -> None:
    shown = _schema()
    shown.error.CopyFrom(common_pb2.ErrorDetail(code=40012, name="target-table-differs", message="column p is missing"))
    part = pb.SourceTargets(result=False, source="one", targets=[shown], error=shown.error, msg="column p is missing")
    answer = pb.ShowTargetsResponse(result=False, sources=[part])
    assert "\n".join(_lines(answer)).count("column p is missing") == 1
    assert judge("schema", answer) is not None
