"""Tests that a statement which an operator substitutes runs once at the target, despite any kill or stop (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shardmerge.proto import errors
from tests.support.cluster import SubTask
from tests.support.database import Database
from tests.support.kills import kill_at_each
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import World

_REFUSED = errors.ddl.DDL_REFUSED.code


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a world with one source, so that a worker is free to take it over."""
    made = World(tmp_path_factory.mktemp("world"), (MariaDB,))
    try:
        yield made.start()
    finally:
        made.stop()


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of the first source with ``<name>.t`` and others; it stops at MODIFY and at DROP TABLE. The tables in
    ``<name>_aside`` exist only at the target, and do not belong to the task."""

    world: World
    name: str

    @property
    def source(self) -> Database:
        return self.world.sources[0][1]

    @property
    def target(self) -> Database:
        return self.world.target

    def start(self, extra: str = "", login: str = "") -> _Task:
        """``login``: the task's own account at the target."""
        name = self.name
        self.source.execute(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY, n INT)",
            f"INSERT INTO {name}.t VALUES (1, 1)",
        )
        self.target.execute(f"CREATE DATABASE {name}_aside")
        lines = self.world.head_of_task(name, "filter-rules: [never], route-rules: [merge]")
        rules = (
            f"block-allow-list: {{own: {{do-dbs: [{name}]}}}}\n"
            f"routes: {{merge: {{schema-pattern: {name}, table-pattern: 's_*', target-schema: {name}, "
            "target-table: s}}\n"
            f"filters: {{never: {{schema-pattern: {name}, table-pattern: '*', events: [modify column, drop table], "
            "action: Error}}\n"
        )
        text = "\n".join((*lines, rules)) + extra
        self.world.cluster.start_task(text.replace(self.target.login, login) if login else text)
        self.world.cluster.wait_replicating(name)
        return self

    def stand(
        self, statement: str = "ALTER TABLE $.t MODIFY n BIGINT", row: str = "INSERT INTO $.t VALUES (2, 2)"
    ) -> None:
        """Let the source run the statement, and wait until the task stops at it."""
        self.source.execute(*(text.replace("$", self.name) for text in (statement, row)))
        self.paused(errors.ddl.STATEMENT_FILTERED.code)

    def paused(self, code: int) -> str:
        """Wait until the task is paused with this error; return its message."""

        def stands(sub: SubTask) -> bool:
            return sub.stage == "Paused" and code in dict(sub.errors)

        found = self.world.cluster.wait_subtasks(self.name, stands, f"stands with {code}")
        return dict(next(iter(found.values())).errors)[code]

    def say(self, statements: str, op: str = "replace") -> None:
        self.world.cluster.dmctl("binlog", op, self.name, statements.replace("$", self.name))

    def resume(self) -> None:
        self.world.cluster.dmctl("resume-task", self.name, check=False)

    def arrived(self, table: str = "t", number: int = 2) -> None:
        """Wait until the row after the statement has arrived."""

        def is_there() -> bool:
            if self.target.query(f"SELECT 1 FROM {self.name}.{table} WHERE id = {number}"):
                return True
            self.resume()
            return False

        until(is_there, f"row {number} has come", 300, every=1.0)

    def runs(self, statement: str) -> int:
        """Return how often the target has run the statement."""
        text, found = statement.replace("$", self.name), 0
        for file, *_ in self.target.query("SHOW BINARY LOGS"):
            events = self.target.query(f"SHOW BINLOG EVENTS IN '{file}'")
            found += sum(text in str(info) for (_, _, kind, _, _, info) in events if kind == "Query")
        return found

    def end(self) -> None:
        assert self.target.query(f"SELECT * FROM dm_meta.statement_begun WHERE task = '{self.name}'") == []
        query = f"SELECT id, n FROM {self.name}.t ORDER BY id"
        assert self.source.query(query) == self.target.query(query)
        marks = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'dm_meta' AND table_name LIKE 'ddl_mark%'"
        assert self.target.query(marks) == []
        self.world.cluster.dmctl("stop-task", self.name)


_SEVERAL = (
    ("ddl.begun", "worker"),
    ("ddl.run", "target"),
    ("ddl.operator_recorded", "worker"),
    ("ddl.begun", "worker"),
    ("ddl.run", "worker"),
    ("ddl.operator_recorded", "target"),
    ("ddl.run", "worker"),
    ("ddl.before_passing", "worker"),
    ("ddl.passing", "worker"),
    ("ddl.passed", "jvm"),
)
"""The moments of three statements, each with a victim."""


@pytest.mark.parametrize(
    "kills",
    [tuple(_SEVERAL[at] for at in (1, 2, 7)), pytest.param(_SEVERAL, marks=pytest.mark.grid)],
    ids=["three", "all"],
)
def test_kills_at_moments_of_each_of_several(world: World, kills: tuple[tuple[str, str], ...]) -> None:
    task = _Task(world, f"said_kills_{len(kills)}").start()
    task.stand()
    statements = (
        "CREATE TABLE $_aside.note (id INT PRIMARY KEY)",
        "CREATE DATABASE $_made",
        "ALTER TABLE $.t MODIFY n BIGINT",
    )
    world.cluster.hooks.hold(kills[0][0])
    task.say("; ".join(statements))
    kill_at_each(world, kills, task.resume)
    task.arrived()
    assert task.runs(statements[0]) == 1
    assert task.runs(statements[1]) == 1
    assert task.runs("ALTER TABLE `$`.`t` MODIFY n BIGINT") == 1
    task.end()


def test_a_task_that_stops_for_another_reason_runs_nothing_twice(world: World) -> None:
    task = _Task(world, "said_stop").start()
    task.stand()
    created = "CREATE TABLE $_aside.note (id INT PRIMARY KEY)"
    task.say(created)
    differs = errors.replicate.TARGET_TABLE_DIFFERS.code
    task.paused(differs)
    for _ in range(2):
        task.resume()
        until(lambda: _stands_anew(task, differs), "it stands again, for the same reason")
    task.target.execute(f"ALTER TABLE {task.name}.t MODIFY n BIGINT")
    task.arrived()
    assert task.runs(created) == 1
    task.end()


def _stands_anew(task: _Task, code: int) -> bool:
    """Return whether the task is paused; fail when it is paused with another error."""
    found = next(iter(task.world.cluster.subtasks(task.name).values()), None)
    if found is None or found.stage != "Paused" or not found.errors:
        return False
    assert code in dict(found.errors), found.errors
    return True


def test_the_second_of_two_fails_and_is_corrected(world: World) -> None:
    task = _Task(world, "said_second").start()
    task.target.execute(f"CREATE TABLE {task.name}_aside.k (id INT)", f"INSERT INTO {task.name}_aside.k VALUES (1)")
    task.stand()
    first = "CREATE TABLE $_aside.note (id INT PRIMARY KEY)"
    there, back = "ALTER TABLE $_aside.k ADD COLUMN x INT", "ALTER TABLE $_aside.k DROP COLUMN x"
    emptied, own = "TRUNCATE TABLE $_aside.k", "ALTER TABLE $.t MODIFY n BIGINT"
    task.say("; ".join((first, there, back, emptied, "CREATE INDEX by_none ON $.t (nothing)", own)))
    assert "by_none" in task.paused(_REFUSED)
    task.target.execute(f"INSERT INTO {task.name}_aside.k VALUES (2)")
    task.resume()
    until(lambda: _stands_anew(task, _REFUSED), "it stands again")
    assert "by_none" in task.paused(_REFUSED)
    # In another order, and as another kind of override: a statement that has run is not repeated.
    task.say("; ".join((emptied, back, "CREATE INDEX by_n ON $.t (n)", there, first)), "inject")
    task.arrived()
    for statement in (
        first,
        there,
        back,
        emptied,
        "CREATE INDEX by_n ON `$`.`t`",
        "ALTER TABLE `$`.`t` MODIFY n BIGINT",
    ):
        assert task.runs(statement) == 1, statement
    assert task.target.query(f"SELECT id FROM {task.name}_aside.k") == [(2,)]
    task.end()


def test_equal_statements_run_once_each(world: World) -> None:
    task = _Task(world, "said_equal").start()
    task.stand()
    made, gone = "CREATE TABLE $_aside.note (id INT PRIMARY KEY)", "DROP TABLE $_aside.note"
    task.say("; ".join((made, gone, made, gone, "ALTER TABLE $.t MODIFY n BIGINT")))
    task.arrived()
    assert task.runs(made) == 2
    task.end()


@pytest.mark.parametrize(
    ("mode", "op"),
    [
        pytest.param("none", "inject", marks=pytest.mark.grid),
        ("pessimistic", "replace"),
        pytest.param("optimistic", "inject", marks=pytest.mark.grid),
    ],
)
def test_the_source_moves_to_another_worker(world: World, mode: str, op: str) -> None:
    task = _Task(world, f"said_{mode}").start(f"shard-mode: {mode}\n" if mode != "none" else "")
    task.stand()
    created, own = "CREATE TABLE $_aside.note (id INT PRIMARY KEY)", "ALTER TABLE $.t MODIFY n BIGINT"
    world.cluster.hooks.hold("ddl.run")
    task.say(f"{created}; {own}" if op == "replace" else created, op)
    until(lambda: world.cluster.hooks.standing("ddl.run") or task.resume(), "a worker has run the first")
    was = world.cluster.worker_of("mysql-01")
    was.kill_all()
    world.cluster.hooks.release("ddl.run")
    until(lambda: world.cluster.worker_of("mysql-01") is not was, "the other worker takes the source over")
    task.arrived()
    assert task.runs(created) == 1
    assert task.runs("ALTER TABLE `$`.`t` MODIFY n BIGINT") == 1
    was.start()
    task.end()


def test_tables_swap_their_names_once(world: World) -> None:
    task = _Task(world, "said_swap").start()
    for table in ("a", "b"):
        task.target.execute(f"CREATE TABLE {task.name}_aside.{table} (name CHAR(1))")
        task.target.execute(f"INSERT INTO {task.name}_aside.{table} VALUES ('{table}')")
    task.stand()
    world.cluster.hooks.hold("ddl.begun")
    swap = "RENAME TABLE $_aside.a TO $_aside.x, $_aside.b TO $_aside.a, $_aside.x TO $_aside.b -- swapped"
    task.say(f"{swap}\n; ALTER TABLE $.t MODIFY n BIGINT")
    kill_at_each(world, {"ddl.begun": "worker", "ddl.run": "worker"}, task.resume)
    task.arrived()
    assert task.target.query(f"SELECT name FROM {task.name}_aside.a") == [("b",)]
    task.end()


def test_it_is_not_guessed_whether_a_truncate_has_run(world: World) -> None:
    task = _Task(world, "said_truncate").start()
    task.target.execute(f"CREATE TABLE {task.name}_aside.k (id INT)")
    task.stand()
    world.cluster.hooks.hold("ddl.run")
    emptied, own = "TRUNCATE TABLE $_aside.k", "ALTER TABLE $.t MODIFY n BIGINT"
    task.say(f"{emptied}; {own}")
    kill_at_each(world, {"ddl.run": "worker"}, task.resume)
    task.target.execute(f"INSERT INTO {task.name}_aside.k VALUES (2)")
    message = task.paused(errors.ddl.OPERATOR_STATEMENT_UNCLEAR.code)
    assert emptied.replace("$", task.name) in message
    assert task.runs(emptied) == 1
    assert task.target.query(f"SELECT id FROM {task.name}_aside.k") == [(2,)]
    task.say(f"TRUNCATE TABLE /* again */ $_aside.k; {own}")
    task.arrived()
    assert task.target.query(f"SELECT id FROM {task.name}_aside.k") == []
    assert task.runs(emptied) == 1
    task.end()


def test_two_streams_come_to_the_statement(world: World) -> None:
    task = _Task(world, "said_streams").start("shard-mode: pessimistic\n")
    task.source.execute(
        *(f"CREATE TABLE {task.name}.s_{number} (id INT PRIMARY KEY)" for number in (1, 2)),
        f"ALTER TABLE {task.name}.s_1 ADD COLUMN x INT",  # waits for s_2
    )
    task.stand("DROP TABLE $.s_1, $.s_2")
    created = "CREATE TABLE $_aside.note (id INT PRIMARY KEY)"
    task.say(created)
    task.arrived()

    def let_go() -> bool:
        columns = task.target.query(f"SHOW COLUMNS FROM {task.name}.s")
        return len(columns) == 2 and not task.target.query("SELECT 1 FROM dm_meta.parked_table")

    until(let_go, "s_1 is past its statements, which are those of a stream of its own")
    world.cluster.wait_joined(task.name)
    assert task.runs(created) == 1
    task.end()


def test_a_table_that_the_target_account_may_not_see(world: World) -> None:
    """The operator has written the name of another table, and gives the statement anew without a position."""
    account, target = "operator", world.target
    login = target.login
    target.execute(
        f"CREATE USER {account}@'127.0.0.1' IDENTIFIED BY '{account}'",
        f"GRANT ALL ON said_wrong.* TO {account}@'127.0.0.1'",
        f"GRANT ALL ON dm_meta.* TO {account}@'127.0.0.1'",
    )
    own = login.replace(f"user: {target.user}", f"user: {account}").replace(
        f'password: "{target.password}"', f'password: "{account}"'
    )
    task = _Task(world, "said_wrong").start(login=own)
    target.execute("CREATE TABLE said_wrong_aside.t (id INT PRIMARY KEY, n INT)")
    task.stand()
    task.say("ALTER TABLE $_aside.t MODIFY n BIGINT")
    assert "said_wrong_aside" in task.paused(_REFUSED)
    task.say("ALTER TABLE $.t MODIFY n BIGINT")
    task.arrived()
    task.end()
