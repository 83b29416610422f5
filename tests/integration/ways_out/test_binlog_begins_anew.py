"""Tests the printed way out when a source's binlog begins anew.

Servers of its own: RESET MASTER ends replication to the replica that the tests of test_source_ways_out.py need, and
after a switch to another server the relay log continues by GTID, where the same fault has the code 20012 or 20011.
"""

from __future__ import annotations

from typing import cast

from tests.integration.replicated_rig import SOURCE, Replicated, codes, module_replicated, replicated
from tests.integration.ways_out.printed import Printed
from tests.integration.ways_out.running import started
from tests.support.cluster import Json

__all__ = ["module_replicated", "replicated"]


def test_the_binlog_begins_anew(replicated: Replicated) -> None:
    """20008: RESET MASTER at the source, or a restored backup; and 20056: the source is to move to another worker."""
    server = replicated.old
    running = started(replicated, "way_20008", server)
    server.execute("RESET MASTER" if server.flavor == "mariadb" else "RESET BINARY LOGS AND GTIDS")
    for thread in server.dump_threads():
        server.kill_thread(thread)
    server.execute("DELETE FROM way_20008_01.order_02 WHERE id % 5 = 0")
    # A MySQL server first lacks transactions that were read, as a late replica does: 20012, until it has as many.
    for number in range(12):
        running.insert(server, f"later {number}")
    printed = running.operator.stopped(20008, SOURCE)
    moved = _not_moved(replicated)
    assert moved.way_out.endswith(printed.way_out)
    running.copied_again(moved, server)


def _not_moved(replicated: Replicated) -> Printed:
    """20056: another worker would begin a relay log in the new binlog, and not notice what is missing."""
    cluster = replicated.cluster
    before = cluster.worker_of(SOURCE)
    other = next(one for one in cluster.workers if one is not before)
    answer = cluster.dmctl("transfer-source", SOURCE, other.name, check=False)
    assert answer.code != 0 and codes(answer) == [20056], answer.text
    assert cluster.worker_of(SOURCE) is before
    [result] = cast("list[Json]", answer.json["sources"])
    return Printed.of(cast("Json", result["error"]))
