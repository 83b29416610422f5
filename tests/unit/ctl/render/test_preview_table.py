"""The rehearsal of a sharding DDL as a table."""

from __future__ import annotations

from shardmerge.ctl import as_json
from shardmerge.ctl.render import preview_table
from shardmerge.ctl.verdict import judge
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw

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
    lines = [" ".join(line.split()) for line in draw(preview_table.previewed(ANSWER), width=200).splitlines()]
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
