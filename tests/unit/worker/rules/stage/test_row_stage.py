"""The row stage with a target that is made up: what it asks, and what it leaves in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.lane_hash import Bucket, lane_of
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, PartitionId, RowFilter, TablePlan
from shardmerge.worker.rules.stage.row_stage import RowStage, TableStage, as_decoded
from shardmerge.worker.rules.stage.server_filter import EvaluationFailed, ServerFilter
from tests.support.plans import integer, table_plan, text

MAPPED = PartitionId(3 << 55, 55)


class Asked:
    """Answers `v = 'x'` alone, and fails at 'bad'."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, ...]] = []

    def true_of(
        self, table: str, columns: tuple[Column, ...], expressions: Sequence[str], found: Sequence[Literals]
    ) -> list[tuple[bool, ...]]:
        self.questions.append(tuple(expressions))
        assert [column.name for column in columns] == ["v"]
        for at, row in enumerate(found):
            if row == (b"'bad'",):
                raise EvaluationFailed(at, "no", 1690)
        return [tuple(row == (b"'x'",) for _ in expressions) for row in found]


def plan(name: str = "t_1", shard: int = 0, *rules: RowFilter) -> TablePlan:
    made = table_plan((integer(), text("v")), (0,), shard=shard, name=name, mapping=MAPPED)
    return replace(made, filters=rules, may_lack_rows=bool(rules))


FILTERED = plan("t_1", 0, RowFilter("r", (1,), "v = 'x'", "v = 'x'", "v = 'x'", "v = 'x'"))
PLAIN = plan("t_2", 1)


def stage(lane: int = 0, lanes: int = 1) -> tuple[RowStage, Asked]:
    asked = Asked()
    made = RowStage(cast(ServerFilter, asked), Bucket(lane, lanes))
    made.set_plans([FILTERED, PLAIN])
    return made, asked


def place(change: RowChange) -> object:
    return change.byte


def row(number: int, value: str) -> Literals:
    return (b"%d" % number, b"'%s'" % value.encode())


IMAGE = st.builds(row, st.integers(0, 5), st.sampled_from("xyz"))
CHANGE = st.tuples(st.sampled_from(ChangeKind), IMAGE, IMAGE, st.sampled_from([FILTERED, PLAIN]))


@given(st.lists(CHANGE, max_size=20), st.integers(1, 3))
def test_what_is_left_is_mapped_in_order_and_each_lanes_own(
    drawn: list[tuple[ChangeKind, Literals, Literals, TablePlan]], lanes: int
) -> None:
    def mapped(image: Literals) -> Literals:
        return (b"%d" % (int(image[0]) | MAPPED.prefix), *image[1:]) if image else ()

    expected: list[RowChange] = []
    for lane in range(lanes):
        made, _ = stage(lane, lanes)
        twins = {each.table.name: made.decoded_by(each) for each in (FILTERED, PLAIN)}
        changes: list[RowChange] = []
        expected = []
        for at, (kind, old, new, of) in enumerate(drawn):
            before = () if kind is ChangeKind.INSERT else old
            after = () if kind is ChangeKind.DELETE else new
            changes.append(RowChange(at, at, kind, twins[of.table.name], before, after))
            gone = of is FILTERED and all(image[1] == b"'x'" for image in (before, after) if image)
            own = any(lane_of(of, (mapped(image)[0],), lanes) == lane for image in (before, after) if image)
            if own and not gone:
                expected.append(RowChange(at, at, kind, of, mapped(before), mapped(after)))
        left, unread = made.evaluate(changes, place)
        assert left == expected
        assert unread == []


def test_tables_that_share_no_target_stay_in_the_decoder() -> None:
    made, _ = stage()
    other = replace(PLAIN, target_table="elsewhere")
    made.set_plans([FILTERED, other])
    assert made.decoded_by(other) is other
    twin = made.decoded_by(FILTERED)
    assert twin.staged
    assert all(column.mapping is None for column in twin.columns)
    made.set_plans([replace(FILTERED, filters=(RowFilter("r", (0,), insert="id = 1"),)), PLAIN])
    assert made.decoded_by(PLAIN) is PLAIN


def test_a_refusal_names_the_rows_place() -> None:
    made, _ = stage()
    twin = made.decoded_by(FILTERED)
    changes = [RowChange(at, at, ChangeKind.INSERT, twin, (), row(at, value)) for at, value in enumerate(["y", "bad"])]
    with pytest.raises(ShardmergeError) as caught:
        made.evaluate(changes, lambda change: change.byte + 100)
    assert caught.value.spec is errors.replicate.EXPRESSION_FAILED
    assert caught.value.values["position"] == "101"


def test_rows_that_an_operator_passes_over_are_not_asked_about() -> None:
    made, asked = stage()
    twin = made.decoded_by(FILTERED)
    bad = RowChange(0, 0, ChangeKind.INSERT, twin, (), row(1, "bad"))
    wide = RowChange(1, 1, ChangeKind.INSERT, twin, (), row(1 << 60, "x"))
    left, unread = made.evaluate([bad, wide], place, lambda change: True)
    assert [change.after[1] for change in left] == [b"'bad'"]
    assert [(change.byte, of, error.spec) for change, of, error in unread] == [(1, FILTERED, errors.config.ID_OVERFLOW)]
    assert asked.questions == []


TEXT = st.text(max_size=12).map(lambda found: found.encode("utf-8", "ignore"))


@given(TEXT, st.sampled_from(["utf8mb4", "latin1", "ucs2", "gbk"]))
def test_a_literal_gives_its_value_back(value: bytes, charset: str) -> None:
    column = Column("v", ValueKind.STRING, "varchar(20)", True, charset=charset, collation=f"{charset}_bin")
    made = table_plan((column,), (0,), mapping=AddPrefix("p'\\"))
    raw = RowWriter(as_decoded(made), "s1").literals([value])[0]
    assert text_of_literal(raw) == value
    codec = ColumnCodec(made.table, column, 0, -1, made.columns[0].mapping, "s1")
    assert codec.of_text(text_of_literal(raw), True) == RowWriter(made, "s1").literals([value])[0]


LATIN = Column("v", ValueKind.STRING, "varchar(20)", True, charset="latin1", collation="latin1_bin")


def latin(*rules: RowFilter) -> TablePlan:
    made = table_plan((integer(), LATIN), (0, 1), mapping=MAPPED)
    return replace(made, filters=rules, may_lack_rows=bool(rules), text_as_utf8=True)


def test_text_becomes_utf8_after_the_rules() -> None:
    made = RowStage(cast(ServerFilter, Asked()), Bucket(0, 1))
    with_rule = latin(RowFilter("r", (0,), insert="ABS(id) = 1"))
    table = TableStage(with_rule, cast(ServerFilter, Asked()))
    decoded = RowWriter(as_decoded(with_rule), "s1").literals([b"7", b"\xdf"])
    assert decoded == (b"7", b"_latin1 X'DF'")
    expected = RowWriter(latin(), "s1").literals([b"7", b"\xdf"])
    assert expected == (b"%d" % (7 | MAPPED.prefix), "'ß'".encode())
    assert table.mapped(decoded) == table.key(decoded) == expected
    made.set_plans([with_rule])
    assert made.decoded_by(with_rule) == as_decoded(with_rule)


def test_the_target_does_not_evaluate_text_in_a_character_set_that_it_lacks() -> None:
    with_rule = latin(RowFilter("r", (1,), "v = 'x'", "v = 'x'", "v = 'x'", "v = 'x'"))
    made, asked = stage()
    made.set_plans([with_rule])
    change = RowChange(0, 0, ChangeKind.INSERT, made.decoded_by(with_rule), (), row(1, "x"))
    with pytest.raises(ShardmergeError, match="lacks character set latin1 of column v") as caught:
        made.evaluate([change], place)
    assert caught.value.spec is errors.replicate.EXPRESSION_FAILED
    assert asked.questions == []


def test_other_literals_give_their_value_back() -> None:
    assert text_of_literal(b"NULL") is None
    assert text_of_literal(b"-12.5") == b"-12.5"
    assert text_of_literal(b"X'00FF'") == b"\x00\xff"
    assert text_of_literal(b"'2024-01-01'") == b"2024-01-01"
