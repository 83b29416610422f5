"""Judgements of the pre-checks that need no server."""

from __future__ import annotations

from random import Random

import pymysql
import pytest

from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql.server_clock import ClockReading
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId
from shardmerge.worker.verify.precheck.findings import what_to_correct
from shardmerge.worker.verify.precheck.id_ranges import highest_id
from shardmerge.worker.verify.precheck.keys.key_samples import SAMPLES, offsets, places, samples_each
from shardmerge.worker.verify.precheck.server_differences import collation_is_coarser, mode_differences
from shardmerge.worker.verify.precheck.source.binlog_retention import Binlogs, retention_shortage
from shardmerge.worker.verify.precheck.worker_capacity import disk_shortage, skewed

_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_DAY = 86400.0


@pytest.mark.parametrize(
    ("source", "target", "coarser"),
    [
        ("utf8mb4_bin", "utf8mb4_bin", False),
        ("utf8mb4_bin", "utf8mb4_general_ci", True),
        ("utf8mb4_general_ci", "utf8mb4_bin", False),
        ("utf8mb4_general_ci", "utf8mb4_general_ci", False),
        ("utf8mb3_general_ci", "utf8mb4_general_ci", False),
        ("utf8_general_ci", "utf8mb3_general_ci", False),
        ("utf8mb4_general_ci", "utf8mb4_unicode_ci", True),  # ß is s by the one, ss by the other
        ("utf8mb4_0900_as_cs", "utf8mb4_0900_ai_ci", True),
        ("utf8mb4_0900_as_ci", "utf8mb4_0900_ai_ci", True),
        ("utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs", False),
        ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci", False),
        ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci", True),  # trailing spaces
        ("utf8mb4_0900_bin", "utf8mb4_bin", True),
        ("utf8mb4_unicode_520_nopad_ci", "utf8mb4_unicode_520_ci", True),
        ("utf8mb4_unicode_520_ci", "utf8mb4_unicode_520_nopad_ci", False),
        ("latin1_swedish_ci", "latin1_german1_ci", True),
        ("latin1_general_cs", "latin1_general_ci", True),
        ("latin1_general_ci", "latin1_general_cs", False),
        ("latin1_general_ci", "utf8mb4_general_ci", True),
        ("latin1_swedish_ci", "utf8mb4_nopad_bin", False),
    ],
)
def test_collations_that_tell_less_apart(source: str, target: str, coarser: bool) -> None:
    assert collation_is_coarser(source, target) is coarser


def test_modes_that_change_a_meaning() -> None:
    assert mode_differences("STRICT_TRANS_TABLES,NO_ZERO_DATE", "") == []
    assert mode_differences("ANSI_QUOTES,STRICT_ALL_TABLES", "pipes_as_concat,ANSI_QUOTES") == [
        "PIPES_AS_CONCAT at the target alone"
    ]
    assert mode_differences("NO_BACKSLASH_ESCAPES", "") == ["NO_BACKSLASH_ESCAPES at the source alone"]


def test_clocks() -> None:
    assert skewed([ClockReading("source s1", 5.0, 0.0), ClockReading("target", 0.5, 0.1)]) == []
    assert skewed([ClockReading("source s1", 5.3, 0.5)]) == []  # it may be less
    assert skewed([ClockReading("source s1", 3.0, 0.0), ClockReading("target", -3.0, 0.0)]) == [
        "the clock of target is 6.0 s earlier than that of source s1"
    ]
    assert skewed([ClockReading("master", 60.0, 0.0)]) == ["the clock of master is 60.0 s later than that of worker"]


def test_disks() -> None:
    gib = 1 << 30
    assert disk_shortage(100 * gib, 15 * gib, 0.0) == ("", "")
    assert "less than purge.remain-space" in disk_shortage(14 * gib, 15 * gib, 0.0)[0]
    assert disk_shortage(100 * gib, 15 * gib, 84 * gib / _DAY) == ("", "")
    assert "grows by 86.0 GiB a day" in disk_shortage(100 * gib, 15 * gib, 86 * gib / _DAY)[0]


def test_retention() -> None:
    never = Binlogs(size=1000, age=10.0, purged=False, keeps=0.0)
    assert retention_shortage(never, 10 * _DAY) == ("", "")
    setting = Binlogs(size=1000, age=10 * _DAY, purged=True, keeps=_DAY)
    assert retention_shortage(setting, _DAY) == ("", "")
    kept, way_out = retention_shortage(setting, 2 * _DAY)
    assert kept == "the server removes its binary logs after 24 hours"
    assert "binlog_expire_logs_seconds = 345600;" in way_out and "expire_logs_days = 4)" in way_out
    # Whatever the setting: something else removes them.
    by_hand = Binlogs(size=1000, age=3600.0, purged=True, keeps=30 * _DAY)
    assert "begun 60 minutes ago and older ones are gone" in retention_shortage(by_hand, 2 * 3600)[0]
    assert retention_shortage(by_hand, 1800) == ("", "")


def test_growth_of_young_logs_is_not_known() -> None:
    assert Binlogs(6000, 59.0, purged=False, keeps=0.0).bytes_per_second == 0.0
    assert Binlogs(6000, 60.0, purged=False, keeps=0.0).bytes_per_second == 100.0


def test_holes_of_gtid_sets() -> None:
    assert GtidSet(f"{_UUID}:1-5").holes() == []
    assert GtidSet(f"{_UUID}:1-5:7:10-12:tag:1:3").holes() == [
        f"{_UUID}:6", f"{_UUID}:8-9", f"{_UUID}:tag:2",
    ]  # fmt: skip
    assert GtidSet("0-1-5,1-2-9").holes() == []


@pytest.mark.parametrize(
    ("type_text", "unsigned", "bits", "highest"),
    [
        ("tinyint(4)", False, None, 127),
        ("tinyint(3) unsigned", True, None, 255),
        ("mediumint unsigned", True, None, (1 << 24) - 1),
        ("int", False, None, (1 << 31) - 1),
        ("bigint unsigned", True, None, (1 << 64) - 1),
        ("bigint(20)", False, 44, (1 << 44) - 1),
        ("int(11)", False, 44, (1 << 31) - 1),
        ("double", False, None, 0),
    ],
)
def test_highest_id(type_text: str, unsigned: bool, bits: int | None, highest: int) -> None:
    column = Column("id", ValueKind.INTEGER, type_text, nullable=False, unsigned=unsigned, auto_increment=True)
    mapping = None if bits is None else PartitionId(1 << 60, bits)
    assert highest_id(ColumnPlan(0, column, "id", mapping)) == highest


def test_places_of_samples() -> None:
    random = Random(1)
    assert places(5, 7, 10, random) == [5, 6, 7]
    assert places(5, 5, 10, random) == [5]
    for _ in range(100):
        found = places(-1000, 999_999, 20, random)
        assert (found[0], found[-1], len(found)) == (-1000, 999_999, 20)
        assert found == sorted(found)
        width = 1_001_000 / 20
        assert all(part * width - 1 <= place + 1000 <= (part + 1) * width for part, place in enumerate(found))


def test_offsets_of_samples() -> None:
    random = Random(1)
    assert offsets(0, 10, random) == ([0], [0])
    begin, end = offsets(10_000_000, 20, random)
    assert begin[0] == end[0] == 0
    assert 1 < len(begin) <= 10 and max(*begin, *end) < 2000
    assert max(max(side) for side in offsets(6, 20, random)) < 3


def test_many_tables_are_sampled_less() -> None:
    assert samples_each(1) == SAMPLES
    assert samples_each(100_000) == 3
    assert samples_each(400) == 10


@pytest.mark.parametrize(
    ("errno", "begin"),
    [(1142, "Grant"), (1021, "Make space"), (1114, "Make space"), (1205, "Correct"), (1064, "Correct")],
)
def test_a_refused_query_names_what_its_number_means(errno: int, begin: str) -> None:
    found = what_to_correct(pymysql.OperationalError(errno, "as the server puts it"), "; then check-task again.")
    assert found.startswith(begin)
    assert found.endswith("; then check-task again.")
