"""The benchmark's other pure pieces: what it is asked to do, ids, folded stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.worker.rules.column_mapping import partition_id
from tests.benchmarks.profiling import Hot, hottest
from tests.benchmarks.settings import PARTS, parse
from tests.benchmarks.task import ORIGINAL_BITS, merged_id

ON_REQUEST = {
    "start",
    "rules",
    "pre-created",
    "shard-ddl",
    "shard-ddl-latency",
    "shard-tables",
    "scale",
    "scraping",
    "composite-keys",
}


def test_everything_runs_in_order_except_the_parts_on_request() -> None:
    assert parse([], Path()).parts == tuple(part for part in PARTS if part not in ON_REQUEST)
    assert parse(["--with-rules"], Path()).parts == tuple(part for part in PARTS if part not in ON_REQUEST - {"rules"})
    assert parse(["--with-rules", "--only", "decode"], Path()).parts == ("decode", "rules")
    chosen = parse(["--only", "shard-ddl", "--shard-tables", "8,64"], Path())
    assert (chosen.parts, chosen.shard_tables) == (("shard-ddl",), (8, 64))


def test_the_quick_run_has_no_large_transaction() -> None:
    settings = parse(["--quick"], Path())
    assert settings.parts == tuple(part for part in PARTS if part not in ON_REQUEST | {"memory"})
    assert settings.rows < parse([], Path()).rows


def test_parts_by_name_are_compared_when_they_change_the_merged_table() -> None:
    assert parse(["--only", "drain,full"], Path()).parts == ("full", "drain", "verify")
    assert parse(["--only", "decode"], Path()).parts == ("decode",)
    assert parse(["--only", "memory", "--quick"], Path()).parts == ("memory",)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "drain,dry"], Path())
    assert "no such part: dry" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "table", "original"), [(1, 1, 1), (2, 4, 250_000), (2, 3, (1 << ORIGINAL_BITS) - 1)]
)
def test_merged_ids_are_those_of_the_rule(source: int, table: int, original: int) -> None:
    rule = partition_id("sbtest", f"sbtest{table}", (str(source), "", "sbtest"), case_sensitive=False)
    assert rule.bits == ORIGINAL_BITS
    assert merged_id(source, table, original) == rule.prefix | original


def test_threads_that_wait_are_no_hot_ones() -> None:
    found = hottest(
        [
            "run (lane.py:1);decode (decoder.py:2) 6",
            "run (lane.py:1);add (batch.py:3) 2",
            "run (lane.py:1);run (lane.py:1) 2",
            "_feed (lane.py:9);wait (threading.py:320) 90",
            "without a count",
        ]
    )
    assert found.samples == 10
    assert found.own[0] == Hot(0.6, "decode (decoder.py:2)")
    # A function that calls itself counts once.
    assert found.below[0] == Hot(1.0, "run (lane.py:1)")
