"""Tables without a key: sums of all sources against the target's."""

from __future__ import annotations

from shardmerge.ctl.render.compare_multisets import judge_multisets
from shardmerge.ctl.render.compare_result import DIFFERENT, SAME, UNKNOWN, exit_code, unknown_names
from shardmerge.proto import compare_pb2 as pb


def sums(rows: int, first: int, second: int, without: int = 0) -> pb.ChecksumSums:
    return pb.ChecksumSums(rows=rows, first=str(first), second=str(second), without_checksum=without)


def part(
    source: str, ours: pb.ChecksumSums, theirs: pb.ChecksumSums, *, form: str = "f", wanted: int = 2
) -> pb.ComparedTable:
    return pb.ComparedTable(
        source=source,
        source_table=f"shop_{source}.a",
        target_table="shop.t",
        rows=ours.rows,
        not_compared="it has no key",
        multiset=pb.Multiset(source=ours, target=theirs, compared=1, shard_tables=wanted, form=form),
    )


BIG = 1 << 70  # sums are larger than 64 bits
TARGET = sums(5, 7 + BIG, 9)


def test_the_sums_of_all_sources_are_the_targets() -> None:
    tables = [part("s1", sums(2, 3, 4), TARGET), part("s2", sums(3, 4 + BIG, 5), TARGET)]
    judge_multisets(tables)
    assert exit_code(tables, []) == SAME
    assert [table.not_compared for table in tables] == ["", ""]
    assert "5 rows in the shard tables, 5 at the target" in tables[0].remark


def test_other_rows_are_differences() -> None:
    for ours, counts in ((sums(3, 4 + BIG, 6), (0, 0, 1)), (sums(4, 1, 1), (1, 0, 0)), (sums(1, 1, 1), (0, 2, 0))):
        tables = [part("s1", sums(2, 3, 4), TARGET), part("s2", ours, TARGET)]
        judge_multisets(tables)
        assert exit_code(tables, []) == DIFFERENT
        assert (tables[0].missing, tables[0].extra, tables[0].different) == counts
        assert tables[0].unnamed == sum(counts)


def test_forms_with_equal_sums_of_the_target_are_added_up() -> None:
    """A source of MariaDB and one of MySQL read JSON in other ways."""
    for ours, code in ((sums(3, 4 + BIG, 5), SAME), (sums(3, 4 + BIG, 6), DIFFERENT)):
        tables = [part("s1", sums(2, 3, 4), TARGET), part("s2", ours, TARGET, form="g")]
        judge_multisets(tables)
        assert exit_code(tables, []) == code


def test_what_cannot_be_added_up_is_not_compared() -> None:
    good = part("s1", sums(2, 3, 4), TARGET)
    for tables, reason in (
        ([good], "1 of the target's 2 shard tables"),
        ([good, part("s2", sums(3, 4, 5), sums(5, 7, 8))], "the target changed"),
        ([good, part("s2", sums(3, 4, 5), sums(5, 7, 8), form="g")], "columns differ"),
        ([good, part("s2", sums(3, 4, 5, 1), TARGET)], "too long for a checksum"),
        ([good, part("s2", sums(3, 4, 5), TARGET, wanted=3)], "2 of the target's 3"),
    ):
        judge_multisets(tables)
        assert exit_code(tables, []) == UNKNOWN
        assert all(reason in table.not_compared for table in tables)


def test_each_shard_table_of_a_source_is_known_by_its_name() -> None:
    table = part("s1", sums(2, 3, 4), TARGET)
    table.source_table = "shop_1.a, shop_2.b"
    assert unknown_names(["shop_2.b", "shop.t", "shop_3.c"], [table]) == ["shop_3.c"]
