"""Fixtures every test may use, and what is kept of a failed one.

Logs and configuration files of clusters and servers that were alive when a test failed are copied
to ``tests/.run/<test>/``.
"""

from __future__ import annotations

from tests.support import fork_safe_grpc  # before all that imports gRPC

# isort: split
import os
import re
import shlex
import shutil
import signal
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from shardmerge.proto.tls.model import TlsFiles
from tests.mutants.mutant import all_mutants
from tests.support.cluster import Cluster
from tests.support.daemon import Setting
from tests.support.examples import FAST_EXAMPLES, USUAL_EXAMPLES
from tests.support.loan import allow, borrowed_folders
from tests.support.mariadb import MariaDB

__all__ = ["fork_safe_grpc"]

# Time says nothing on a machine that may be ten times slower for minutes.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A run draws other examples than the one before it: half as many cost half the time of many tests.
settings.register_profile("untimed", settings.get_profile("thorough"), max_examples=USUAL_EXAMPLES // 2)
settings.register_profile("fast", settings.get_profile("untimed"), max_examples=FAST_EXAMPLES)
# For mutants: that an example fails is enough, the smallest one takes many times as long.
settings.register_profile(
    "unshrunk",
    settings.get_profile("untimed"),
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile("untimed")

allow()

KEPT = Path(__file__).resolve().parent / ".run"
UNIT = Path(__file__).resolve().parent / "unit"
INTEGRATION = Path(__file__).resolve().parent / "integration"
_KEPT_SUFFIXES = frozenset({".log", ".yaml"})
_LAST_LINES = 8
_LINE_CHARS = 400

ALL_WITH_SPARK = os.environ.get("SHARDMERGE_ALL_WITH_SPARK") == "1"
"""Set by the grid: workers have Spark in tests without the marker ``spark``, too."""

GRID_PARTS = 60
GRID_PART = os.environ.get("SHARDMERGE_GRID_PART", "")
"""The part of the grid that belongs to this run, a number below :data:`GRID_PARTS`; "": none."""
_OF_GRID = frozenset({"grid", "long"})
_OF_OWN_COMMAND = frozenset({"tidb", "clusters", "versions"})
"""These need servers that only their own commands of tests/run.sh build or fetch."""
_TURNS = 16
"""A default run has one of so many combinations of the parameters of an integration test, and of so many tests with the
marker ``turns``."""
_PROGRESS_SECONDS = 60.0
_LONG_SECONDS = 240.0
_IDLE_TIMES = 3

_watched: list[Path] = []
_seconds: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test: its clusters have Spark only if the test, or its module, has the marker."""
    Cluster.spark_by_default = ALL_WITH_SPARK or item.get_closest_marker("spark") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the grid that belong to this run, and the other tests that belong to one of the next runs. It
    comes after the hooks that mark tests for the grid, and before pytest deselects them."""
    if not GRID_PART:
        return
    part = int(GRID_PART)
    long_unit_files: set[Path] = set()
    combinations: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    always = tuple(test.partition("[")[0] for mutant in all_mutants() for test in mutant.tests)
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        test, _, _ = item.nodeid.partition("[")
        if names & _OF_GRID:
            if not names & _OF_OWN_COMMAND and grid_part(item.nodeid) == part:
                item.add_marker("rotating")
                if UNIT in item.path.parents:
                    long_unit_files.add(item.path)
        elif INTEGRATION in item.path.parents and test not in always and test.partition("::")[0] not in always:
            combinations[test].append(item)
    # The tests of a file with the marker have the same turn, for they share servers; a single test has its own.
    long_files = sorted({several[0].path for several in combinations.values() if _is_long_file(several[0])})
    for test, several in combinations.items():
        turns = _TURNS if several[0].get_closest_marker("turns") else min(_TURNS, len(several))
        first = long_files.index(several[0].path) if _is_long_file(several[0]) else zlib.crc32(test.encode())
        for number, item in enumerate(several, first):
            if number % turns != part % turns:
                item.add_marker("later")
    # At the end such a file would run alone, while the other process waits.
    items.sort(key=lambda item: item.path not in long_unit_files)


def _is_long_file(item: pytest.Item) -> bool:
    module = item.getparent(pytest.Module)
    return module is not None and module.get_closest_marker("turns") is not None


def grid_part(test: str) -> int:
    """Return the part of the grid that has the test of this id."""
    return zlib.crc32(test.encode()) % GRID_PARTS


class Progress(threading.Thread):
    """Prints from time to time how many tests have ended, how long the rest may take, and which one runs for long."""

    def __init__(self, total: int) -> None:
        super().__init__(name="progress", daemon=True)
        self._total = total
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended: set[str] = set()
        self._stop = threading.Event()

    def begun(self, test: str) -> None:
        self._running[test] = time.monotonic()

    def ended(self, test: str) -> None:
        self._running.pop(test, None)
        self._ended.add(test)

    def run(self) -> None:
        idle = 0
        while not self._stop.wait(_PROGRESS_SECONDS):
            now, ended = time.monotonic(), len(self._ended)
            lasts = now - self._began
            rest = f"about {lasts * (self._total - ended) / ended / 60:.0f} min remain" if ended else "none has ended"
            print(f"\n{ended} of {self._total} tests after {lasts / 60:.0f} min; {rest}", flush=True)
            running = tuple(self._running.items())
            for test, began in running:
                if now - began > _LONG_SECONDS:
                    print(f"for {(now - began) / 60:.0f} min: {test}", flush=True)
            idle = 0 if running or ended == self._total else idle + 1
            if idle == _IDLE_TIMES:
                # The other tests of the file in which a process of xdist has crashed may never be given to another one.
                print(f"no test is running, {self._total - ended} were lost with a process that crashed", flush=True)
                os.kill(os.getpid(), signal.SIGINT)

    def stop(self) -> None:
        self._stop.set()


_progress: list[Progress] = []


def _is_controller(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_runtestloop(session: pytest.Session) -> None:
    if _is_controller(session.config) and os.environ.get("SHARDMERGE_DURATIONS"):
        # The processes of xdist collect by themselves.
        _begin_progress(len(session.items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    _begin_progress(len(ids))


def _begin_progress(total: int) -> None:
    if total and not _progress and os.environ.get("SHARDMERGE_DURATIONS"):
        _progress.append(Progress(total))
        _progress[0].start()


def pytest_runtest_logstart(nodeid: str) -> None:
    if _progress:
        _progress[0].begun(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failure at once: a run that is stopped at its time limit prints no summary."""
    if os.environ.get("PYTEST_XDIST_WORKER") is not None:
        return
    _seconds[report.nodeid] += report.duration
    if report.when not in ("setup", "call"):  # "teardown", or "???" of a process that crashed
        if _progress:
            _progress[0].ended(report.nodeid)
        # At once: a run that is stopped at its time limit has its figures.
        if path := os.environ.get("SHARDMERGE_DURATIONS"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{_seconds.pop(report.nodeid):8.1f} {report.nodeid}\n")
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = (report.longreprtext if crash is None else crash.message).strip().partition("\n")[0][:_LINE_CHARS]
        print(f"\nfailed in {report.when} after {report.duration:.0f} s: {report.nodeid}: {reason}", flush=True)
        print(f"repeat it with: {_repeats(report.nodeid)}", flush=True)


def _repeats(test: str) -> str:
    """Return the command that runs just this test, also one of the grid, with the same seed."""
    part = test.removeprefix("tests/").partition("/")[0]
    seed = os.environ.get("SHARDMERGE_SEED", "")
    return f"bash tests/run.sh {part} {shlex.quote(test)} -m ''" + (f" --hypothesis-seed={seed}" if seed else "")


def pytest_sessionfinish() -> None:
    for each in _progress:
        each.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        folder = KEPT / re.sub(r"[^\w.-]+", "_", item.nodeid)
        try:
            for directory in (*_watched, *borrowed_folders()):
                _keep(directory, folder / directory.name)
        except OSError as error:
            # A full disk: the failure that is reported here matters more than its logs.
            report.sections.append(("logs not kept", str(error)))
        if folder.exists():
            report.sections.append(("logs kept", "\n".join((str(folder), *_ends(folder)))))
    return report


def _ends(folder: Path) -> Iterator[str]:
    """The last lines of each log: the machine that a test fails on is often gone with its files."""
    for path in sorted(folder.rglob("*.log")):
        yield f"-- {path.relative_to(folder)}"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        yield from (line[:_LINE_CHARS] for line in lines[-_LAST_LINES:])


def _keep(directory: Path, folder: Path) -> None:
    for path in directory.rglob("*"):
        # Servers remove files of their own while this walks.
        if path.suffix in _KEPT_SUFFIXES and path.is_file():
            place = folder / path.relative_to(directory)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


@pytest.fixture
def watch_logs() -> Iterator[Callable[[Path], None]]:
    """Call it with a directory: its logs are kept if the test fails."""
    before = len(_watched)
    yield _watched.append
    del _watched[before:]


@pytest.fixture
def make_server(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Callable[..., MariaDB]]:
    """``make_server(name, *options)``: a started MariaDB, stopped after the test."""
    servers: list[MariaDB] = []

    def make(name: str = "source", *options: str) -> MariaDB:
        server = MariaDB(tmp_path / name, server_id=101 + len(servers), options=options)
        watch_logs(server.directory)
        servers.append(server)
        return server.start()

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def make_cluster(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Callable[..., Cluster]]:
    """``make_cluster(**arguments of Cluster)``: a started cluster, stopped after the test."""
    clusters: list[Cluster] = []

    def make(
        *,
        workers: int = 2,
        masters: int = 1,
        worker_settings: Mapping[str, Setting] | None = None,
        master_settings: Mapping[str, Setting] | None = None,
        tls: TlsFiles | None = None,
    ) -> Cluster:
        cluster = Cluster(
            tmp_path / f"cluster-{len(clusters) + 1}",
            workers=workers,
            masters=masters,
            worker_settings=worker_settings,
            master_settings=master_settings,
            tls=tls,
        )
        watch_logs(cluster.directory)
        clusters.append(cluster)
        return cluster.start()

    yield make
    for cluster in clusters:
        cluster.stop()
