"""Tests all four pairs of MySQL and MariaDB: one source of each kind is merged into a target of each kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import all_types
from tests.support.cluster import Compared
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.kills import COPYING, at_each, kill_while_copying, kill_while_replicating
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.world import World
from tests.support.writer import ShardTable, Writer, beside_a_writer

pytestmark = pytest.mark.turns

# The privileges that the README lists. A password makes MySQL use its own login method, caching_sha2_password.
SOURCE_GRANTS = ("SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*",)
TARGET_GRANTS = (
    "ALL ON `into\\_%`.*",
    "ALL ON `types\\_%`.*",
    "ALL ON `kill\\_%`.*",
    "ALL ON `snap\\_%`.*",
    "ALL ON dm_meta.*",
)


@pytest.fixture(scope="module")
def mixed_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("pairs"), sources=(MySQL, MariaDB), targets=(MySQL, MariaDB))
    try:
        made.start_servers()
        for _, source in made.sources:
            source.give_account("reader", "Reader 7!", *SOURCE_GRANTS)
        for target in made.targets:
            target.give_account("writer", "schlüssel", *TARGET_GRANTS)
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def world(mixed_world: World, watch_logs: Callable[[Path], None]) -> World:
    watch_logs(mixed_world.directory)
    mixed_world.heal()
    return mixed_world


def test_history_and_live_changes_from_both_into_both(world: World) -> None:
    families = [world.family(f"into_{target.flavor}", target=target, tables=2) for target in world.targets]
    shards = [shard for family in families for shard in family.create(2000)]
    names = [family.name for family in families]
    with Writer(shards, seed=51) as writer:
        for family in families:
            world.cluster.start_task(family.task())
        for name in names:
            world.cluster.wait_replicating(name)
        writer.go_on(1500)
        for name in names:
            assert world.cluster.compare(name).rows > 0
        counts = writer.stop()
    world.settle(names)
    for family in families:
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        assert verdict.rows > 1000
    assert min(counts.inserts, counts.updates, counts.deletes, counts.key_changes) > 0
    for name in names:
        world.cluster.dmctl("stop-task", name)


@pytest.mark.grid
def test_what_is_planted_is_repaired_in_every_pair(world: World) -> None:
    families = [world.family(f"into_fix_{target.flavor}", target=target, tables=1) for target in world.targets]
    shards = [shard for family in families for shard in family.create(1000)]
    for family in families:
        world.cluster.start_task(family.task())
    with Writer(shards, seed=52):
        for family in families:
            world.cluster.wait_replicating(family.name)
            merged = ShardTable(family.target.connect, family.name, "orders")
            beside_a_writer(merged, f"UPDATE {merged.name} SET customer = 'planted' WHERE (id & 127) = 7")
            assert world.cluster.compare(family.name, "--repair").total("repaired") > 0
    world.settle([family.name for family in families])
    for family in families:
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        assert world.cluster.compare(family.name).rows > 0
        world.cluster.dmctl("stop-task", family.name)


@pytest.mark.grid
def test_rows_that_lose_their_partner_are_found_in_every_pair(world: World) -> None:
    """A reference that is left unmapped on purpose, and a partner that is removed at the target; rows without a
    partner at the source are not counted."""
    for _, source in world.sources:
        source.execute(
            "CREATE DATABASE ref_1",
            *(f"CREATE TABLE ref_1.users_{n} (id INT PRIMARY KEY, boss INT, KEY (boss))" for n in (1, 2)),
            *(
                f"CREATE TABLE ref_1.orders_{n} (id INT PRIMARY KEY, user_id INT, note INT, "
                f"CONSTRAINT of_user_{n} FOREIGN KEY (user_id) REFERENCES ref_1.users_{n} (id))"
                for n in (1, 2)
            ),
            "SET SESSION foreign_key_checks = 0",
            *(f"INSERT INTO ref_1.users_{n} VALUES (1, NULL), (2, 1), (3, 9)" for n in (1, 2)),
            *(f"INSERT INTO ref_1.orders_{n} VALUES (1, 1, 0), (2, 2, 0), (3, 9, 0), (4, NULL, 0)" for n in (1, 2)),
        )
    names: list[str] = []
    for target in world.targets:
        for name, references in (("unmapped", "none"), ("mapped", "[{from: orders.user_id, to: users.id}]")):
            names.append(f"ref_{name}_{target.flavor}")
            world.cluster.start_task(_referring_task(world, names[-1], target, f"into_{names[-1]}", references))
    for name in names:
        world.cluster.wait_replicating(name)
    for _, source in world.sources:
        source.execute("UPDATE ref_1.orders_2 SET note = 1 WHERE id = 2")
    world.settle(names)
    for target in world.targets:
        unmapped, mapped = f"ref_unmapped_{target.flavor}", f"ref_mapped_{target.flavor}"
        done = world.cluster.compare(unmapped, "--references", check=False)
        assert done.answer.code == 1, done.answer.text
        assert _orphans(done) == {
            (source, f"ref_1.orders_{n}", (instance << 59) + (1 << 52) + (n << 44) + at)
            for instance, (source, _) in enumerate(world.sources, 1)
            for n in (1, 2)
            for at in (1, 2)
        }
        assert {table["reference"]: table["orphans"] for table in done.answer.json["tables"]} == {
            "orders.user_id to users.id": "2"
        }
        done = world.cluster.compare(mapped, "--references", check=False)
        assert (done.answer.code, done.lines) == (0, []), done.answer.text
        users = (2 << 59) + (1 << 52) + (2 << 44)
        target.execute(f"DELETE FROM into_{mapped}.users WHERE id = {users | 2}")
        done = world.cluster.compare(mapped, "--references", check=False)
        assert done.answer.code == 1, done.answer.text
        assert _orphans(done) == {(world.sources[1][0], "ref_1.orders_2", users | 2)}
    for name in names:
        world.cluster.dmctl("stop-task", name)


def _orphans(done: Compared) -> set[tuple[str, str, int]]:
    assert {line["kind"] for line in done.lines} == {"orphan"}
    return {(line["source"], line["sourceTable"], int(line["key"]["id"])) for line in done.lines}


def _referring_task(world: World, name: str, target: Database, schema: str, references: str) -> str:
    """Return the task file that merges users_* and orders_* of ref_1, with mapped ids."""
    instances = "".join(
        f"  - source-id: {source_id}\n    block-allow-list: ref\n    route-rules: [users, orders]\n"
        f"    column-mapping-rules: [users-{number}, orders-{number}]\n"
        for number, (source_id, _) in enumerate(world.sources, 1)
    )
    mappings = "".join(
        f"  {table}-{number}: {{schema-pattern: ref_1, table-pattern: {table}_*, target-column: id, "
        f'expression: partition id, arguments: ["{number}", ref, {table}, _]}}\n'
        for number in (1, 2)
        for table in ("users", "orders")
    )
    routes = "".join(
        f"  {table}: {{schema-pattern: ref_1, table-pattern: {table}_*, target-schema: {schema}, "
        f"target-table: {table}}}\n"
        for table in ("users", "orders")
    )
    return (
        f"name: {name}\ntask-mode: all\nmeta-schema: dm_meta\ntarget-database: {target.login}\n"
        f"references: {references}\nignore-checking-items: [references]\nmysql-instances:\n{instances}"
        f"block-allow-list:\n  ref: {{do-dbs: [ref_1]}}\nroutes:\n{routes}column-mappings:\n{mappings}"
    )


def _all_types(statement: str, table: str) -> str:
    # MySQL's longest TIME has no fraction of a second: it refuses MariaDB's, and the task stops at the row.
    return (
        statement.replace("'838:59:59.", "'838:59:58.")
        .replace("'-838:59:59.", "'-838:59:58.")
        .replace("d.all_types", table)
    )


def _run(server: Database, statements: tuple[str, ...], table: str) -> None:
    server.execute("SET sql_mode = ''", *(_all_types(statement, table) for statement in statements))


def test_every_type_arrives_byte_for_byte(world: World) -> None:
    """Rows go through the snapshot and through the stream, from both sources into both targets."""
    for _, source in world.sources:
        schema = f"types_{source.flavor}"
        source.execute(f"CREATE DATABASE {schema}")
        for table in ("history", "stream"):
            _run(source, (all_types.CREATE,), f"{schema}.{table}")
        _run(source, all_types.INSERTS, f"{schema}.history")
    tasks = [f"types_into_{target.flavor}" for target in world.targets]
    for task, target in zip(tasks, world.targets, strict=True):
        world.cluster.start_task(_plain_task(world, task, target))
    for task in tasks:
        world.cluster.wait_replicating(task)
    for _, source in world.sources:
        _run(source, all_types.INSERTS, f"types_{source.flavor}.stream")
    _compare_types(world, tasks)
    for _, source in world.sources:
        for table in ("history", "stream"):
            _run(source, all_types.CHANGES, f"types_{source.flavor}.{table}")
    _compare_types(world, tasks)
    for task in tasks:
        assert world.cluster.compare(task).rows > 0
        world.cluster.dmctl("stop-task", task)


@pytest.mark.grid
def test_tables_without_a_key_are_compared_while_writers_change_them(world: World) -> None:
    """One row that a target lacks, or has with another value, is found too. The rows from 1000 on change."""
    for _, source in world.sources:
        schema = f"into_keyless_{source.flavor}"
        source.execute(
            f"CREATE DATABASE {schema}",
            # MySQL reads such a table at one position under a lock.
            f"GRANT LOCK TABLES ON {schema}.* TO reader@'127.0.0.1'",
            f"CREATE TABLE {schema}.visits (n INT, f DOUBLE, note VARCHAR(9) CHARSET latin1, at TIME(3), doc JSON)",
            f"CREATE TABLE {schema}.keyed (id INT AUTO_INCREMENT PRIMARY KEY, n INT)",
            f"USE {schema}",
            source.spelt(
                f"INSERT INTO {schema}.visits SELECT seq, seq / 7, CONCAT('é', seq), SEC_TO_TIME(seq), "
                "JSON_OBJECT('ä', seq) FROM seq_1_to_3000"
            ),
        )
    tasks = [f"into_keyless_{target.flavor}" for target in world.targets]
    for task, target in zip(tasks, world.targets, strict=True):
        world.cluster.start_task(_plain_task(world, task, target, "into_keyless_*"))
    for task in tasks:
        world.cluster.wait_replicating(task)
    over = threading.Event()
    writers = [threading.Thread(target=_write_keyless, args=(source, over)) for _, source in world.sources]
    for writer in writers:
        writer.start()
    try:
        for task, target in zip(tasks, world.targets, strict=True):
            compared = world.cluster.compare(task)
            assert {table["remark"] for table in compared.answer.json["tables"]} != {""}, compared.answer.text
            visits = [ShardTable(target.connect, f"into_keyless_{name}", "visits") for name in ("mysql", "mariadb")]
            beside_a_writer(visits[0], f"DELETE FROM {visits[0].name} WHERE n = 7 LIMIT 1")
            beside_a_writer(visits[1], f"UPDATE {visits[1].name} SET note = 'É7' WHERE n = 7 LIMIT 1")
            wrong = world.cluster.compare(task, check=False)
            assert wrong.answer.code == 1, wrong.answer.text
            counts = tuple(map(wrong.total, ("missing", "extra", "different", "unjudged")))
            assert counts == (1, 0, 1, 0), wrong.answer.text
    finally:
        over.set()
        for writer in writers:
            writer.join()
    for task in tasks:
        world.cluster.dmctl("stop-task", task)


def _write_keyless(source: Database, over: threading.Event) -> None:
    """Insert, change and delete rows, in transactions of several."""
    schema = f"into_keyless_{source.flavor}"
    with closing(source.connect()) as connection, connection.cursor() as cursor:
        number = 1000
        while not over.wait(0.005):
            number += 1
            connection.begin()
            cursor.execute(f"INSERT INTO {schema}.visits VALUES ({number}, -0.1, 'ß', '-00:00:01.5', '[1.50]')")
            cursor.execute(f"UPDATE {schema}.visits SET note = 'x', doc = NULL WHERE n = {number} LIMIT 1")
            cursor.execute(f"DELETE FROM {schema}.visits WHERE n = {number - 20} LIMIT 1")
            cursor.execute(f"INSERT INTO {schema}.keyed (n) VALUES ({number})")
            connection.commit()


def _compare_types(world: World, tasks: list[str]) -> None:
    world.settle(tasks)
    for target in world.targets:
        for _, source in world.sources:
            for table in ("history", "stream"):
                assert_same_bytes(source, target, f"types_{source.flavor}.{table}", ["id"])


def _plain_task(world: World, name: str, target: Database, schemas: str = "types_*") -> str:
    """Return the task file that copies every table of the schemas under its own name."""
    instances = "".join(f"  - source-id: {source_id}\n    block-allow-list: types\n" for source_id, _ in world.sources)
    return (
        f"name: {name}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {target.login}\n"
        f"mysql-instances:\n{instances}"
        f'block-allow-list:\n  types: {{do-dbs: ["{schemas}"]}}\n'
    )


@pytest.mark.parametrize(
    "victim",
    [pytest.param("source", marks=pytest.mark.grid), "target", pytest.param("machine", marks=pytest.mark.grid)],
)
def test_kill_while_replicating_from_mysql_to_mysql(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


@pytest.mark.grid  # test_whole_system.py has the same kills, with Spark
def test_kill_while_copying_of_mysql(world: World) -> None:
    kills = {
        "snapshot.planning": "target",
        "snapshot.after_low": "source",
        "snapshot.after_select": "target",
        "snapshot.fixing": "source",
        "snapshot.before_commit": "target",
        "snapshot.after_commit": "source",
        "handover": "source",
    }
    assert tuple(kills) == COPYING
    kill_while_copying(world, "mixed", kills)


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["source", "target"])
def test_kill_at_every_moment_of_copying_of_mysql(world: World, victim: str) -> None:
    kill_while_copying(world, victim, at_each(victim, COPYING))
