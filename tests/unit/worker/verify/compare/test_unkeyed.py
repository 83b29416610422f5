"""Which shard tables without a key are compared together, and how their sums are added up."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.verify.compare.compared_tables import UnkeyedTables, unkeyed_tables
from shardmerge.worker.verify.compare.unkeyed import added_sums, with_changes
from tests.unit.worker.target.tables.test_row_ownership import TARGET, shard

NO_KEY = replace(TARGET, key=(), key_name="", unique_keys=())


def plan(number: int) -> TablePlan:
    return replace(shard(number, None), key=())


def why(plans: list[TablePlan], target: Table | None, everyone: list[TablePlan] | str) -> list[str]:
    found = unkeyed_tables(plans, target, everyone, may_divide=True)
    assert isinstance(found, list)
    return [item.why for item in found]


def test_all_shard_tables_of_the_target_are_counted() -> None:
    mine, other, elsewhere = [plan(0), plan(1)], plan(2), replace(plan(3), target_table="elsewhere")
    found = unkeyed_tables(mine, NO_KEY, [*mine, other, elsewhere], may_divide=True)
    assert isinstance(found, UnkeyedTables)
    assert (found.plans, found.shard_tables) == (tuple(mine), 3)
    assert len(list(found.source_sums())) == 2
    assert found.target_sums().endswith(f"FROM {mine[0].target_name}".encode())


def test_why_a_table_is_not_compared() -> None:
    assert why([plan(0)], NO_KEY, "source s2 does not replicate yet") == [
        "it has no key, and source s2 does not replicate yet"
    ]
    assert why([plan(0), plan(1)], None, [plan(0), plan(1)]) == ["the target table does not exist"] * 2


def test_sums_of_several_tables_are_added_up() -> None:
    rows: list[list[bytes | None]] = [
        [b"3", b"3", b"18446744073709551615", b"1"],
        [b"2", b"1", b"5", b"0"],
        [b"0", b"0", b"0", b"0"],
    ]
    sums = added_sums(iter(rows))
    assert (sums.rows, sums.first, sums.second) == (5, str((1 << 64) + 4), "1")
    assert sums.without_checksum == 1


def test_rows_of_events_replace_what_they_changed() -> None:
    def sums(rows: int, first: int, second: int, without: int = 0) -> pb.ChecksumSums:
        return pb.ChecksumSums(rows=rows, first=str(first), second=str(second), without_checksum=without)

    # Two updates and an insert of a row without a checksum, in a table of five rows.
    found = with_changes(sums(5, 1 << 66, 70), sums(2, 1 << 65, 30), sums(3, 5, 2, 1))
    assert found == sums(6, (1 << 65) + 5, 42, 1)
    assert with_changes(sums(5, 7, 9), pb.ChecksumSums(), pb.ChecksumSums()) == sums(5, 7, 9)


def tables(mine: list[TablePlan], everyone: list[TablePlan], target: Table = NO_KEY, **more: bool) -> UnkeyedTables:
    found = unkeyed_tables(mine, target, everyone, may_divide=more.get("may_divide", True))
    assert isinstance(found, UnkeyedTables)
    return found


def test_only_own_rows_are_compared_under_writers() -> None:
    mine, other = [plan(0), plan(1)], replace(plan(2), source="other")
    for everyone, target, expected in (
        (mine, NO_KEY, True),
        ([*mine, other], NO_KEY, False),
        (mine, replace(NO_KEY, engine="Aria"), False),
        ([*mine, replace(other, target_table="elsewhere")], NO_KEY, True),
    ):
        found = tables(mine, everyone, target)
        assert (found.is_own, found.condition, found.division) == (expected, "", "")


def test_each_source_reads_its_own_rows_where_ids_show_them() -> None:
    mine, other = replace(shard(0, 1 << 44), key=()), replace(shard(0, 2 << 44), key=(), source="zz")
    [ours, theirs] = [tables([each], everyone) for each, everyone in ((mine, [mine, other]), (other, [other, mine]))]
    assert ours.is_own and theirs.is_own
    assert ours.division == theirs.division != ""
    assert theirs.target_sums().endswith(f" WHERE `id` BETWEEN {2 << 44} AND {(3 << 44) - 1}".encode())
    assert ours.target_sums().endswith(f" WHERE NOT COALESCE({theirs.condition}, 0)".encode())
    assert ours.target_sums("copy").endswith(b" FROM copy")  # of rows that are known to be the source's
    assert ours.form == theirs.form
    further = replace(other, shard=1, columns=replace(shard(1, 3 << 44)).columns)
    assert tables([mine], [mine, other, further]).division not in ("", ours.division)
    quiet = tables([mine], [mine, other], may_divide=False)
    assert (quiet.is_own, quiet.condition, quiet.division) == (False, "", "")
    moved = tables([mine], [mine, other], replace(NO_KEY, engine="Aria"))
    assert (moved.is_own, moved.division) == (False, ours.division)
