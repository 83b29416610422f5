"""What dmctl makes of a comparison: exit code, report file, table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from shardmerge.ctl import as_json
from shardmerge.ctl.render import compare_table
from shardmerge.ctl.render.compare_result import (
    DIFFERENT,
    SAME,
    UNKNOWN,
    ComparisonResult,
    ReportFile,
    answer,
    conclude,
    exit_code,
    judge_multisets,
    unknown_names,
)
from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.rpc.coded_errors import error_to_proto


def table(**counts: object) -> pb.ComparedTable:
    named = {"source": "s1", "source_table": "shop_1.order_1", "target_table": "shop.orders", "rows": 7, **counts}
    return pb.ComparedTable(**named)  # pyright: ignore[reportArgumentType]


def ended(*tables: pb.ComparedTable, error: errors.ShardmergeError | None = None) -> ComparisonResult:
    outcome = ComparisonResult()
    detail = error_to_proto(error) if error is not None else None
    outcome.take(pb.CompareFrame(source="s1", end=pb.CompareEnd(tables=tables, error=detail)))
    return outcome


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({}, SAME),
        ({"extra_unsought": "why"}, SAME),
        ({"missing": 1}, DIFFERENT),
        ({"extra": 1, "repaired": 1}, SAME),
        ({"different": 2, "repaired": 1, "unjudged": 1}, DIFFERENT),
        ({"orphans": 1}, DIFFERENT),
        ({"unjudged": 1}, UNKNOWN),
        ({"not_compared": "no key"}, UNKNOWN),
        ({"left_out": True}, SAME),
    ],
)
def test_exit_code(counts: dict[str, object], code: int) -> None:
    assert exit_code([table(), table(**counts)], []) == code
    assert exit_code([table(**counts)], ["an error"]) == (code or UNKNOWN)


def test_an_error_of_one_source_is_reported_and_leaves_the_others_result() -> None:
    code, report = conclude(ended(table(), error=errors.compare.ALREADY_RUNNING(task="t", source="s1")), [], "t")
    assert code == UNKNOWN
    assert report is not None
    assert report.code == errors.compare.ALREADY_RUNNING.code


def test_a_result_that_has_not_arrived_is_not_taken_as_equal() -> None:
    """A master that stops in the middle of a comparison ends the frames."""
    nothing = ComparisonResult()
    code, report = conclude(nothing, [], "t")
    assert (code, report.code if report else 0) == (UNKNOWN, errors.compare.INTERRUPTED.code)
    one = ended(table())
    one.take(pb.CompareFrame(source="s2", progress=pb.CompareProgress(rows=5)))
    code, report = conclude(one, [], "t")
    assert code == UNKNOWN
    assert report is not None
    assert "the result of s2" in report.message


def test_a_repair_reports_what_was_found_and_what_is_left() -> None:
    repaired = ended(table(missing=1, extra=1, repaired=2), table())
    assert answer(repaired, SAME, "", 1.0, repair=True).msg == "2 differences found, 2 repaired, 0 left"
    part = ended(table(missing=2, repaired=1), table(not_compared="no key"))
    told = answer(part, DIFFERENT, "", 1.0, repair=True, is_whole=False)
    verdict = "2 differences found, 1 repaired, 1 left; not everything could be judged: shop.orders ("
    assert told.msg.startswith(verdict)
    assert answer(ended(table()), SAME, "", 1.0, repair=True).msg == "no differences"
    assert answer(ended(table()), UNKNOWN, "", 1.0).msg == "not everything could be judged"


def test_the_tables_of_a_source_that_has_stopped_do_not_look_equal() -> None:
    """Of two sources that could not be compared the error of one is reported, and a count of 0 is no result."""
    outcome = ended(table(rows=0, extra_unsought="why"), error=errors.compare.ALREADY_RUNNING(task="t", source="s1"))
    lost = error_to_proto(errors.compare.RELAY_CHANGED(task="t", source="s2"))
    outcome.take(pb.CompareFrame(source="s2", end=pb.CompareEnd(tables=[table(source="s2", rows=0)], error=lost)))
    outcome.take(pb.CompareFrame(source="s3", end=pb.CompareEnd(tables=[table(source="s3")])))
    told = answer(outcome, UNKNOWN, "", 1.0)
    assert told.msg == "not everything could be judged: all tables of s1, s2"
    assert [one.remark[:20] for one in told.tables] == ["not finished: [45005", "not finished: [45003", ""]
    console = Console(width=200)
    with console.capture() as shown:
        console.print(compare_table.compared(told))
    assert shown.get().count("not finished: [4500") == 2


def test_a_table_that_is_none_is_reported() -> None:
    outcome = ended(table())
    assert conclude(outcome, ["shop.orders", "shop_1.order_1"], "t") == (SAME, None)
    code, report = conclude(outcome, ["shop.order"], "t")
    assert (code, report.code if report else 0) == (UNKNOWN, errors.compare.TABLE_UNKNOWN.code)


def test_the_report_names_rows_and_reports_what_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    report = ReportFile(path)
    value = pb.ComparedValue(column="note", source="", target_is_null=True)
    report.add(
        "s1",
        pb.RowDifference(
            kind=pb.RowDifference.KIND_DIFFERENT,
            source_table="shop_1.order_1",
            target_table="shop.orders",
            key=[pb.ComparedValue(column="id", source="7")],
            columns=[value],
            not_repaired="it changed in every attempt",
        ),
    )
    report.cut(table(unnamed=12))
    assert report.close() == str(path)
    row, cut = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert row == {
        "source": "s1",
        "sourceTable": "shop_1.order_1",
        "targetTable": "shop.orders",
        "kind": "different",
        "key": {"id": "7"},
        "columns": {"note": {"source": "", "target": None}},
        "repaired": False,
        "notRepaired": "it changed in every attempt",
    }
    assert cut["notNamed"] == 12


def test_a_report_without_rows_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert ReportFile(path).close() == ""
    assert not path.exists()
    with pytest.raises(errors.ShardmergeError):
        ReportFile(tmp_path / "nowhere" / "rows.jsonl")


def test_the_table_reports_what_was_not_looked_at() -> None:
    outcome = ended(table(missing=3, unnamed=1), table(not_compared="it has no key"), table(extra_unsought="mixed"))
    told = answer(outcome, DIFFERENT, "rows.jsonl", 2.5)
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(compare_table.compared(told))
    text = captured.get()
    for words in (
        "not compared: it has no key",
        "extra rows not searched for: mixed",
        "3 differences",
        "rows.jsonl",
        "1 more",
    ):
        assert words in text
    assert as_json.to_value(told)["result"] is False


def test_progress_of_all_sources_in_one_line() -> None:
    outcome = ComparisonResult()
    for source, complete in (("s1", True), ("s2", False)):
        progress = pb.CompareProgress(
            finished_chunks=2, total_chunks=5, plan_complete=complete, rows=1000, differences=1
        )
        outcome.take(pb.CompareFrame(source=source, progress=progress))
    assert outcome.line() == "4 of 10+ chunks, 2,000 rows, 2 differences"


def test_references_are_a_table_of_their_own() -> None:
    outcome = ended(table(reference="orders.user_id to users.id", orphans=3), table(reference="a to b"))
    code, report = conclude(outcome, [], "t", references=True)
    assert (code, report) == (DIFFERENT, None)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(compare_table.compared(answer(outcome, code, "", 1.0)))
    assert "orders.user_id to users.id" in capture.get()
    assert "3 differences" in capture.get()


def test_no_reference_and_a_worker_that_compares_rows() -> None:
    for outcome, spec in (
        (ended(), errors.compare.NO_REFERENCES),
        (ended(table()), errors.compare.NOT_REFERENCES),
    ):
        code, report = conclude(outcome, [], "t", references=True)
        assert code == UNKNOWN
        assert report is not None
        assert str(spec.code) in report.lines()


def test_the_verdict_names_what_was_not_judged_and_what_was_left_out() -> None:
    changing = table(target_table="shop.visits", source_table="shop_1.visits", unjudged=1, not_compared="it changed")
    outcome = ended(table(), changing)
    found = answer(outcome, UNKNOWN, "", 1.0)
    assert found.msg.startswith("not everything could be judged: shop.visits (") and "--leave-out" in found.msg
    differs = answer(ended(table(missing=1), changing), DIFFERENT, "", 1.0, is_whole=False)
    assert differs.msg.startswith("1 differences; not everything could be judged: shop.visits (")
    left = ended(table(), table(target_table="shop.visits", source_table="shop_1.visits", left_out=True, rows=0))
    assert conclude(left, ["shop.visits"], "t") == (SAME, None)
    assert answer(left, SAME, "", 1.0).msg == "no differences; left out: shop.visits"
    code, report = conclude(left, ["shop.visit"], "t")
    assert code == UNKNOWN and report is not None
    console = Console(width=200, record=True)
    console.print(compare_table.compared(answer(left, SAME, "", 1.0)))
    [line] = [line for line in console.export_text().splitlines() if "shop_1.visits" in line]
    assert "left out" in line


def sums(rows: int, first: int, second: int, without: int = 0) -> pb.ChecksumSums:
    return pb.ChecksumSums(rows=rows, first=str(first), second=str(second), without_checksum=without)


def part(
    source: str,
    ours: pb.ChecksumSums,
    theirs: pb.ChecksumSums,
    *,
    form: str = "f",
    wanted: int = 2,
    division: str = "",
) -> pb.ComparedTable:
    return pb.ComparedTable(
        source=source,
        source_table=f"shop_{source}.a",
        target_table="shop.t",
        rows=ours.rows,
        not_compared="it has no key",
        multiset=pb.Multiset(source=ours, target=theirs, compared=1, shard_tables=wanted, form=form, division=division),
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


def test_a_source_with_rows_of_its_own_is_judged_alone() -> None:
    """Also where other sources have as many differences, of the opposite sign."""
    mine = sums(2, 3, 4)
    for theirs, counts in (
        (sums(3, 9, 9), (0, 0, 0)),
        (sums(2, 9, 9), (1, 0, 0)),
        (sums(4, 9, 9), (0, 1, 0)),
        (sums(3, 8, 9), (0, 0, 1)),
    ):
        first, other = part("s1", mine, sums(1, 1, 1), division="d"), part("s2", sums(3, 9, 9), theirs, division="d")
        judge_multisets([first, other])
        assert (first.missing, first.extra, first.different, first.not_compared) == (1, 0, 0, "")
        assert (other.missing, other.extra, other.different, other.not_compared) == (*counts, "")
    same = [part("s1", mine, mine, division="d"), part("s2", sums(3, 9, 9), sums(3, 9, 9), form="g", division="d")]
    judge_multisets(same)
    assert exit_code(same, []) == SAME
    assert "3 rows in the shard tables, 3 at the target" in same[1].remark


def test_what_cannot_be_added_up_is_not_compared() -> None:
    good = part("s1", sums(2, 3, 4), TARGET)
    for tables, reason in (
        ([good], "1 of the target's 2 shard tables"),
        ([good, part("s2", sums(3, 4, 5), sums(5, 7, 8))], "the target changed"),
        ([good, part("s2", sums(3, 4, 5), sums(5, 7, 8), form="g")], "columns differ"),
        ([good, part("s2", sums(3, 4, 5, 1), TARGET)], "too long for a checksum"),
        ([good, part("s2", sums(3, 4, 5), TARGET, wanted=3)], "2 of the target's 3"),
        ([good, part("s2", sums(3, 4 + BIG, 5), TARGET, division="d")], "divide its rows in different ways"),
        ([part("s1", sums(2, 3, 4), sums(2, 3, 4), division="d")], "1 of the target's 2 shard tables"),
    ):
        judge_multisets(tables)
        assert exit_code(tables, []) == UNKNOWN
        assert all(reason in table.not_compared for table in tables)


def test_each_shard_table_of_a_source_is_known_by_its_name() -> None:
    table = part("s1", sums(2, 3, 4), TARGET)
    table.source_table = "shop_1.a, shop_2.b"
    assert unknown_names(["shop_2.b", "shop.t", "shop_3.c"], [table]) == ["shop_3.c"]
