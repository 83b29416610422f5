"""Tests `dmctl why` against ten arranged causes of a delay: the right one is first, and it names the right object."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pymysql.connections import Connection

from tests.support.cluster import Json, parse_position
from tests.support.database import Database
from tests.support.slow_link import SlowLink
from tests.support.wait import until
from tests.support.world import Family, World

_TASK = "why"
_HISTORY = "slowcopy"
_LONG = "long"
_ORDERS = "why_01.order_01"
_CODES = "why_01.codes"
_COLUMNS = "(id, customer, amount, state, token, created)"
_EXTRA = "shard-mode: pessimistic\nreplicate: {lanes: 2, on-row-error: quarantine}\n"

_SLOW_ANSWER = 0.4
_SLOW_BYTES = 40_000
_BEHIND_MS = 1200.0


class _LinkedWorld(World):
    """A world in which the program reaches each server through a link of the test's own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        super().__init__(directory)
        self._stack = stack

    def start(self) -> World:
        self.start_servers()
        self.cluster.start()
        self.links = {server: self._stack.enter_context(SlowLink(server.port)) for server in self.servers}
        for source_id, server in self.sources:
            self.cluster.create_source(source_id, self.linked(server))
        return self

    def linked(self, server: Database) -> Database:
        """Return the server as the program reaches it."""
        found = copy.copy(server)
        found.port = self.links[server].port
        return found


@pytest.fixture(scope="module")
def linked_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_LinkedWorld]:
    """Provide the task, in sync, with two shard tables of each source, and a table of its own for the first source."""
    with ExitStack() as stack:
        made = _LinkedWorld(tmp_path_factory.mktemp("world"), stack)
        stack.callback(made.stop)
        made.start()
        family = made.family(_TASK)
        family.create(50)
        made.sources[0][1].execute(
            f"CREATE TABLE {_CODES} (id BIGINT PRIMARY KEY, code BIGINT NOT NULL, UNIQUE (code))"
        )
        made.cluster.start_task(Family(_TASK, family.sources, made.linked(made.target)).task(extra=_EXTRA))
        made.cluster.wait_caught_up(_TASK, dict(made.sources))
        yield made


@pytest.fixture
def world(linked_world: _LinkedWorld, watch_logs: Callable[[Path], None]) -> Iterator[_LinkedWorld]:
    watch_logs(linked_world.directory)
    yield linked_world
    for link in linked_world.links.values():
        link.clear()
    linked_world.cluster.wait_caught_up(_TASK, dict(linked_world.sources), 60)


def _why(world: World, *options: str, task: str = _TASK, check: bool = True) -> Json:
    return world.cluster.dmctl("why", task, "--seconds", "2", *options, check=check).json


def _first(answer: Json) -> Json:
    found = cast("list[Json]", answer["findings"])
    assert found, answer
    return found[0]


def _ids(answer: Json) -> list[str]:
    return [str(each["id"]) for each in cast("list[Json]", answer["findings"])]


def _sync(world: World, source: str) -> Json:
    return cast("Json", world.cluster.subtasks(_TASK)[source].raw["sync"])


def _wait_behind(world: World, source: str) -> None:
    """Wait until the source's part of the task is known to lag."""
    until(lambda: float(_sync(world, source)["oldestMs"] or 0) >= _BEHIND_MS, f"{source} lags", 60, every=0.2)


def _unfetched(world: World, source: str) -> int:
    """Return how many bytes of the source's binlog the relay is known to lack."""
    status = world.cluster.relay_status(source) or {}
    (end_file, end), (file, position) = (
        parse_position(str(status.get(name, ""))) for name in ("masterBinlog", "relayBinlog")
    )
    return end - position if end_file == file else end


def _number_of(connection: Connection) -> int:
    """Return the number that the server knows the connection by."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        [(number,)] = cursor.fetchall()
    return int(str(number))


@contextmanager
def _changes(server: Database, statement: Callable[[int], str], pause: float = 0.005) -> Generator[None]:
    """Execute a statement again and again during the block; ``statement``: of the number of the execution."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                for number in itertools.count():
                    if stop.wait(pause):
                        return
                    cursor.execute(statement(number))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def _insert(start: int) -> Callable[[int], str]:
    """Return what inserts rows with ever new keys."""

    def statement(number: int) -> str:
        rows = ", ".join(f"({start + 10 * number + each}, 'one', 1, 'new', '', '2024-01-01')" for each in range(10))
        return f"INSERT INTO {_ORDERS} {_COLUMNS} VALUES {rows}"

    return statement


def test_an_idle_source(world: _LinkedWorld) -> None:
    answer = _why(world)
    first = _first(answer)
    assert (first["id"], first["sources"]) == ("source-idle", ["mysql-01", "mysql-02"])
    assert first["actions"] == []
    assert _ids(answer) == ["source-idle"]
    assert answer["unknown"] == []
    uses = cast("list[Json]", answer["uses"])
    assert [use["source"] for use in uses] == ["mysql-01", "mysql-02"]
    assert all(cast("dict[str, float]", use["shares"])["idle"] > 0.9 for use in uses)
    assert all(0 < float(str(use["roundTripMs"])) < 100 for use in uses)
    [row] = cast("list[Json]", world.cluster.dmctl("top").json["tasks"])
    assert (row["task"], row["stage"], row["sources"], row["synced"]) == (_TASK, "Running", 2, True)
    assert (row["lagSeconds"], row["mainCause"]) == (0, "idle")


def test_a_slow_target(world: _LinkedWorld) -> None:
    world.links[world.target].delay = _SLOW_ANSWER
    source_id, server = world.sources[0]
    with _changes(server, _insert(1_000_000)):
        _wait_behind(world, source_id)
        answer = _why(world)
    first = _first(answer)
    figures = cast("dict[str, float]", first["figures"])
    assert (first["id"], first["sources"]) == ("target-slow", [source_id])
    assert figures["share"] > 0.8
    assert figures["commit_ms"] >= 1000 * _SLOW_ANSWER
    assert 1000 * _SLOW_ANSWER <= figures["round_trip_ms"] < 5000 * _SLOW_ANSWER
    assert "Most of it is the network" in str(first["actions"][0])
    assert "source-idle" in _ids(answer), "the other source has nothing to do"


def test_a_row_that_another_session_locks(world: _LinkedWorld) -> None:
    source_id, server = world.sources[0]
    with closing(world.target.connect()) as holder, holder.cursor() as cursor:
        number = _number_of(holder)
        cursor.execute("START TRANSACTION")
        cursor.execute("UPDATE why.orders SET amount = amount + 1")
        try:
            server.execute(f"UPDATE {_ORDERS} SET amount = amount + 1 ORDER BY id LIMIT 1")
            _wait_behind(world, source_id)
            answer = _why(world)
        finally:
            cursor.execute("ROLLBACK")
    first = _first(answer)
    names, figures = cast("dict[str, str]", first["names"]), cast("dict[str, float]", first["figures"])
    assert (first["id"], first["sources"]) == ("row-lock", [source_id])
    assert (names["connection"], names["table"], names["user"]) == (str(number), "`why`.`orders`", "root")
    assert names["lane"] in ("0", "1")
    assert figures["wait_seconds"] >= 1 and figures["holder_seconds"] >= 1
    assert "idle for" in str(first["text"])
    assert any(f"KILL {number}" in str(action) for action in first["actions"])


def test_a_slow_link_to_the_source(world: _LinkedWorld) -> None:
    source_id, server = world.sources[0]
    world.links[server].bytes_per_second = _SLOW_BYTES
    filler = "x" * 100
    with _changes(
        server,
        lambda number: (
            f"INSERT INTO {_ORDERS} (id, customer, amount, state, note, token, created) VALUES "
            + ", ".join(
                f"({2_000_000 + 100 * number + each}, 'one', 1, 'new', '{filler}', '', '2024-01-01')"
                for each in range(100)
            )
        ),
        0.02,
    ):
        # The buffers of the connections take the first changes at once.
        until(lambda: _unfetched(world, source_id) > 2 * _SLOW_BYTES, "the relay lags", 60, every=0.2)
        answer = _why(world)
    first = _first(answer)
    figures = cast("dict[str, float]", first["figures"])
    assert (first["id"], first["sources"]) == ("relay-behind", [source_id])
    assert figures["unfetched_bytes"] > _SLOW_BYTES
    assert 0 < figures["fetched_bytes_per_second"] < 3 * _SLOW_BYTES
    assert figures["waiting_share"] > 0.5
    assert figures["growth_bytes_per_second"] > 0
    assert "its lag grows" in str(first["text"])


def test_one_hot_key(world: _LinkedWorld) -> None:
    source_id, server = world.sources[0]
    [(key,)] = server.query(f"SELECT MIN(id) FROM {_ORDERS}")
    world.links[world.target].delay = _SLOW_ANSWER
    with _changes(server, lambda number: f"UPDATE {_ORDERS} SET amount = {number} WHERE id = {key}"):
        _wait_behind(world, source_id)
        answer = _why(world, "--seconds", "4")
    first = _first(answer)
    names, figures = cast("dict[str, str]", first["names"]), cast("dict[str, float]", first["figures"])
    assert (first["id"], first["sources"]) == ("hot-key", [source_id])
    assert names["table"] == "`why`.`orders`"
    [(merged,)] = world.target.query(f"SELECT MIN(id) FROM why.orders WHERE id & {0xFFFFFFFFFFF} = {key}")
    assert names["key"] == f"(`id` = {merged})", answer
    assert figures["changes_per_row"] >= 4
    assert figures["share_of_changes"] == 1
    assert figures["busy_share"] > 0.8


def test_a_table_that_keeps_to_one_lane(world: _LinkedWorld) -> None:
    source_id, server = world.sources[0]
    world.links[world.target].delay = _SLOW_ANSWER
    with _changes(
        server,
        lambda number: (
            f"INSERT INTO {_CODES} VALUES "
            + ", ".join(f"({10 * number + each}, {10 * number + each})" for each in range(10))
        ),
    ):
        _wait_behind(world, source_id)
        answer = _why(world, "--seconds", "4")
    first = _first(answer)
    names, figures = cast("dict[str, str]", first["names"]), cast("dict[str, float]", first["figures"])
    assert (first["id"], first["sources"]) == ("lane-skew", [source_id])
    assert names["table"] == "`why_01`.`codes`"
    assert figures["share_of_changes"] == 1 and figures["busy_share"] > 0.8
    assert "it has a further unique key" in str(first["text"])


def test_a_held_row(world: _LinkedWorld) -> None:
    source_id, server = world.sources[1]
    world.target.execute("ALTER TABLE why.orders ADD CONSTRAINT small CHECK (amount < 1000000000)")
    table = "why_01.order_02"
    server.execute(f"INSERT INTO {table} {_COLUMNS} VALUES (7000001, 'one', 2000000000, 'new', '', '2024-01-01')")
    until(lambda: _sync(world, source_id)["heldKeys"] == "1", "a key is held")
    answer = _why(world)
    world.target.execute("ALTER TABLE why.orders DROP CONSTRAINT small")
    first = _first(answer)
    assert (first["id"], first["sources"]) == ("quarantine", [source_id])
    assert cast("dict[str, float]", first["figures"]) == {"held_keys": 1}
    shown = str(first["actions"][0]).split("`")[1].removeprefix("dmctl ").split()
    [held] = cast("list[Json]", world.cluster.dmctl(*shown).json["keys"])
    assert held["sourceTable"] == table
    world.cluster.dmctl("quarantine", "retry", _TASK, "-s", source_id)


def test_a_throttled_history(world: _LinkedWorld) -> None:
    family = world.family(_HISTORY)
    family.create(2000)
    limits = "snapshot: {rows-per-second: 300, chunk-rows: 100}\n"
    world.cluster.start_task(Family(_HISTORY, family.sources, world.linked(world.target)).task(extra=limits))

    def is_copied() -> bool:
        found = world.cluster.subtasks(_HISTORY).values()
        return len(found) == 2 and all(
            each.unit == "Load" and int(str(cast("Json", each.raw["load"])["finishedChunks"])) > 3 for each in found
        )

    until(is_copied, "the history is copied")
    answer = _why(world, task=_HISTORY)
    world.cluster.dmctl("stop-task", _HISTORY)
    first = _first(answer)
    names, figures = cast("dict[str, str]", first["names"]), cast("dict[str, float]", first["figures"])
    assert first["id"] == "throttle"
    assert names["limit"] == "snapshot.rows-per-second" and figures["limit"] == 300
    assert figures["throttle_share"] > 0.5
    [copied, *_] = [each for each in cast("list[Json]", answer["findings"]) if each["id"] == "history"]
    assert cast("dict[str, float]", copied["figures"])["eta_seconds"] > 0


def test_pauses(world: _LinkedWorld) -> None:
    (one, _), (two, _) = world.sources
    world.cluster.dmctl("pause-task", _TASK, "-s", one)
    world.cluster.dmctl("pause-relay", "-s", two)
    answer = _why(world)
    found = {str(each["id"]): each for each in cast("list[Json]", answer["findings"])}
    assert (_first(answer)["id"], _first(answer)["sources"]) == ("paused", [one])
    assert _first(answer)["actions"] == [f"`dmctl resume-task {_TASK} -s {one}`"]
    assert found["relay-paused"]["sources"] == [two]
    world.cluster.dmctl("resume-relay", "-s", two)
    world.cluster.dmctl("resume-task", _TASK, "-s", one)
    world.cluster.wait_replicating(_TASK)


def test_a_disabled_source(world: _LinkedWorld) -> None:
    source_id, _ = world.sources[1]
    text = Path(world.cluster.directory / f"{source_id}.yaml").read_text(encoding="utf-8")
    world.cluster.dmctl(
        "operate-source", "update", world.cluster.write(f"{source_id}.off.yaml", text + "enable: false\n")
    )
    answer = _why(world, check=False)
    world.cluster.dmctl("operate-source", "update", world.cluster.write(f"{source_id}.on.yaml", text))
    first = _first(answer)
    assert (first["id"], first["sources"]) == ("source-disabled", [source_id])
    assert answer["result"] is False
    world.cluster.wait_bound([source_id])
    world.cluster.wait_replicating(_TASK)


def _waits_for_ddl(world: _LinkedWorld) -> bool:
    statements = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER TABLE%' AND TIME >= 1"
    return world.target.query(statements) != [(0,)]


def test_a_ddl_that_runs_for_long(world: _LinkedWorld) -> None:
    """Its target table has had no changes, and all of its shard tables are parked: no lane knows it."""
    family = world.family(_LONG, tables=1)
    shards = family.create(100)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(_LONG)
    for (_, server), shard in zip(world.sources, shards, strict=True):
        # For each row the server computes the digest of 15 million characters.
        digest = "digest CHAR(128) AS (SHA2(REPEAT('secret', 2500000), 512)) STORED"
        server.execute(f"ALTER TABLE {shard.name} ADD COLUMN {digest}")

    def statement() -> Json | None:
        answer = world.cluster.dmctl("why", _LONG, "--seconds", "1").json
        found = _first(answer) if answer["findings"] else {}
        return found if found.get("id") == "target-statement" else None

    found = until(statement, "the statement is the first finding", 60)
    names, figures = cast("dict[str, str]", found["names"]), cast("dict[str, float]", found["figures"])
    assert found["sources"] == [] and figures["seconds"] >= 1 and 0 <= figures["progress"] < 1
    assert names["statement"].startswith(f"ALTER TABLE `{_LONG}`.`orders` ADD COLUMN digest")
    assert "secret" not in str(found)
    world.cluster.wait_replicating(_LONG)
    until(lambda: not world.cluster.dmctl("shard-ddl-lock", _LONG).json["locks"], "the lock is gone")
    world.judge(family)
    world.cluster.dmctl("stop-task", _LONG)


def test_a_ddl_on_some_shard_tables(world: _LinkedWorld) -> None:
    """The last one: the other tables have another structure from then on."""
    (one, first_server), (two, _) = world.sources
    first_server.execute(f"ALTER TABLE {_ORDERS} ADD COLUMN added INT NOT NULL DEFAULT 7")

    def is_open() -> Any:
        return world.cluster.dmctl("shard-ddl-lock", _TASK).json["locks"]

    [lock] = until(is_open, "the lock is open")
    answer = _why(world)
    first = _first(answer)
    names, figures = cast("dict[str, str]", first["names"]), cast("dict[str, float]", first["figures"])
    assert (first["id"], names["lock"]) == ("ddl-lock", lock["ID"])
    assert sorted(cast("list[str]", first["sources"])) == [one, two]
    assert names["owner"] == one
    for missing in (f"{one} `why_01`.`order_02`", f"{two} `why_01`.`order_01`", f"{two} `why_01`.`order_02`"):
        assert missing in names["missing"]
    assert (figures["parked_tables"], figures["missing_tables"]) == (1, 3)
    unlock = next(str(action).split("`", 1)[1] for action in first["actions"] if "unlock" in str(action))
    assert unlock.startswith(f"dmctl shard-ddl-lock unlock '{lock['ID']}'")
    with closing(world.target.connect()) as reader, reader.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT COUNT(*) FROM why.orders")
        for number, (_, server) in enumerate(world.sources):
            for table in (("order_02",), ("order_01", "order_02"))[number]:
                server.execute(f"ALTER TABLE why_01.{table} ADD COLUMN added INT NOT NULL DEFAULT 7")
        until(lambda: _waits_for_ddl(world), "the statement waits at the target")
        waits = _first(_why(world))
        cursor.execute("ROLLBACK")
    assert (waits["id"], waits["sources"]) == ("metadata-lock", [])
    names = cast("dict[str, str]", waits["names"])
    assert names["table"] == "`why`.`orders`" and "ADD COLUMN added INT NOT NULL DEFAULT ?" in names["statement"]
    until(lambda: not is_open(), "the lock is gone")
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    assert Family(_TASK, world.sources, world.target).verdict().differences == 0
