"""Provides two sources, a target (or several) and a cluster, with a family of shard tables per test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.judge import PartitionIds, Shard, Target, Verdict, compare
from tests.support.mariadb import MariaDB
from tests.support.pair import Kind
from tests.support.writer import ORDERS, Shape, ShardTable, create_tables, fill

_FILTERS = """\
filters:
  - schema-pattern: source_filters
    table-pattern: t
    events: [delete, truncate table]
    action: Ignore
"""
"""Filters of the second source, for the tests of source filters."""


@dataclass(frozen=True, slots=True)
class Family:
    """Shard tables ``<name>_<s>.order_<t>`` on every source, merged into ``<name>.orders``.

    Source number n is instance n of the `partition id` mapping; ids collide between all of them.
    """

    name: str
    sources: tuple[tuple[str, Database], ...]
    target: Database
    schemas: int = 1
    tables: int = 2

    def _places(self) -> Iterator[tuple[int, Database, int, int]]:
        for instance, (_, server) in enumerate(self.sources, 1):
            for schema in range(1, self.schemas + 1):
                for table in range(1, self.tables + 1):
                    yield instance, server, schema, table

    def shard_tables(self) -> list[ShardTable]:
        return [
            ShardTable(server.connect, f"{self.name}_{schema:02d}", f"order_{table:02d}")
            for _, server, schema, table in self._places()
        ]

    def create(self, rows: int, shape: Shape = ORDERS) -> list[ShardTable]:
        """Create and fill all shard tables, ``rows`` rows each."""
        shards = self.shard_tables()
        create_tables(shards, shape)
        for number, shard in enumerate(shards):
            fill(shard, rows, number, shape)
        return shards

    def verdict(self) -> Verdict:
        """Return the judge's verdict: sources must be quiet and applied."""
        shards = [
            Shard(
                server.connect, f"{self.name}_{schema:02d}", f"order_{table:02d}", PartitionIds(instance, schema, table)
            )
            for instance, server, schema, table in self._places()
        ]
        return compare(shards, Target(self.target.connect, self.name, "orders"))

    def task(self, name: str | None = None, *, mode: str = "all", extra: str = "") -> str:
        """Return the task file; ``extra``: further top-level lines."""
        lines = [
            f"name: {name or self.name}",
            f"task-mode: {mode}",
            "meta-schema: dm_meta",
            f"target-database: {self.target.login}",
            "mysql-instances:",
        ]
        for number, (source, _) in enumerate(self.sources, 1):
            lines += [
                f"  - source-id: {source}",
                "    block-allow-list: family",
                "    route-rules: [merge]",
                f"    column-mapping-rules: [ids-{number}]",
            ]
        lines += [
            "block-allow-list:",
            "  family:",
            f'    do-dbs: ["{self.name}_*"]',
            "routes:",
            "  merge:",
            f'    schema-pattern: "{self.name}_*"',
            '    table-pattern: "order_*"',
            f"    target-schema: {self.name}",
            "    target-table: orders",
            "column-mappings:",
        ]
        for number in range(1, len(self.sources) + 1):
            lines += [
                f"  ids-{number}:",
                f'    schema-pattern: "{self.name}_*"',
                '    table-pattern: "order_*"',
                "    expression: partition id",
                "    source-column: id",
                "    target-column: id",
                f'    arguments: ["{number}", "{self.name}_", "order_"]',
            ]
        return "\n".join(lines) + "\n" + extra


class World:
    """Servers and cluster of one test module; each test creates families of its own in it."""

    def __init__(
        self, directory: Path, sources: Sequence[Kind] = (MariaDB, MariaDB), targets: Sequence[Kind] = (MariaDB,)
    ) -> None:
        self.directory = directory
        self.sources = tuple(
            (f"mysql-{number:02d}", kind(directory / f"source-{number}", 100 + number))
            for number, kind in enumerate(sources, 1)
        )
        self.targets = tuple(
            kind(directory / f"target-{number}", 200 + number) for number, kind in enumerate(targets, 1)
        )
        self.target = self.targets[0]
        self.cluster = Cluster(directory / "cluster")

    def start_servers(self) -> None:
        for server in self.servers:
            server.ensure_running()

    def start(self) -> World:
        self.start_servers()
        self.cluster.start()
        for number, (source_id, server) in enumerate(self.sources, 1):
            self.cluster.create_source(source_id, server, extra=_FILTERS if number == 2 else "")
        return self

    @property
    def servers(self) -> list[Database]:
        return [*(server for _, server in self.sources), *self.targets]

    def stop(self) -> None:
        self.cluster.stop()
        for server in self.servers:
            server.stop()

    def heal(self) -> None:
        """Restart what the previous test has killed, release what it has held, and wait until the sources are bound
        again."""
        self.cluster.hooks.release_all()
        for server in self.servers:
            server.ensure_running()
        self.cluster.etcd.ensure_running()
        for daemon in self.cluster.daemons:
            if not daemon.alive:
                daemon.start()
        self.cluster.wait_for_workers(self.cluster.workers)
        self.cluster.wait_bound([source_id for source_id, _ in self.sources])

    def family(self, name: str, *, target: Database | None = None, **shape: int) -> Family:
        return Family(name, self.sources, target or self.target, **shape)

    def head_of_task(self, name: str, rules: str) -> list[str]:
        """Return the lines of a task file of the first source, up to ``rules``: the keys of its mysql-instance, without
        its block-allow list, "own"."""
        target = self.target
        return [
            f"name: {name}",
            "task-mode: all",
            "meta-schema: dm_meta",
            f'target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}',
            "mysql-instances:",
            f"  - {{source-id: {self.sources[0][0]}, block-allow-list: own, {rules}}}",
        ]

    def settle(self, tasks: Sequence[str], seconds: float = 400.0) -> None:
        """Wait until every task has applied all changes; all writers must have stopped."""
        for task in tasks:
            self.cluster.wait_caught_up(task, dict(self.sources), seconds)

    def judge(self, family: Family) -> Verdict:
        """Check that the target is the merge when the family's task has applied all changes; all writers must have
        stopped.

        Both the judge here and `dmctl compare` check it, and must agree.
        """
        self.settle([family.name])
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        compared = self.cluster.compare(family.name)
        assert compared.rows == verdict.rows, f"{verdict}\n{compared.answer.text}"
        return verdict
