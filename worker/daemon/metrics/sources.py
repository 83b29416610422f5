"""Samples of the bound source and of its relay log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import common_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.worker.daemon.forecast.binlog_expiry import Expiry
from shardmerge.worker.daemon.forecast.figures import SourceForecast
from shardmerge.worker.daemon.metrics.binlog_place import file_and_position
from shardmerge.worker.daemon.metrics.figures import SourceFigures


def source_samples(figures: SourceFigures, silent_seconds: float | None, *, has_lease: bool) -> Iterator[Sample]:
    """``silent_seconds``: since an event or a heartbeat of the source last arrived, None: none has. ``has_lease``:
    without it another worker may have the source: then only that one describes the source's state."""
    status, relay, fetched = figures.status, figures.relay, figures.relay.fetched
    of = {"source_id": figures.source}
    if has_lease:
        yield from _state(figures, silent_seconds, of)
    yield own_worker.RELAY_BYTES.sample(status.bytes_on_disk, **of)
    yield own_worker.RELAY_FILES.sample(relay.files, **of)
    yield own_worker.RELAY_WRITTEN.sample(fetched.bytes_written, **of)
    for node, text in (("master", status.master_binlog), ("relay", status.relay_binlog)):
        place = file_and_position(text)
        if place is not None:
            yield dm_other.RELAY_FILE.sample(place[0], node=node)
            yield dm_other.RELAY_POS.sample(place[1], node=node)
    if relay.space is not None:
        yield dm_other.RELAY_SPACE.sample(relay.space.capacity, type="capacity")
        yield dm_other.RELAY_SPACE.sample(relay.space.available, type="available")
    yield dm_other.RELAY_CORRUPTION.sample(fetched.damaged)
    yield dm_other.RELAY_WRITE_SIZE.sample(fetched.write_bytes)
    yield dm_other.RELAY_WRITE_DURATION.sample(fetched.write_seconds)
    yield dm_other.RELAY_WRITE_ERROR.sample(fetched.write_errors)
    yield dm_other.RELAY_READ_ERROR.sample(fetched.read_errors)
    yield dm_other.RELAY_EXIT.sample(fetched.resumable, resumable_err="true")
    yield dm_other.RELAY_EXIT.sample(fetched.final, resumable_err="false")


def _state(figures: SourceFigures, silent_seconds: float | None, of: dict[str, str]) -> Iterator[Sample]:
    status = figures.status
    runs = status.stage == common_pb2.STAGE_RUNNING and not status.HasField("result")
    yield own_worker.CONNECTED.sample(runs and not status.paused, **of)
    if silent_seconds is not None:
        yield own_worker.SOURCE_SILENT.sample(silent_seconds, **of)
    yield own_worker.RELAY_PAUSED.sample(status.paused, **of)
    yield own_worker.RELAY_CAUGHT_UP.sample(status.relay_catch_up_master, **of)
    yield from _forecast(figures.forecast, of)


def _forecast(forecast: SourceForecast, of: dict[str, str]) -> Iterator[Sample]:
    expiry, disk = forecast.expiry, forecast.disk
    if isinstance(expiry, Expiry):
        yield own_worker.RETENTION.sample(expiry.kept, **of)
        yield own_worker.RETENTION_LEFT.sample(expiry.left, **of)
        if expiry.due is not None:
            yield own_worker.BINLOG_EXPIRES.sample(expiry.due, **of)
    if disk is not None and disk.full_in is not None:
        yield own_worker.RELAY_FULL.sample(disk.full_in, **of)
    if forecast.source_clock is not None and forecast.source_clock.is_certain:
        yield own_worker.CLOCK_DIFFERENCE.sample(forecast.source_clock.ahead, **of, task="", of="source")
    for task, clock in sorted(forecast.target_clocks.items()):
        if clock.is_certain:
            yield own_worker.CLOCK_DIFFERENCE.sample(clock.ahead, **of, task=task, of="target")
