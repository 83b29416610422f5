"""Tests dmctl purge-relay through real daemons: which files are removed, which are kept and why, and what is
refused."""

from __future__ import annotations

from collections.abc import Callable

from shardmerge.proto import errors
from tests.support.cluster import Answer, Cluster, Json
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import fill


def _part(answer: Answer) -> Json:
    [part] = answer.json["sources"]
    return part


def _code(answer: Answer) -> int:
    assert answer.code == 1, answer.text
    return int(_part(answer)["error"]["code"])


def _notes(server: MariaDB, file: str) -> bool:
    events = server.query(f"SHOW BINLOG EVENTS IN '{file}'")
    return any(event[2] == "Binlog_checkpoint" and event[5] == file for event in events)


def test_purge_relay_leaves_what_a_task_needs(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=1)

    def purge(file: str, *options: str, of: str = "mysql-01") -> Answer:
        return cluster.dmctl("purge-relay", "-s", of, "-f", file, *options, check=False)

    def current() -> str:
        return source.binlog_end()[0]

    def relay() -> Json:
        return until(lambda: cluster.relay_status("mysql-01"), "the worker tells of its relay")

    cluster.create_source("mysql-01", source)
    assert _code(purge(current())) == errors.relay.RELAY_NOT_BEGUN.code, "no task has begun it"
    family = Family("purged", (("mysql-01", source),), target)
    shards = family.create(10)
    cluster.start_task(family.task())
    cluster.wait_replicating("purged")
    cluster.wait_caught_up("purged", {"mysql-01": source})

    # A row that is not committed at the target is in the oldest file; two files follow.
    oldest = current()
    cluster.hooks.hold("lane0.before_commit")
    for shard in shards:
        source.execute(f"UPDATE {shard.name} SET note = 'held'")
    cluster.hooks.reached("lane0.before_commit")
    for _ in range(2):
        source.execute("FLUSH BINARY LOGS")
        fill(shards[0], 1, 7)
    last = current()
    assert last > oldest
    # About a second later MariaDB writes into the file that no recovery needs an older file. No event follows that.
    until(lambda: _notes(source, last), "the last file is noted in itself")
    until(lambda: last in relay()["relayBinlog"], "the relay has come to the last file")
    held = _part(purge(last))
    assert held["result"] is True
    assert "task purged needs it" in held["kept"]
    assert oldest in held["relayBegin"]

    cluster.hooks.release_all()
    cluster.wait_caught_up("purged", {"mysql-01": source})
    before = int(relay()["bytesOnDisk"])
    other = purge(last, "--sub-dir", "another")
    assert _code(other) == errors.relay.RELAY_SUB_DIR_UNKNOWN.code
    assert int(relay()["bytesOnDisk"]) == before, "refused: nothing went"
    done = _part(purge(last, "--sub-dir", relay()["relaySubDir"]))
    assert (done["result"], done["kept"]) == (True, "")
    assert last in done["relayBegin"]
    assert int(done["purgedSegments"]) >= 2
    assert before - int(relay()["bytesOnDisk"]) == int(done["purgedBytes"]) > 0

    assert _code(purge("mysql-bin.999999")) == errors.relay.RELAY_FILE_UNKNOWN.code
    assert _code(purge(last, of="nowhere")) == errors.master.SOURCE_UNKNOWN.code
    fill(shards[0], 1, 8)
    cluster.wait_caught_up("purged", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()

    [worker] = cluster.workers
    worker.terminate()
    # The binding ends with the lease, if the worker could not release it in time.
    until(lambda: _code(purge(last)) == errors.master.SOURCE_UNBOUND.code, "nobody has the source")
