"""Where the rows of source tables go, as a table."""

from __future__ import annotations

import pytest

from shardmerge.ctl.commands.task.rules import table_name
from shardmerge.ctl.render import rules_table
from shardmerge.ctl.verdict import judge
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw

ERROR = error_to_proto(errors.config.AMBIGUOUS_ROUTE(source="s2", schema="d", table="a", rules="r1, r2"))
CLASH = error_to_proto(errors.master.SOURCE_UNKNOWN(source="s3"))


def _rule(kind: str, name: str, text: str, *beaten: str) -> worker_pb2.AppliedRule:
    return worker_pb2.AppliedRule(kind=kind, name=name, text=text, beaten=beaten)


LET_IN = _rule("block-allow-list", "users", "do-dbs has d*")
FIRST = pb.SourceRules(
    result=True,
    msg="a note",
    source="s1",
    tables=[
        worker_pb2.TableRules(source="s1", schema="d", table="[b]a", takes_part=True, target="`x`.`t`",
                              existence="exists", rules=[LET_IN, _rule("route-rules", "r1", "matches d*.a*", "r0"),
                                     _rule("column-mapping-rules", "m", "id: partition id")]),
        worker_pb2.TableRules(source="s1", schema="d", table="z", existence="missing",
                              rules=[_rule("block-allow-list", "users", "ignore-tables has d.z")]),
    ],
)  # fmt: skip
SECOND = pb.SourceRules(
    source="s2",
    msg="it is ambiguous",
    error=ERROR,
    tables=[worker_pb2.TableRules(source="s2", schema="d", table="a", takes_part=True, rules=[LET_IN], error=ERROR)],
)
THIRD = pb.SourceRules(source="s3", error=CLASH, msg="unknown")


def _lines(answer: pb.ExplainRulesResponse, *, in_full: bool) -> list[str]:
    return [
        " ".join(line.split()) for line in draw(rules_table.explained(answer, in_full=in_full), width=200).splitlines()
    ]


def test_a_line_per_table_and_every_reason() -> None:
    answer = pb.ExplainRulesResponse(result=False, sources=[FIRST, SECOND, THIRD])
    lines = _lines(answer, in_full=False)
    assert "s1 d.[b]a `x`.`t` r1: matches d*.a* (over r0); m: id: partition id" in lines
    assert "s1 d.z – users: ignore-tables has d.z; does not exist yet" in lines
    assert any(line.startswith("s2 d.a ✗ the task would refuse it") for line in lines)
    assert "s1: a note" in lines
    text = "\n".join(lines)
    assert text.count(f"[{ERROR.code} ") == 1
    assert f"[{CLASH.code} " in text
    assert lines[-1] == "2 of 3 tables take part; nothing has run."
    assert "do-dbs has d*" not in text
    assert "block-allow-list users do-dbs has d* –" in _lines(answer, in_full=True)
    assert "route-rules r1 matches d*.a* r0" in _lines(answer, in_full=True)


def test_a_table_that_would_be_refused_is_a_failure() -> None:
    assert judge("rules", pb.ExplainRulesResponse(result=True, sources=[FIRST])) is None
    report = judge("rules", pb.ExplainRulesResponse(result=False, sources=[FIRST, SECOND]))
    assert report is not None
    assert report.code == ERROR.code


def test_names_of_tables() -> None:
    assert table_name("shop_01.orders") == worker_pb2.ShardTableName(schema="shop_01", table="orders")
    assert table_name("`my.shop`.`a``b`") == worker_pb2.ShardTableName(schema="my.shop", table="a`b")
    for wrong in ("orders", "a.b.c", ".b", "a.", "`a.b"):
        with pytest.raises(ShardmergeError) as caught:
            table_name(wrong)
        assert caught.value.spec is errors.ctl.TABLE_NAME
