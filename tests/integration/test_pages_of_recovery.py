"""Follows the pages Back up and restore the target, The binlog is lost, and etcd is lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shardmerge.proto.etcd import DeletePrefix
from tests.integration.page_rig import Orders, instance, orders, page, yaml_of
from tests.support.cluster import Cluster
from tests.support.page import blocks
from tests.support.writer import Writer


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.grid)])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Orders]:
    with orders(tmp_path_factory.mktemp("pages"), request.param) as found:
        for source in found.sources:
            found.create_source(source)
        for name, server in found.sources.items():
            for shard in found.of(name).shard_tables():
                server.execute(f"ALTER TABLE {shard.name} ADD ratio FLOAT NOT NULL DEFAULT 16777216")
        found.start(1, 2)
        yield found


def test_the_binlog_is_lost(made: Orders) -> None:
    """The lost part inserts, changes and removes rows; so does the part that is left, also the same rows."""
    cluster, reader, name = made.cluster, made.reader, "lost-binlog"
    source = made.sources["mysql-01"]
    for worker in cluster.workers:
        worker.kill()
    for shard in made.of("mysql-01").shard_tables():
        source.execute(
            f"UPDATE {shard.name} SET amount = 77 WHERE id BETWEEN 20 AND 29",
            f"DELETE FROM {shard.name} WHERE id BETWEEN 30 AND 39",
            f"INSERT INTO {shard.name} (id, customer, amount, state, token, created) "
            "VALUES (1001, 'lost', 1, 'new', '', '2026-01-01'), (1002, 'lost', 1, 'new', '', '2026-01-01'), "
            "(1003, 'lost', 1, 'new', '', '2026-01-01')",
        )
    source.purge()
    for shard in made.of("mysql-01").shard_tables():
        source.execute(
            f"UPDATE {shard.name} SET amount = 78 WHERE id IN (21, 1001)",
            f"DELETE FROM {shard.name} WHERE id IN (22, 1002)",
            f"INSERT INTO {shard.name} (id, customer, amount, state, token, created) "
            "VALUES (31, 'again', 1, 'new', '', '2026-01-01')",
        )
    for worker in cluster.workers:
        shutil.rmtree(cluster.directory / f"{worker.name}-relay", ignore_errors=True)
    for worker in cluster.workers:
        worker.start()
    made.wait_error("mysql-01", 20011 if source.flavor == "mysql" else 20001)
    made.change("mysql-02")
    for section in ("1.", "2."):
        for block in blocks(page(name), section):
            if "start-task" in block.text:
                cluster.write("orders-gap.yaml", gap_file(made))
            reader.run(block)
    reader.follow(page(name), "3.")
    made.judge()
    reader.follow(page(name), "4.")
    made.change()
    made.judge()


def gap_file(made: Orders) -> str:
    """Return the task file with the changes that the page describes."""
    mode, line, syncers = yaml_of("lost-binlog", "2.")
    text = made.task(1, 2)
    assert " ".join(line.split()).startswith(instance(1).strip().removesuffix("}"))
    text = text.replace(instance(1), line).replace("task-mode: all", mode)
    return f"{text}{syncers}\n"


def test_back_up_and_restore(made: Orders) -> None:
    if made.target.flavor == "mysql":
        pytest.skip("the test machine has MariaDB's client programs only")
    made.wait_replicating()
    name = "back-up-the-target"
    reader = made.reading({"mariadb-dump": made.run_here, "mariadb": made.run_here})
    with Writer(made.family.shard_tables(), seed=5) as writer:
        writer.go_on()
        for block in blocks(page(name), "1."):
            reader.run(block)
        writer.go_on()
        writer.stop()
    made.judge()
    made.change()
    stop, drop, *restore = blocks(page(name), "2.")
    reader.run(stop)
    # Rows without their records, or the records without the rows: the check refuses the former.
    made.target.execute("CREATE DATABASE kept", "RENAME TABLE shop.orders TO kept.orders", "DROP DATABASE shop")
    made.target.execute("DROP DATABASE dm_meta", "CREATE DATABASE shop", "RENAME TABLE kept.orders TO shop.orders")
    made.target.execute("DROP DATABASE kept")
    answer = reader.command("dmctl check-task orders.yaml", check=False)
    assert answer is not None and answer.code == 1
    assert {one["code"] for one in answer.json["checkResult"] if one["state"] == "fail"} == {12037}
    reader.run(drop)
    for block in restore:
        reader.run(block)
    dump = (made.cluster.directory / "target.sql").read_text(encoding="utf-8", errors="replace")
    assert re.search("INSERT INTO `subtask`", dump), "the dump has the positions"
    assert "16777200" in dump, "or no value shows that the rows are exact again"
    assert made.target.query("SELECT COUNT(*) FROM shop.orders WHERE ratio <> 16777216") == [(0,)]
    made.change()
    made.judge()


def test_etcd_is_lost(made: Orders) -> None:
    """Once with the export, once with the files of the sources and the task, once with a snapshot."""
    cluster, name = made.cluster, "etcd-lost"
    machine = EtcdMachine(cluster)
    words = {
        "unix:/run/shardmerge/master-1.sock": cluster.socket(cluster.masters[0]),
        "./configs": str(cluster.directory / "configs"),
    }
    reader = made.reading({"systemctl": machine.systemctl, "mv": machine.mv, "etcdctl": machine.etcdctl})
    reader = replace(reader, words={**reader.words, **words})
    made.wait_replicating()
    reader.follow(page(name), "1.")
    lose, by_import, by_files = blocks(page(name), "2.")
    for restore in (by_import, by_files):
        made.change()
        starts = copied(made)
        reader.run(lose)
        assert cluster.dmctl("query-status").json.get("tasks", []) == []
        cluster.wait_for_workers(cluster.workers)
        reader.run(restore)
        made.change()
        made.judge()
        assert copied(made) == starts, "nothing is copied again"
    machine.save()
    cluster.dmctl("pause-task", "orders")
    cluster.dmctl("resume-task", "orders")
    made.wait_replicating()
    starts = copied(made)
    reader.follow(page(name), "3.")
    made.change()
    made.judge()
    assert copied(made) == starts, "nothing is copied again"


def copied(made: Orders) -> list[tuple[object, ...]]:
    """Return where replication began, and at which positions the chunks were copied: another copy has others."""
    return [
        *made.target.query("SELECT source, start_file, start_pos FROM dm_meta.subtask ORDER BY source"),
        *made.target.query(
            "SELECT source, shard, number, source_file, source_pos FROM dm_meta.snapshot_chunk "
            "ORDER BY source, shard, number"
        ),
    ]


@dataclass(frozen=True, slots=True)
class EtcdMachine:
    """Does what the page's commands of the machine do to the processes of the test."""

    cluster: Cluster

    @property
    def data(self) -> Path:
        return self.cluster.etcd.directory / "data"

    @property
    def saved(self) -> Path:
        return self.cluster.etcd.directory / "snapshot"

    def systemctl(self, line: str) -> None:
        _, what, service = line.split()
        services = {"etcd": [self.cluster.etcd], "dm-master": self.cluster.masters, "dm-worker": self.cluster.workers}
        for each in services[service]:
            each.start() if what == "start" else each.kill()

    def mv(self, line: str) -> None:
        assert line == "mv /var/lib/etcd /var/lib/etcd.lost"
        lost = self.data.with_name("lost")
        shutil.rmtree(lost, ignore_errors=True)
        self.data.rename(lost)

    def save(self) -> None:
        """Copy the files of etcd, in place of a snapshot: not every test machine has the program that makes one."""
        self.cluster.etcd.kill()
        shutil.copytree(self.data, self.saved)
        self.cluster.etcd.start()

    def etcdctl(self, line: str) -> None:
        words = line.split()
        if words[1] == "snapshot":
            shutil.copytree(self.saved, self.data)
            return
        assert words[1:3] == ["del", "--prefix"]
        with self.cluster.etcd.client() as client:
            client.txn([], [DeletePrefix(words[3])])
