"""The servers that were logged in to are bounded in number and size."""

from __future__ import annotations

from shardmerge.worker.core.seen_servers import SeenServers


def test_the_server_of_the_oldest_login_leaves() -> None:
    times = iter(range(100))
    seen = SeenServers(most=2, clock=lambda: float(next(times)))
    seen.add("source", "h1", 1, "8.0.1")
    seen.add("target", "h2", 2, "10.11.6-MariaDB")
    seen.add("source", "h1", 1, "8.0.2")
    seen.add("target", "h3", 3, "x" * 500 + "\n")
    assert [(login.address, login.at) for login in seen.logins()] == [("h1:1", 2.0), ("h3:3", 3.0)]
    assert seen.logins()[0].version == "8.0.2"
    assert len(seen.logins()[1].version) <= 101 and "\n" not in seen.logins()[1].version
