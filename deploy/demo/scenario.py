"""What is merged: two sources with four shard tables each, one target table, and their configuration files.

A fifth table of each source is merged only later, while the task runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.cluster import source_yaml
from tests.support.judge import PartitionIds, Shard, Target
from tests.support.mariadb import MariaDB
from tests.support.writer import ShardTable

TASK = "demo"
TARGET_SCHEMA = "shop"
TARGET_TABLE = "orders"
META_SCHEMA = "dm_meta"
ROWS_PER_TABLE = 27_000  # × 10 tables: 270,000 rows, ids 1 … 27,000 in each
PASSWORD = "demo"  # noqa: S105 - of loopback servers that live as long as the demonstration

FIRST = (1, 2)
"""Numbers of the schemas that are merged from the beginning."""
ALL = (*FIRST, 3)
_TABLES = {1: (1, 2), 2: (1, 2), 3: (1,)}


@dataclass(frozen=True, slots=True)
class Source:
    """One source server; ``instance``: its number in the merged ids."""

    source_id: str
    instance: int
    server: MariaDB

    def tables(self) -> list[ShardTable]:
        return [
            ShardTable(self.server.connect, f"shard_{schema:02d}", f"order_{table:02d}")
            for schema in ALL
            for table in _TABLES[schema]
        ]

    def judged(self) -> list[Shard]:
        return [
            Shard(
                self.server.connect,
                f"shard_{schema:02d}",
                f"order_{table:02d}",
                PartitionIds(self.instance, schema, table),
            )
            for schema in ALL
            for table in _TABLES[schema]
        ]

    def prepare(self) -> None:
        """A user with the privileges for reading a source."""
        self.server.execute(
            f"CREATE USER 'dm'@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'dm'@'%'",
        )

    def yaml(self) -> str:
        return source_yaml(self.source_id, self.server, "dm", PASSWORD)


def prepare_target(server: MariaDB) -> None:
    server.execute(
        f"CREATE USER 'dm'@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT ALL ON `{TARGET_SCHEMA}`.* TO 'dm'@'%'",
        f"GRANT ALL ON `{META_SCHEMA}`.* TO 'dm'@'%'",
    )


def judged_target(server: MariaDB) -> Target:
    return Target(server.connect, TARGET_SCHEMA, TARGET_TABLE)


def task_yaml(sources: Sequence[Source], target: MariaDB, schemas: Sequence[int]) -> str:
    """A task file as TiDB DM has it, for the shard schemas with these numbers."""
    let_through = ", ".join(f'"shard_{number:02d}"' for number in schemas)
    instances = "".join(
        f"""\
  - source-id: {source.source_id}
    block-allow-list: shards
    route-rules: [orders]
    column-mapping-rules: [ids-of-instance-{source.instance}]
    mydumper-config-name: global
"""
        for source in sources
    )
    mappings = "".join(
        f"""\
  ids-of-instance-{source.instance}:
    schema-pattern: "shard_*"
    table-pattern: "order_*"
    source-column: id
    target-column: id
    expression: partition id
    arguments: ["{source.instance}", "shard", "order", "_"]
"""
        for source in sources
    )
    return f"""\
name: {TASK}
task-mode: all
meta-schema: {META_SCHEMA}

target-database:
  host: {target.host}
  port: {target.port}
  user: dm
  password: "{PASSWORD}"

mysql-instances:
{instances}
block-allow-list:
  shards:
    do-dbs: [{let_through}]

routes:
  orders:
    schema-pattern: "shard_*"
    table-pattern: "order_*"
    target-schema: {TARGET_SCHEMA}
    target-table: {TARGET_TABLE}

# Every shard counts its ids from 1: instance, schema and table number make them unique.
column-mappings:
{mappings}
mydumpers:
  global:
    threads: 4

replicate:
  lanes: 2
"""
