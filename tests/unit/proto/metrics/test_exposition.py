"""Tests the text that Prometheus reads."""

from __future__ import annotations

import pytest

from shardmerge.proto.metrics import dm_other, dm_syncer, own_worker
from shardmerge.proto.metrics.catalogue import CATALOGUE
from shardmerge.proto.metrics.distribution import LAGS, Histogram
from shardmerge.proto.metrics.exposition import exposition
from tests.support.metrics import parse


def _lines(text: bytes) -> list[str]:
    return text.decode().splitlines()


def test_a_counter_of_dm_without_total_has_both_names() -> None:
    of = {"task": "t", "source_id": "s", "resumable_err": "true"}
    lines = _lines(exposition([dm_syncer.EXIT_WITH_ERROR.sample(3, **of)]))
    labels = '{resumable_err="true",source_id="s",task="t"}'
    assert f"dm_syncer_exit_with_error_count{labels} 3.0" in lines
    assert f"dm_syncer_exit_with_error_count_total{labels} 3.0" in lines
    assert "# TYPE dm_syncer_exit_with_error_count untyped" in lines
    assert "# TYPE dm_syncer_exit_with_error_count_total counter" in lines


def test_a_counter_with_total_has_one_name() -> None:
    lines = _lines(exposition([own_worker.RELAY_WRITTEN.sample(7, source_id="s")]))
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE dm_relay_written_bytes_total counter",
        'dm_relay_written_bytes_total{source_id="s"} 7.0',
    ]


def test_labels_with_quotes_line_breaks_and_backslashes_are_escaped() -> None:
    name = 'a "b"\n\\c'
    text = exposition([own_worker.SYNCED.sample(1, task=name, source_id="s")])
    assert len(_lines(text)) == 3
    assert [dict(each.labels) for each in parse(text.decode()).series] == [{"task": name, "source_id": "s"}]


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram(LAGS)
    for value in (0.5, 0.6, 5_000.0):
        histogram.observe(value)
    of = {"task": "t", "source_id": "s", "worker": "w"}
    found = parse(exposition([dm_syncer.REPLICATION_LAG_HISTOGRAM.sample(histogram.read(), **of)]).decode())
    name = "dm_syncer_replication_lag"
    assert [found.one(f"{name}_bucket", le=bound) for bound in ("0.5", "1.0", "1024.0", "+Inf")] == [1, 2, 2, 3]
    assert (found.one(f"{name}_count"), found.one(f"{name}_sum")) == (3, 5_001.1)


def test_samples_of_one_family_are_together() -> None:
    lines = _lines(
        exposition(
            [
                dm_other.RELAY_SPACE.sample(1, type="capacity"),
                dm_other.RELAY_CORRUPTION.sample(0),
                dm_other.RELAY_SPACE.sample(2, type="available"),
            ]
        )
    )
    assert sum(line.startswith("# TYPE dm_relay_space ") for line in lines) == 1
    first = lines.index('dm_relay_space{type="capacity"} 1.0')
    assert lines[first + 1] == 'dm_relay_space{type="available"} 2.0'


def test_a_sample_needs_the_labels_of_its_family() -> None:
    with pytest.raises(ValueError, match="dm_task_synced"):
        own_worker.SYNCED.sample(1, task="t")


def test_what_is_not_exported_has_no_sample() -> None:
    with pytest.raises(ValueError, match="dm_syncer_queue_size"):
        CATALOGUE["dm_syncer_queue_size"].sample(1, task="t", queue_id="1", source_id="s")
