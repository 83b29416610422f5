"""Filters that need no server: in the decoder's short way, its long way, and the chunk reader's rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.rows.row_filter import compile_filters, is_local
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table_plan import AddPrefix, PartitionId, RowFilter, TablePlan
from shardmerge.worker.snapshot.source.text_rows import RowJoiner, join_rows
from tests.support.all_types import TABLE
from tests.support.binlog import Binlog, only, plan_of, read_binlog

BINLOG = read_binlog(Path(__file__).parents[1] / "data" / "mariadb-10.11.binlog")
PLAN = replace(plan_of(TABLE), may_lack_rows=True)
IDS, TI, TU, INT = 0, 1, 2, 7


def filtered(*rules: RowFilter, mapped: bool = False, keyed: bool = True) -> TablePlan:
    plan = replace(PLAN, filters=rules, key=PLAN.key if keyed else ())
    if mapped:
        # One that the rules read, and one that they do not.
        mappings = {"tu": PartitionId(1 << 55, 55), "vc": AddPrefix("p-")}
        columns = (replace(item, mapping=mappings.get(item.target_name, item.mapping)) for item in plan.columns)
        plan = replace(plan, columns=tuple(columns))
    return plan


def rule(**texts: str) -> RowFilter:
    """About id, ti, tu and i."""
    return RowFilter("r", (IDS, TI, TU, INT), **texts)


def number(literal: bytes) -> int | None:
    return None if literal == b"NULL" else int(literal)


def above(row: Literals, limit: int) -> bool:
    value = number(row[IDS])
    return value is not None and value > limit


def decoder_of(plan: TablePlan, lane: int = 0, lanes: int = 1, *, filters: bool = True) -> BlockDecoder:
    decoder = BlockDecoder(only(plan), source="s1", bucket=Bucket(lane, lanes), filters=filters)
    decoder.open(BINLOG.format_description)
    return decoder


def pos(change: RowChange, binlog: Binlog = BINLOG) -> int:
    return int.from_bytes(binlog.events[change.byte + 13 : change.byte + 17], "little")


def contents(batch: Batch) -> object:
    keys = {
        name: {key: (item.existed, item.existence_unknown, item.image, item.position) for key, item in keys.items()}
        for name, keys in batch.targets()
    }
    return keys, batch.unkeyed, batch.changes, batch.size


def left_of(plan: TablePlan, inserts: int, old: int, new: int, deletes: int) -> list[RowChange]:
    """What is left of all changes, one by one: ids above these limits are passed over."""
    raw = decoder_of(replace(PLAN, filters=()), filters=False).decode(BINLOG.events)
    final = decoder_of(plan, filters=False).decode(BINLOG.events)
    left: list[RowChange] = []
    for was, change in zip(raw, final, strict=True):
        match was.kind:
            case ChangeKind.INSERT:
                gone = above(was.after, inserts)
            case ChangeKind.DELETE:
                gone = above(was.before, deletes)
            case _:
                gone = above(was.before, old) and above(was.after, new)
        if not gone:
            left.append(change)
    return left


LIMIT = st.integers(-1, 30) | st.just(1001)


# All inserts are filtered out, by a column that has a mapping: random examples alone do not always have this.
@example(-1, 1001, 1001, 1001, 1, True, True)
@given(LIMIT, LIMIT, LIMIT, LIMIT, st.integers(1, 4), st.booleans(), st.booleans())
def test_all_ways_leave_the_same_changes(
    inserts: int, old: int, new: int, deletes: int, lanes: int, mapped: bool, keyed: bool
) -> None:
    plan = filtered(
        rule(insert=f"id > {inserts} AND (tu IS NULL OR tu < 256)"),
        rule(update_old=f"id > {old}", update_new=f"NOT id <= {new}"),
        rule(delete=f"id > {deletes} AND (ti IS NULL OR ti = ti OR i = 1)"),
        mapped=mapped,
        keyed=keyed,
    )
    left = left_of(plan, inserts, old, new, deletes)
    assert decoder_of(plan).decode(BINLOG.events) == left
    for lane in range(lanes):
        short, long = Batch(lane, lanes, "f"), Batch(lane, lanes, "f")
        decoder_of(plan, lane, lanes).pick(BINLOG.events, 0, "f", short)
        for change in left:
            long.add(change, pos(change))
        assert contents(short) == contents(long)


def test_a_rule_of_one_kind_leaves_the_others() -> None:
    everything = decoder_of(PLAN).decode(BINLOG.events)
    for text, kind in (("insert", 1), ("update_new", 2), ("delete", 3)):
        found = decoder_of(filtered(rule(**{text: "id >= 0"}))).decode(BINLOG.events)
        assert found == [replace_plan(change, found) for change in everything if change.kind != kind]
        assert 0 < len(found) < len(everything)


def replace_plan(change: RowChange, found: list[RowChange]) -> RowChange:
    return RowChange(change.byte, change.event, change.kind, found[0].plan, change.before, change.after)


def test_several_rules_of_one_kind_each_pass_over() -> None:
    found = decoder_of(filtered(rule(insert="id = 1"), rule(insert="id = 2"))).decode(BINLOG.events)
    ids = [change.after[0] for change in found if change.kind is ChangeKind.INSERT]
    assert b"1" not in ids
    assert b"2" not in ids
    assert b"3" in ids


def test_a_chunk_sees_all_changes() -> None:
    """They make its rows those at its high watermark (I4); the filter is asked of these."""
    plan = filtered(rule(insert="id >= 0"))
    assert len(decoder_of(plan, filters=False).decode(BINLOG.events)) == len(decoder_of(PLAN).decode(BINLOG.events))


@pytest.mark.parametrize(
    ("text", "here"), [("id = 1", True), ("id = 'a'", False), ("ti + i > 0", True), ("bi > 5", True)]
)
def test_what_needs_a_server(text: str, here: bool) -> None:
    plan = replace(PLAN, filters=(RowFilter("r", (IDS, TI, INT, 9), delete=text),))
    assert is_local(plan) is here
    assert (compile_filters(plan) is not None) is here
    assert is_local(PLAN)
    assert compile_filters(PLAN) is None


ROW = st.tuples(st.integers(0, 9), st.none() | st.integers(-128, 127), st.none() | st.integers(-9, 9))


@given(st.lists(ROW, max_size=30), st.booleans())
def test_rows_of_a_chunk(rows: list[tuple[int, int | None, int | None]], mapped: bool) -> None:
    plan = filtered(rule(insert="ti > 0 OR i IS NULL"), rule(insert="id = 5"))
    columns = tuple(replace(plan.columns[at], index=place) for place, at in enumerate((IDS, TI, INT)))
    if mapped:
        columns = (replace(columns[0], mapping=PartitionId(1 << 55, 55)), *columns[1:])
    rules = tuple(replace(each, columns=(0, 1, 2)) for each in plan.filters)
    plan = replace(plan, columns=columns, filters=rules)
    writer = RowWriter(plan, "s1")
    texts = [[None if value is None else str(value).encode() for value in row] for row in rows]
    expected = [
        b",".join(writer.literals(text))
        for text, (key, ti, i) in zip(texts, rows, strict=True)
        if not ((ti is not None and ti > 0) or i is None or key == 5)
    ]
    joiner = RowJoiner(RowWriter(plan, "s1").codecs, compile_filters(plan))
    sent = b"".join(map(packet, texts)) + b"\x05\x00\x00\xff\xfe\x00\x00\x02\x00"
    got: list[bytes] = []
    join_rows(sent, joiner, 3, got)
    assert got == expected
    assert [joined for text in texts if (joined := joiner.joined(text))] == expected


def packet(row: list[bytes | None]) -> bytes:
    payload = b"".join(b"\xfb" if value is None else bytes([len(value)]) + value for value in row)
    return len(payload).to_bytes(3, "little") + b"\x00" + payload
