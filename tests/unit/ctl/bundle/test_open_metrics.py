"""Samples become one text in the OpenMetrics format, with the times of the samples."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

from shardmerge.ctl.bundle.open_metrics import newest, open_metrics, unpacked
from shardmerge.proto.metrics import dm_other, own_both
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.family import Sample


def _samples(value: float) -> list[Sample]:
    return [
        own_both.LOOP_AGE.sample(value, loop="one two"),
        own_both.CPU_SECONDS.sample(value),
        dm_other.START_LEADER.sample(value),
    ]


def _text() -> str:
    return open_metrics((1_700_000_000.0 + 30 * n, exposition(_samples(n)).decode()) for n in range(3))


def test_each_series_has_its_values_with_times() -> None:
    lines = _text().splitlines()
    first = lines.index('dm_loop_age_seconds{loop="one two"} 0.0 1700000000.000')
    assert lines[first : first + 3] == [
        f'dm_loop_age_seconds{{loop="one two"}} {n}.0 {1_700_000_000 + 30 * n}.000' for n in range(3)
    ]
    assert lines[-1] == "# EOF"
    assert sum(line == "# TYPE dm_loop_age_seconds gauge" for line in lines) == 1


def test_counters_are_described_without_total() -> None:
    lines = _text().splitlines()
    assert f"# TYPE {own_both.CPU_SECONDS.name.removesuffix('_total')} counter" in lines
    name = dm_other.START_LEADER.name
    assert [line for line in lines if line.startswith(f"# TYPE {name} ")] == [f"# TYPE {name} unknown"]
    assert f"{name} 2.0 1700000060.000" in lines and f"{name}_total 2.0 1700000060.000" in lines


def test_prometheus_can_load_it(tmp_path: Path) -> None:
    file = tmp_path / "metrics.om"
    file.write_text(_text())
    loaded = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", file, tmp_path / "data"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert " 12 " in loaded.stdout, loaded.stdout


def test_the_oldest_of_too_many_samples_are_left_out() -> None:
    large = zlib.compress(b"a 1\n" * (10 << 20))
    found = newest((float(number), large) for number in range(5))
    assert [at for at, _ in found] == [2.0, 3.0, 4.0]


def test_a_sample_that_is_none_has_no_text() -> None:
    assert unpacked(zlib.compress(b"a 1\n")) == "a 1\n"
    assert unpacked(b"no zlib") == ""
    assert unpacked(zlib.compress(b"a 1\n" * 1000)[:-9]) == ""
    assert unpacked(zlib.compress(b"\0" * (65 << 20))) == ""


def test_a_table_name_ends_no_line() -> None:
    """MySQL's names may hold characters that Python takes for the end of a line."""
    for mark in "\x0b\x1c\x85\u2028":
        sample = own_both.LOOP_AGE.sample(1.0, loop=f"or{mark}ders")
        text = open_metrics([(1_700_000_000.0, exposition([sample]).decode())])
        assert f'dm_loop_age_seconds{{loop="or{mark}ders"}} 1.0 1700000000.000\n' in text
