"""Samples of the bound source and of its relay log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import common_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.worker.daemon.metrics.binlog_place import file_and_position
from shardmerge.worker.daemon.metrics.figures import SourceFigures


def source_samples(figures: SourceFigures) -> Iterator[Sample]:
    status, relay, fetched = figures.status, figures.relay, figures.relay.fetched
    of = {"source_id": figures.source}
    runs = status.stage == common_pb2.STAGE_RUNNING and not status.HasField("result")
    yield own_worker.CONNECTED.sample(runs and not status.paused, **of)
    yield own_worker.RELAY_BYTES.sample(status.bytes_on_disk, **of)
    yield own_worker.RELAY_FILES.sample(relay.files, **of)
    yield own_worker.RELAY_WRITTEN.sample(fetched.bytes_written, **of)
    yield own_worker.RELAY_PAUSED.sample(status.paused, **of)
    yield own_worker.RELAY_CAUGHT_UP.sample(status.relay_catch_up_master, **of)
    if figures.retention_left is not None:
        yield own_worker.RETENTION_LEFT.sample(figures.retention_left, **of)
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
