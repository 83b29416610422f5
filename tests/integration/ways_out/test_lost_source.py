"""Tests the printed ways out when a source's server is lost, or refuses its account, on both kinds of server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.replicated_rig import SOURCE, Replicated
from tests.integration.ways_out.printed import Printed
from tests.integration.ways_out.running import refused, started
from tests.support.cluster import Json, source_yaml
from tests.support.database import Database
from tests.support.pair import KINDS
from tests.support.wait import until

_PASSWORD = "se'cret \"1"


@pytest.fixture(params=list(KINDS))
def replicated(
    tmp_path: Path, request: pytest.FixtureRequest, watch_logs: Callable[[Path], None]
) -> Iterator[Replicated]:
    """The masters know the password as the tutorial's ``${DM_PASSWORD}``."""
    watch_logs(tmp_path / "cluster")
    made = Replicated(tmp_path, str(request.param), {"DM_PASSWORD": _PASSWORD})
    yield made
    made.stop()


def _file(replicated: Replicated, server: Database, password: str = "${DM_PASSWORD}") -> str:
    return replicated.cluster.write("source.yaml", source_yaml(SOURCE, server, "mover", password))


def _with_account(replicated: Replicated, name: str) -> None:
    """Create an account with a password; the source is read with it."""
    quoted = _PASSWORD.replace("'", "''")
    replicated.old.execute(f"CREATE USER mover IDENTIFIED BY '{quoted}'", "GRANT ALL ON *.* TO mover")
    replicated.servers.caught_up(replicated.new, replicated.old)
    replicated.cluster.dmctl("operate-source", "update", _file(replicated, replicated.old))
    replicated.cluster.wait_caught_up(name, {SOURCE: replicated.old})


def test_a_replica_takes_the_place_of_a_lost_source(replicated: Replicated) -> None:
    """20102 prints the command; 60224, the error of that command without its option, prints the same one."""
    running = started(replicated, "way_20102")
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    _with_account(replicated, "way_20102")
    old.execute("UPDATE way_20102_01.order_02 SET amount = 7 WHERE id <= 20")
    replicated.servers.caught_up(new, old)
    cluster.wait_caught_up("way_20102", {SOURCE: old})
    old.kill()
    replicated.servers.promote(new)

    def unreachable() -> Printed | None:
        found: Json | None = (cluster.relay_status(SOURCE) or {}).get("result")
        return Printed.of(found) if found and int(found["code"]) == 20102 else None

    printed = until(unreachable, "query-status shows that the source cannot be reached", 120)
    path = _file(replicated, new)
    for option in ("--dry-run", ""):
        words = ("operate-source", "update", path, *filter(None, (option,)))
        without = refused(cluster.dmctl(*words, check=False), 60224)
        assert without.command("operate-source update") == printed.command("operate-source update")
    running.operator.runs(printed, "operate-source update", source_file=path, check=True, typed=f"{_PASSWORD}\n")
    assert "${DM_PASSWORD}" in Path(path).read_text(encoding="utf-8"), "the file stays as it is"
    running.insert(new, "later")
    replicated.judge("way_20102", new)
    again = cluster.dmctl("operate-source", "update", path)
    assert "nothing changes" in again.text, "the reference is accepted again"
    cluster.dmctl("stop-task", "way_20102")


def test_the_reason_why_lanes_end_is_shown(replicated: Replicated) -> None:
    """20101: the source refuses the login. The lanes end because of that, and not "unexpectedly" (70007)."""
    running = started(replicated, "way_20101")
    cluster, old = replicated.cluster, replicated.old
    _with_account(replicated, "way_20101")
    old.execute("ALTER USER mover IDENTIFIED BY 'another'")
    old.kill_threads("mover")
    printed = running.operator.stopped(20101, SOURCE, or_code=70007)
    assert printed.code == 20101, printed
    cluster.dmctl("operate-source", "update", _file(replicated, old, "another"))
    running.operator.runs(printed, "resume-task")
    running.insert(old, "later")
    replicated.judge("way_20101", old)
    shown = cluster.dmctl("history", "way_20101").text
    assert "20101" in shown and "70007" not in shown, shown
    cluster.dmctl("stop-task", "way_20101")
