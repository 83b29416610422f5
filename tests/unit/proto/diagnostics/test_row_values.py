"""Errors, statements and log lines for a bundle have names and places, and no values of rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.common_pb2 import STAGE_RUNNING, ErrorDetail
from shardmerge.proto.diagnostics.row_values import (
    answer_without_values,
    ddl_without_literals,
    log_line_without_values,
    text_without_values,
    without_literals,
    without_values,
)
from shardmerge.proto.errors import CATALOGUE, ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto

_ROW = "Geheim-4711"
_PLACE = {"source": "s1", "schema": "shop", "table": "t", "position": "bin.000001:4"}
_REFUSED = errors.replicate.ROW_REFUSED(
    **_PLACE,
    target_schema="all",
    target_table="u",
    key=f"(id={_ROW})",
    reason=f"Duplicate entry 'O'Brien {_ROW}' for key 'PRIMARY'",
    errno=1062,
)
_STATEMENT = f"INSERT INTO t VALUES (1, {_ROW})"


@pytest.mark.parametrize(
    "error",
    [
        _REFUSED,
        errors.replicate.COLLISION(**_PLACE, target_schema="all", target_table="u", key=_ROW, other=f" of {_ROW}"),
        errors.replicate.TARGET_REJECTED(
            source="s1", target_schema="a", target_table="b", reason=f"a trigger's text {_ROW}", errno=1644
        ),
        errors.ddl.ROWS_BY_STATEMENT(source="s1", task="t", position="p", tables="a.b", statement=_STATEMENT),
        errors.decode.UNREADABLE_VALUE(source="s1", schema="a", table="b", column="c", type="INT", at="", value=_ROW),
        errors.snapshot.ROW_TOO_LARGE(source="s1", schema="a", table="b", key=_ROW, bytes=2, limit=1),
        errors.worker.INTERNAL(kind="ValueError", where="lane", reason=f"cannot read {_ROW}"),
        errors.master.PEER_FAILED(peer="worker w1", reason=str(_REFUSED)),
        errors.compare.NOT_REPLICATING(task="t", source="s1", state=f"it has '{_ROW}'"),
        error_from_proto(ErrorDetail(code=99999, name="of-another-version", message=_ROW, args={"key": _ROW})),
        error_from_proto(ErrorDetail(code=_REFUSED.code, name="row-refused", message=f"other {_ROW}")),
    ],
    ids=lambda error: error.spec.name,
)
def test_an_error_has_no_values(error: ShardmergeError) -> None:
    shown = without_values(error)
    assert _ROW in str(error)
    assert (shown.code, shown.spec.name) == (error.code, error.spec.name)
    assert _ROW not in str(error_to_proto(shown))
    assert _ROW not in text_without_values(f"paused: {error}")
    assert f"[{error.code} {error.spec.name}]" in text_without_values(f"paused: {error}")


def test_names_and_places_stay() -> None:
    shown = str(without_values(_REFUSED))
    for part in (*_PLACE.values(), "all.u", "errno 1062"):
        assert part in shown
    for error in (errors.master.SOURCE_UNBOUND(source="s'3"), errors.relay.RELAY_DAMAGED(source="s", path="/a'b")):
        assert str(without_values(error)) == str(error)


@given(st.sampled_from(sorted(CATALOGUE)))
def test_no_value_that_is_neither_a_name_nor_of_the_message_stays(code: int) -> None:
    error = ShardmergeError(CATALOGUE[code], {"row_of_a_later_version": _ROW})
    assert _ROW not in str(error_to_proto(without_values(error)))


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("ALTER TABLE `it's` ADD c INT DEFAULT 'x''y'", "ALTER TABLE `it's` ADD c INT DEFAULT '…'"),
        ('ALTER TABLE t COMMENT "a" /* b */ -- c', "ALTER TABLE t COMMENT '…'    "),
        ("ALTER TABLE t ADD c INT DEFAULT 0xAB, ADD d INT # a\n", "ALTER TABLE t ADD c INT DEFAULT '…', ADD d INT  \n"),
        (
            "ALTER TABLE t ADD c CHAR(1) DEFAULT '\\'', ADD d CHAR(1) DEFAULT 'a'",
            "ALTER TABLE t ADD c CHAR(1) DEFAULT …",
        ),
        ("ADD c JSON DEFAULT (_utf8mb4'a')", "ADD c JSON DEFAULT ('…')"),
        ("ADD c INT /* not closed", "ADD c INT …"),
    ],
)
def test_a_statement_has_no_literals(statement: str, shown: str) -> None:
    assert ddl_without_literals(statement) == shown


@given(
    st.lists(
        st.sampled_from(
            ["'a'", '"b"', "/* ' */", "-- '\n", '# "\n', "''", "'a''b'", "`c'`", " ", "x", "(", "'\\''", "'\\", "N'd'"]
        )
    ),
    st.text(),
)
def test_a_literal_is_never_shown(before: list[str], after: str) -> None:
    assert _ROW not in ddl_without_literals(f"ALTER TABLE t {' '.join(before)} DEFAULT '{_ROW}' {after}")


def test_quotes_of_a_servers_text() -> None:
    assert without_literals("the lock's row 'O'Brien' for key 'a'") == "the lock's row '…'"
    assert without_literals("near 'SELECT") == "near '…'"
    assert without_literals("key `a` of x'4a'") == "key `a` of '…'"


def test_an_answer_is_searched_at_every_level() -> None:
    answer = pb.QueryStatusResponse(result=True)
    part = answer.sources.add(result=True, msg=str(_REFUSED))
    status = worker_pb2.SubTaskStatus(name="t", stage=STAGE_RUNNING, waiting_for=f"x: {_REFUSED}")
    status.result.errors.append(error_to_proto(_REFUSED))
    status.sync.blocking_ddls.append(f"ALTER TABLE t ADD c INT DEFAULT '{_ROW}'")
    part.sub_task_status.append(status)
    shown = answer_without_values(answer)
    assert str(answer).count(_ROW) > 4 and _ROW not in str(shown)
    [subtask] = shown.sources[0].sub_task_status
    assert (subtask.name, subtask.stage, subtask.result.errors[0].code) == ("t", STAGE_RUNNING, _REFUSED.code)
    assert subtask.sync.blocking_ddls == ["ALTER TABLE t ADD c INT DEFAULT '…'"]


def test_a_log_line_of_an_earlier_version_is_searched() -> None:
    line = json.dumps({"event": "paused", "error": str(_REFUSED), "exception": [{"text": str(_REFUSED)}], "n": 1})
    shown = log_line_without_values(line)
    assert _ROW not in shown and json.loads(shown)["n"] == 1
    assert log_line_without_values(f"no JSON {_ROW}") == '{"event": "(left out)"}'
