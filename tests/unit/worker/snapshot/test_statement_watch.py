"""Tests which statement ends the copy of a table, and which chunks may be committed (I4)."""

from __future__ import annotations

import random

from shardmerge.worker.core.position import Located, RelayOffset
from tests.unit.worker.snapshot.statements import Statements, place_of, statement_at, watch_of

TABLES = {"a": 0, "b": 1}


def _at(byte: int, relay_id: str = "relay-1") -> Located:
    return Located(relay_id, RelayOffset(1, byte))


def test_a_chunk_is_admitted_up_to_the_first_statement_on_its_table() -> None:
    log = Statements([statement_at(100, "alter a"), statement_at(200, "alter a"), statement_at(300, "alter b")], 400)
    watch = watch_of(log, {0: 10, 1: 10}, TABLES)
    assert [watch.admits(0, _at(byte)) for byte in (50, 100, 101, 150, 250)] == [True, True, False, False, False]
    assert [watch.admits(1, _at(byte)) for byte in (250, 300, 310)] == [True, True, False]
    assert {number: statement.offset.byte for number, statement in watch.search().items()} == {0: 100, 1: 300}


def test_statements_before_a_table_has_its_structure_do_not_matter() -> None:
    log = Statements([statement_at(100, "alter a b"), statement_at(200, "alter a b")], 400)
    watch = watch_of(log, {0: 50, 1: 150}, TABLES)
    assert {number: statement.offset.byte for number, statement in watch.search().items()} == {0: 100, 1: 200}


def test_each_part_of_the_log_is_searched_once() -> None:
    log = Statements([statement_at(100, "alter a")], 50)
    watch = watch_of(log, {0: 10}, TABLES)
    assert watch.search() == {}
    log.end = 300
    assert list(watch.search()) == [0]
    assert list(watch.known()) == [0]
    log.end = 500
    watch.search()
    assert [offset.byte for offset in log.searched_from] == [10, 50, 300]


def test_another_relay_log_is_searched_from_the_beginning() -> None:
    log = Statements([statement_at(100, "alter a")], 300)
    watch = watch_of(log, {0: 10}, TABLES)
    watch.search()
    log.relay_id, log.found, log.end = "relay-2", [statement_at(120, "alter a")], 130
    assert watch.known() == {}, "it does not wait for the new relay log"
    assert not watch.admits(0, _at(110)), "an offset of the old relay log"
    assert watch.admits(0, _at(110, "relay-2"))
    assert not watch.admits(0, _at(121, "relay-2"))
    assert watch.locate(place_of(7)) == _at(7, "relay-2")


def test_random_searches_find_what_one_search_finds() -> None:
    rng = random.Random(5)
    for _ in range(200):
        places = sorted(rng.sample(range(1, 60), rng.randrange(8)))
        found = [statement_at(10 * place, f"alter {rng.choice(['a', 'b', 'a b', 'c'])}") for place in places]
        valid_from = {0: 10 * rng.randrange(30), 1: 10 * rng.randrange(30)}
        log = Statements(found, 0)
        watch = watch_of(log, valid_from, TABLES)
        for end in sorted(rng.choices(range(0, 601, 10), k=5)):
            log.end = end
            watch.search()
        log.end = 600
        whole = watch_of(Statements(found, 600), valid_from, TABLES).search()
        assert watch.search() == whole
