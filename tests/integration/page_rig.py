"""Provides the task `orders` of the how-to pages: its servers, its files, and what is inserted for the pages' hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster, source_yaml
from tests.support.database import KEY_RETRIEVAL, Database
from tests.support.page import DOCS, Reader, Schema, blocks
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.world import Family

_TASK = """\
name: orders
task-mode: all
target-database: {login}
mysql-instances:
{instances}
block-allow-list:
  shards: {{do-dbs: ["shop_*"]}}
routes:
  orders: {{schema-pattern: "shop_*", table-pattern: "order_*", target-schema: shop, target-table: orders}}
column-mappings:
{mappings}
"""
_MAPPING = (
    '  ids-{number}: {{schema-pattern: "shop_*", table-pattern: "order_*", source-column: id, target-column: id, '
    'expression: partition id, arguments: ["{number}", shop, order, _]}}'
)
_GRANTS = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*"


def instance(number: int) -> str:
    """Return the line of a source in the task file."""
    return (
        f"  - {{source-id: mysql-0{number}, block-allow-list: shards, route-rules: [orders], "
        f"column-mapping-rules: [ids-{number}]}}"
    )


class Orders:
    """The sources ``mysql-01`` … with two shard tables each, which the task `orders` merges into ``shop.orders``."""

    def __init__(self, cluster: Cluster, sources: Sequence[Database], target: Database) -> None:
        self.cluster, self.servers, self.target = cluster, sources, target
        self.sources = {f"mysql-0{number}": server for number, server in enumerate(sources, 1)}
        self.family = self.of(*self.sources)
        self.reader = self.reading({})

    def of(self, *sources: str) -> Family:
        """Return the shard tables of these sources."""
        return Family("shop", tuple((one, self.sources[one]) for one in sources), self.target)

    def reading(self, programs: dict[str, Callable[[str], object]]) -> Reader:
        places = {f"at the source {name}": [Schema(server)] for name, server in self.sources.items()}
        places |= {"at the target": [Schema(self.target)]}
        places |= {"at each source": [Schema(server) for server in self.servers]}
        words = {
            f"host: 10.0.{net}.1, port: 3306": f"host: 127.0.0.1, port: {server.port}"
            for net, server in ((1, self.servers[0]), (2, self.target))
        }
        words["-h 10.0.2.1"] = f"--protocol tcp -h 127.0.0.1 -P {self.target.port}"
        if self.target.takes_key:
            words['"new-password"}'] = f'"new-password", {KEY_RETRIEVAL}}}'
        return Reader(self.cluster, places, programs, words)

    def run_here(self, line: str) -> None:
        """Run a line of a shell in the folder of the files."""
        subprocess.run(["sh", "-ec", line], cwd=self.cluster.directory, check=True)

    def filled(self, text: str) -> str:
        """Return text of a page with the hosts of the test."""
        for word, value in self.reader.words.items():
            text = text.replace(word, value)
        return text

    def task(self, *numbers: int) -> str:
        """Return the task file with these sources."""
        return _TASK.format(
            login=self.target.login,
            instances="\n".join(instance(number) for number in numbers),
            mappings="\n".join(_MAPPING.format(number=number) for number in numbers),
        )

    def write(self, text: str) -> None:
        self.cluster.write("orders.yaml", text)

    def give_accounts(self) -> None:
        """Let sources and target be used by the account `dm`, as First merge creates it."""
        grants = ("ALL ON shop.*", "ALL ON dm_meta.*")
        for server, each in (*((server, (_GRANTS,)) for server in self.servers), (self.target, grants)):
            server.execute(
                "CREATE USER dm@'%' IDENTIFIED BY 'old-password'", *(f"GRANT {grant} TO dm@'%'" for grant in each)
            )
            server.user, server.password = "dm", "old-password"

    def create_source(self, name: str, *options: str) -> None:
        self.cluster.write(f"{name}.yaml", source_yaml(name, self.sources[name]))
        self.cluster.dmctl("operate-source", "create", str(self.cluster.directory / f"{name}.yaml"), *options)

    def start(self, *numbers: int) -> None:
        """Start the task on these sources; return when it replicates."""
        self.write(self.task(*numbers))
        self.reader.command("dmctl start-task orders.yaml")
        self.wait_replicating()

    def wait_replicating(self) -> None:
        self.cluster.wait_replicating("orders")

    def change(self, *names: str) -> None:
        """Change rows of each shard table of these sources (of all, without names)."""
        for shard in self.of(*(names or self.sources)).shard_tables():
            connection = shard.connect()
            with connection, connection.cursor() as cursor:
                cursor.execute(f"UPDATE {shard.name} SET amount = amount + 1 WHERE id % 7 = 0")
                cursor.execute(f"DELETE FROM {shard.name} WHERE id % 11 = 0 ORDER BY id LIMIT 3")
                cursor.execute(
                    f"INSERT INTO {shard.name} (customer, amount, state, token, created) "
                    "VALUES ('new', 1, 'new', '', '2026-01-01')"
                )

    def judge(self, *names: str) -> int:
        """Check that the target has what these sources have (all, without names), and nothing else; return the rows."""
        family = self.of(*(names or self.sources))
        self.cluster.wait_caught_up("orders", dict(family.sources))
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        return verdict.rows

    def wait_error(self, source: str, *codes: int) -> str:
        """Wait until the task is paused at a source by an error of one of these codes; return the message."""

        def found() -> str | None:
            subtask = self.cluster.subtasks("orders").get(source)
            errors = subtask.errors if subtask is not None and subtask.stage == "Paused" else ()
            return next((message for number, message in errors if number in codes), None)

        return until(found, f"the task is paused at {source} by {codes}", 300)


@contextmanager
def orders(folder: Path, kind: str, *, sources: int = 2, workers: int = 2, masters: int = 1) -> Generator[Orders]:
    """Provide servers and a cluster, with filled shard tables; no source and no task is created."""
    servers = [KINDS[kind](folder / f"source-{number}", 100 + number) for number in range(1, sources + 1)]
    target = KINDS[kind](folder / "target", 201)
    cluster = Cluster(folder / "cluster", workers=workers, masters=masters)
    try:
        for server in (*servers, target):
            server.start()
        made = Orders(cluster.start(), servers, target)
        made.family.create(300)
        yield made
    finally:
        cluster.stop()
        for server in (*servers, target):
            server.stop()


def page(name: str) -> Path:
    return DOCS / "how-to" / f"{name}.md"


def yaml_of(name: str, section: str) -> list[str]:
    """Return the blocks of YAML of a section."""
    return [block.text.rstrip("\n") for block in blocks(page(name), section) if block.language == "yaml"]
