"""Follows the ways out of a task file whose references are wrong or missing, one error after the other."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from tests.integration.ways_out.printed import Operator, Printed
from tests.support.database import Database
from tests.support.wait import until
from tests.support.world import World

_SHARDS = (1, 2)
_TABLES = ("users", "orders", "visits")
_ENTRY = "references:\n"


@dataclass
class Draft:
    """A task file that an operator corrects. ``allowed``: the tables that take part. ``others``: further mappings;
    ``references``: the entries, as lines of YAML."""

    world: World
    allowed: list[str] = field(default_factory=lambda: ["users", "orders"])
    others: str = ""
    references: list[str] = field(default_factory=list[str])

    def write(self) -> str:
        lines = ["name: refs", "task-mode: all", f"target-database: {self.world.target.login}", "mysql-instances:"]
        mappings: list[str] = []
        for number, (source, _) in enumerate(self.world.sources, 1):
            own = [f"{table}-{number}" for table in self.allowed]
            mappings += [
                f"  {table}-{number}: {{schema-pattern: refs_1, table-pattern: '{table}_*', target-column: id, "
                f"expression: partition id, arguments: ['{number}', '', {table}, _]}}"
                for table in self.allowed
            ]
            own += ["other"] if self.others else []
            lines.append(
                f"  - {{source-id: {source}, block-allow-list: shards, route-rules: [{', '.join(self.allowed)}], "
                f"column-mapping-rules: [{', '.join(own)}]}}"
            )
        tables = ", ".join(f"{{db-name: refs_1, tbl-name: '{table}_*'}}" for table in self.allowed)
        lines += ["block-allow-list:", f"  shards: {{do-dbs: [refs_1], do-tables: [{tables}]}}", "routes:"]
        lines += [
            f"  {table}: {{schema-pattern: refs_1, table-pattern: '{table}_*', target-schema: refs_all, "
            f"target-table: {table}}}"
            for table in self.allowed
        ]
        lines += ["column-mappings:", *mappings, *([f"  other: {self.others}"] if self.others else [])]
        lines += ["references:", *self.references] if self.references else []
        return self.world.cluster.write("refs.task.yaml", "\n".join(lines) + "\n")


def _checked(world: World, file: str, code: int, state: str) -> Printed:
    """Return the check of this code that check-task reports in this state."""
    answer = world.cluster.dmctl("check-task", file, check=False)
    for check in answer.json.get("checkResult", []):
        if int(check.get("code", 0)) == code:
            assert check["state"] == state, answer.text
            return Printed.of(check)
    raise AssertionError(answer.text)


def _printed_entries(printed: Printed) -> list[str]:
    """Return the entries of `references` as they are printed."""
    assert _ENTRY in printed.way_out, printed.way_out
    lines = printed.way_out.partition(_ENTRY)[2].splitlines()
    return [line for line in lines if line.startswith("- {from: ")]


def _create(world: World) -> None:
    world.cluster.dmctl("stop-task", "refs", check=False)  # of a test that has failed
    world.target.execute("DROP DATABASE IF EXISTS refs_all")
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute("DROP DATABASE IF EXISTS refs_1", "CREATE DATABASE refs_1")
        for shard in _SHARDS:
            server.execute(
                f"CREATE TABLE refs_1.users_{shard} (id BIGINT PRIMARY KEY, name VARCHAR(20))",
                f"CREATE TABLE refs_1.orders_{shard} (id BIGINT PRIMARY KEY, user_id BIGINT, user_name VARCHAR(20), "
                f"CONSTRAINT o{shard} FOREIGN KEY (user_id) REFERENCES refs_1.users_{shard} (id))",
                f"CREATE TABLE refs_1.visits_{shard} (id BIGINT PRIMARY KEY, buyer BIGINT, user_name VARCHAR(20))",
                f"INSERT INTO refs_1.users_{shard} SELECT seq, CONCAT('{number}-{shard}-', seq) "
                "FROM refs_1.seq_1_to_50",
                f"INSERT INTO refs_1.orders_{shard} SELECT seq, 1 + seq % 50, "
                f"CONCAT('{number}-{shard}-', 1 + seq % 50) FROM refs_1.seq_1_to_90",
                f"INSERT INTO refs_1.visits_{shard} SELECT seq, 1 + seq % 50, "
                f"CONCAT('{number}-{shard}-', 1 + seq % 50) FROM refs_1.seq_1_to_40",
            )


def _judge(world: World, *children: str) -> None:
    """Each row refers to the row that has its user's name, and all rows are there."""
    world.settle(["refs"])
    names = {"orders": "user_id", "visits": "buyer"}
    for table in ("users", *children):
        count = sum(
            int(str(server.query(f"SELECT COUNT(*) FROM refs_1.{table}_{shard}")[0][0]))
            for _, server in world.sources
            for shard in _SHARDS
        )
        assert world.target.query(f"SELECT COUNT(*) FROM refs_all.{table}") == [(count,)]
        if table in names:
            text = (
                f"SELECT COUNT(*) FROM refs_all.{table} c JOIN refs_all.users u "
                f"ON u.id = c.{names[table]} AND u.name = c.user_name"
            )
            assert world.target.query(text) == [(count,)], table


def test_each_error_leads_to_references_that_are_right(world: World) -> None:
    _create(world)
    cluster, draft = world.cluster, Draft(world)
    # A foreign key without an entry; names that only look like references come later.
    right = _printed_entries(_checked(world, draft.write(), 12085, "fail"))
    assert right == ["- {from: orders.user_id, to: users.id}"]
    draft.references = [right[0].replace("user_id", "userid")]
    printed = _checked(world, draft.write(), 12089, "fail")
    assert "Correct `from` and `to`" in printed.way_out
    draft.references = right
    # A mapping by hand with the numbers of the own table.
    draft.others = (
        "{schema-pattern: refs_1, table-pattern: 'orders_*', target-column: user_id, expression: partition id, "
        "arguments: ['1', '', orders, _]}"
    )
    answer = cluster.dmctl("check-task", draft.write(), check=False)
    assert "[11015 " in answer.text and "Keep one of them" in answer.text, answer.text
    draft.others = ""
    # A table that refers to one without a shard table of its number.
    first = world.sources[0][1]
    first.execute("CREATE TABLE refs_1.orders_9 (id BIGINT PRIMARY KEY, user_id BIGINT, user_name VARCHAR(20))")
    printed = _checked(world, draft.write(), 12086, "fail")
    assert "refs_1.orders_9 (to refs_1.users_9)" in printed.message
    first.execute("CREATE TABLE refs_1.users_9 LIKE refs_1.users_1")
    # A shard table that goes elsewhere.
    draft.references = [right[0].replace("}", ", shard-table: 'visits_*'}")]
    answer = cluster.dmctl("check-task", draft.write(), check=False)
    assert "[11014 " in answer.text and "Name the shard table" in answer.text, answer.text
    draft.references = right
    # A foreign key to a table outside of the task.
    draft.allowed = ["orders"]
    draft.references = []
    printed = _checked(world, draft.write(), 12087, "warn")
    assert "Let the tables through in the block-allow list" in printed.way_out
    draft.allowed = list(_TABLES)
    draft.references = right
    file = draft.write()
    operator = Operator(cluster, "refs", file)
    cluster.dmctl("check-task", file)
    cluster.dmctl("start-task", file)
    cluster.wait_replicating("refs")
    _judge(world, "orders")
    _add_a_foreign_key(world, operator, draft)


def _add_a_foreign_key(world: World, operator: Operator, draft: Draft) -> None:
    """50066: `buyer` holds ids of users, and the task does not map it."""
    first = world.sources[0][1]
    first.execute(
        "ALTER TABLE refs_1.visits_1 ADD CONSTRAINT v1 FOREIGN KEY (buyer) REFERENCES refs_1.users_1 (id)",
        "INSERT INTO refs_1.visits_1 VALUES (100, 7, '1-1-7')",
    )
    printed = operator.stopped(50066, "mysql-01")
    operator.runs(printed, "stop-task")
    for table in _TABLES:
        world.target.execute(f"TRUNCATE TABLE refs_all.{table}")
    draft.references = [*draft.references, "- {from: visits.buyer, to: users.id}"]
    draft.write()
    operator.runs(printed, "start-task")
    until(lambda: all(sub.stage == "Running" for sub in world.cluster.subtasks("refs").values()), "the task runs")
    world.cluster.wait_replicating("refs")
    _judge(world, "orders", "visits")
    world.cluster.dmctl("stop-task", "refs", "--remove-meta")


def test_names_that_look_like_references(world: World) -> None:
    _create(world)
    for _, server in world.sources:
        server.execute(*(f"ALTER TABLE refs_1.orders_{shard} DROP FOREIGN KEY o{shard}" for shard in _SHARDS))
    draft = Draft(world)
    draft.references = _printed_entries(_checked(world, draft.write(), 12088, "warn"))
    assert draft.references == ["- {from: orders.user_id, to: users.id}"]
    file = draft.write()
    world.cluster.dmctl("start-task", file)
    world.cluster.wait_replicating("refs")
    _judge(world, "orders")
    _compare_while_a_lane_is_late(world)
    _compare_while_writers_run(world)
    _judge(world, "orders")
    world.cluster.dmctl("stop-task", "refs", "--remove-meta")


def _compare_while_a_lane_is_late(world: World) -> None:
    """Orders are at the target, and their users are not yet there, because a lane has not committed them."""
    hooks = world.cluster.hooks
    hooks.hold("lane0.before_commit")
    for _, server in world.sources:
        for shard in _SHARDS:
            server.execute(
                f"INSERT INTO refs_1.users_{shard} SELECT seq, CONCAT('late-', seq) FROM refs_1.seq_600_to_699",
                f"INSERT INTO refs_1.orders_{shard} SELECT seq + 100000, seq, CONCAT('late-', seq) "
                "FROM refs_1.seq_600_to_699",
            )
    alone = (
        "SELECT 1 FROM refs_all.orders o LEFT JOIN refs_all.users u ON u.id = o.user_id "
        "WHERE o.user_name LIKE 'late-%' AND u.id IS NULL LIMIT 1"
    )
    until(lambda: world.target.query(alone), "an order without its user", 120)
    hooks.hold("compare.lanes_behind")
    with ThreadPoolExecutor(1) as pool:
        try:
            comparing = pool.submit(world.cluster.compare, "refs", "--references", check=False)
            hooks.reached("compare.lanes_behind")
            assert world.target.query(alone)
        finally:
            hooks.release_all()
        done = comparing.result()
    assert (done.total("orphans"), done.lines) == (0, []), done.answer.text


def _compare_while_writers_run(world: World) -> None:
    """The two rows of a transaction are applied by two lanes, at different times: that is no orphan. A partner that is
    removed at the target is one, while everything else changes."""
    ended = threading.Event()
    writers = [threading.Thread(target=_write, args=(server, ended)) for _, server in world.sources]
    for one in writers:
        one.start()
    try:
        for _ in range(3):
            done = world.cluster.compare("refs", "--references", check=False)
            assert (done.total("orphans"), done.lines) == (0, []), done.answer.text
            assert {table["reference"] for table in done.answer.json["tables"]} == {"orders.user_id to users.id"}
        lost = (1 << 59) + (1 << 51) + 50  # no writer changes it
        world.target.execute(f"DELETE FROM refs_all.users WHERE id = {lost}")
        done = world.cluster.compare("refs", "--references", check=False)
        assert {(line["kind"], line["sourceTable"], int(line["key"]["id"])) for line in done.lines} == {
            ("orphan", "refs_1.orders_1", (1 << 59) + (1 << 51) + order) for order in (49,)
        }, done.answer.text
        world.target.execute(f"INSERT INTO refs_all.users VALUES ({lost}, '1-1-50')")
    finally:
        ended.set()
        for one in writers:
            one.join(60)


def _write(server: Database, ended: threading.Event) -> None:
    """Users come and go together with the orders that refer to them, and orders get other users."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in itertools.count(1000):
            if ended.is_set():
                return
            for shard in _SHARDS:
                name = f"new-{number}-{shard}"
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO refs_1.users_{shard} VALUES ({number}, '{name}')")
                cursor.execute(f"INSERT INTO refs_1.orders_{shard} VALUES ({number + 200000}, {number}, '{name}')")
                cursor.execute(
                    f"UPDATE refs_1.orders_{shard} SET user_id = {number}, user_name = '{name}' "
                    f"WHERE id = 1 + {number} % 40"
                )
                cursor.execute("COMMIT")
                if number % 2:
                    cursor.execute("BEGIN")
                    gone = number - 500
                    cursor.execute(f"DELETE FROM refs_1.orders_{shard} WHERE user_id = {gone}")
                    cursor.execute(f"DELETE FROM refs_1.users_{shard} WHERE id = {gone} AND id >= 1000")
                    cursor.execute("COMMIT")
            time.sleep(0.005)
