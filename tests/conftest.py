"""Fixtures every test may use, and what is kept of a failed one.

Logs and configuration files of clusters and servers that were alive when a test failed are copied
to ``tests/.run/<test>/``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from shardmerge.proto.tls.model import TlsFiles
from tests.support.cluster import Cluster
from tests.support.daemon import Setting
from tests.support.examples import FAST_EXAMPLES
from tests.support.loan import allow, borrowed_folders
from tests.support.mariadb import MariaDB

# Time says nothing on a machine that may be ten times slower for minutes.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
_KEPT_SUFFIXES = frozenset({".log", ".yaml"})
_LAST_LINES = 8
_LINE_CHARS = 400

_watched: list[Path] = []
_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failure at once: a run that is stopped at its time limit prints no summary."""
    if os.environ.get("PYTEST_XDIST_WORKER") is not None:
        return
    _seconds[report.nodeid] += report.duration
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = (report.longreprtext if crash is None else crash.message).strip().partition("\n")[0][:_LINE_CHARS]
        print(f"\nfailed in {report.when} after {report.duration:.0f} s: {report.nodeid}: {reason}", flush=True)


def pytest_sessionfinish() -> None:
    """Append the seconds of each test, with its fixtures, to the file of tests/run.sh: one table for several runs."""
    path = os.environ.get("SHARDMERGE_DURATIONS")
    if path and _seconds:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{seconds:8.1f} {test}\n" for test, seconds in _seconds.items())


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
