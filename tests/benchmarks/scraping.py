"""Measures what scrapes of the metrics cost: histories, drains and lags with and without them, in alternating order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from shardmerge.proto import common_pb2
from tests.benchmarks import drain, lag
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import META_SCHEMA, Master, task_yaml
from tests.benchmarks.world import World, say
from tests.support.metrics import request
from tests.support.wait import until

_EVERY_SECONDS = 5.0
_ROUNDS = 4
_PATIENCE_SECONDS = 1800.0
_NAME = "scraped"


@dataclass(frozen=True, slots=True)
class Scraping:
    """Medians of all rounds. ``scrapes``: how many were made; each asks all daemons."""

    history: float
    drain: float
    lag_p50: float
    scrapes: int


class _Scraper:
    def __init__(self, world: World) -> None:
        self._world = world
        self.scrapes = 0

    @contextmanager
    def running(self, scraped: bool) -> Generator[None]:
        if not scraped:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=[ended], name="scraper")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, ended: threading.Event) -> None:
        # The first scrape is soon, so that a short measurement has no less than its share.
        wait = _EVERY_SECONDS / 2
        while not ended.wait(wait):
            for daemon in self._world.cluster.daemons:
                request(daemon, "/metrics")
            self.scrapes += 1
            wait = _EVERY_SECONDS


def run(world: World) -> Mapping[bool, Scraping]:
    """Return the medians, by whether the daemons were scraped every 5 seconds."""
    scraper = _Scraper(world)
    world.replicating  # noqa: B018 - its history is no measurement
    lags = _alternating("lag p50 ms", scraper, lambda: lag.run(world, background=False).p50)
    drains = _alternating("changes/s drained", scraper, lambda: drain.run(world, "uniform").changes_per_second)
    with world.another_task(_NAME, SOURCES) as master:
        world.master.pause()
        histories = _alternating("rows/s of history", scraper, lambda: _history(world, master))
        world.master.resume()
    return {
        scraped: Scraping(
            median(histories[scraped]), median(drains[scraped]), median(lags[scraped]), scraper.scrapes * scraped
        )
        for scraped in (False, True)
    }


def _alternating(what: str, scraper: _Scraper, measure: Callable[[], float]) -> Mapping[bool, Sequence[float]]:
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(_ROUNDS):
        for scraped in (False, True) if number % 2 == 0 else (True, False):
            with scraper.running(scraped):
                value = measure()
            found[scraped].append(value)
            say(f"scraping: {what}, {'with' if scraped else 'without'} scrapes: {value:,.2f}")
    return found


def _history(world: World, master: Master) -> float:
    """Return the rows per second from start-task until the last chunk is loaded; the task is stopped then."""
    world.target.execute(f"DROP DATABASE IF EXISTS merged_{_NAME}")
    text = task_yaml(world.settings, world.source_ids, world.target, name=_NAME, merged=f"merged_{_NAME}.sbtest")
    deferred = f"SELECT 1 FROM {META_SCHEMA}.deferred_index LIMIT 1"
    started = time.monotonic()
    master.start(text, remove_meta=True)
    master.wait(
        lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
        "replicates",
        every=0.2,
    )
    seconds = time.monotonic() - started
    until(lambda: not world.target.query(deferred), "the merged table has its indexes", _PATIENCE_SECONDS, every=0.2)
    master.stop()
    return world.settings.all_rows / seconds
