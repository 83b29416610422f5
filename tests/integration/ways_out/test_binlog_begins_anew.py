"""Tests the printed way out when a source's binlog begins anew.

Servers of its own: RESET MASTER ends replication to the replica that the tests of test_source_ways_out.py need, and
after a switch to another server the relay log continues by GTID, where the same fault has the code 20012 or 20011.
"""

from __future__ import annotations

from tests.integration.replicated_rig import SOURCE, Replicated, module_replicated, replicated
from tests.integration.ways_out.running import started

__all__ = ["module_replicated", "replicated"]


def test_the_binlog_begins_anew(replicated: Replicated) -> None:
    """20008: RESET MASTER at the source, or a restored backup."""
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
    running.copied_again(printed, server)
