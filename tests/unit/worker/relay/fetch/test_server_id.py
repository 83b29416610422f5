"""Which server id is chosen, given those that others hold."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.mysql.connection import ServerInfo
from shardmerge.worker.core.mysql.target_dialect import parse_dialect
from shardmerge.worker.relay.fetch.server_id import (
    ServerIdHolder,
    Taken,
    candidates,
    choose,
    derived,
    patience_seconds,
    server_of,
)

OTHER = ServerIdHolder("worker-2", "mysql-02", 10)
FIRST = 2**31
LAST = 2**32 - 1
INFO = ServerInfo(
    "mariadb",
    (10, 11, 6),
    "10.11.6-MariaDB",
    1,
    "",
    True,
    "db-1",
    3306,
    parse_dialect("10.11.6-MariaDB", ""),
)

ids = st.integers(FIRST, LAST)
own_ids = st.integers(1, LAST)


def test_a_derived_id_is_of_the_directory(tmp_path: Path) -> None:
    one = derived(tmp_path / "one")
    assert derived(tmp_path / "two" / ".." / "one") == one
    assert derived(tmp_path / "two") != one
    assert FIRST <= one <= LAST


def test_after_the_last_candidate_comes_the_lowest() -> None:
    assert list(islice(candidates(LAST - 1, 1), 4)) == [LAST - 1, LAST, FIRST, FIRST + 1]
    assert list(islice(candidates(LAST - 1, LAST), 3)) == [LAST - 1, FIRST, FIRST + 1]


@given(ids, own_ids)
def test_candidates_are_in_range_and_distinct_and_never_the_sources_own(first: int, own: int) -> None:
    found = list(islice(candidates(first, own), 200))
    assert found == list(islice(candidates(first, own), 200)), "the same each time"
    assert len(set(found)) == 200
    assert all(FIRST <= one <= LAST for one in found)
    assert own not in found
    assert found[0] == first or first == own


@given(ids, own_ids, st.sets(st.integers(0, 40)))
def test_the_first_free_id_is_chosen(first: int, own: int, held: set[int]) -> None:
    order = list(islice(candidates(first, own), 60))
    taken = {order[place]: OTHER for place in held}
    chosen = choose(candidates(first, own), taken)
    assert isinstance(chosen, int)
    assert chosen not in taken
    assert all(one in taken for one in order[: order.index(chosen)]), "and it does not change while those are held"


@given(st.lists(ids, min_size=1, max_size=20), own_ids)
def test_relays_that_see_each_other_choose_different_ids(firsts: list[int], own: int) -> None:
    taken: dict[int, ServerIdHolder] = {}
    for number, first in enumerate(firsts):
        chosen = choose(candidates(first, own), taken)
        assert isinstance(chosen, int)
        assert chosen not in taken
        taken[chosen] = ServerIdHolder(f"worker-{number}", "s", 10)


def test_a_configured_id_is_used_or_none() -> None:
    assert choose((7,), {8: OTHER}) == 7
    assert choose((7,), {7: OTHER, 8: OTHER}) == Taken(7, OTHER)
    assert choose((7, 9), {7: OTHER, 9: replace(OTHER, worker="w")}) == Taken(7, OTHER)
    with pytest.raises(ValueError, match="requested"):
        choose((), {})


def test_patience_outlasts_a_dead_holder_and_has_no_end_for_the_same_source() -> None:
    assert 2 * OTHER.lease_seconds < patience_seconds(OTHER, "mysql-01") < 3 * OTHER.lease_seconds
    assert patience_seconds(OTHER, "mysql-02") == math.inf


def test_servers_are_distinguished() -> None:
    others = (replace(INFO, server_id=2), replace(INFO, host="db-2"), replace(INFO, port=3307))
    assert len({server_of(info) for info in (INFO, *others)}) == 4
    mysql = replace(INFO, flavor="mysql", server_uuid="8a94f357-aab4-11df-86ab-c80aa9429562")
    assert server_of(mysql) == server_of(replace(mysql, server_id=2, host="renamed", port=1)) == mysql.server_uuid
