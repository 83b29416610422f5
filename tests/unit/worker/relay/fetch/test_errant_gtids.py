"""Transactions that a new server wrote itself before some that were read from the server before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.relay.fetch.errant_gtids import Errant, KnownMariadb, KnownMysql, errant, gtid_of, list_of

A, B, C = (f"{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")


def test_mysql() -> None:
    known = KnownMysql(f"{A}:1-10,{B}:1-3", A)
    order = [*(f"{A}:{number}" for number in range(8, 11)), f"{B}:3"]
    assert errant(order, known) is None
    assert errant([*order, f"{B}:4", f"{B}:5"], known) is None, "what it has written since its promotion"
    assert errant([f"{B}:4", *order], known) == Errant(f"{B}:4", f"{A}:8")
    assert errant([order[0], f"{C}:1", f"{B}:4", *order[1:]], known) == Errant(f"{C}:1", f"{A}:9")
    assert errant([f"{B}:tag:1", *order], known) == Errant(f"{B}:tag:1", f"{A}:8")
    assert errant([f"{A}:11", *order], known) is None, "appliers of a replica may commit in another order"
    assert known.has_all("") and known.has_all(f"{A}:1-10") and not known.has_all(f"{A}:1-10,{B}:1-4")


def test_mariadb() -> None:
    known = KnownMariadb("0-1-100,7-1-5", ("0-1-90", "0-2-40"), 2)
    order = ["0-1-99", "0-1-100"]
    assert errant(order, known) is None
    assert errant([*order, "0-2-101"], known) is None
    assert errant(["0-2-99", *order], known) == Errant("0-2-99", "0-1-99")
    assert errant(["0-2-40", *order], known) is None, "it wrote that when it was the source itself"
    assert errant(["0-1-101", *order], known) is None, "only the old server wrote that"
    assert errant(["0-2-99", "7-1-5"], known) is None, "another domain has an order of its own"
    assert errant(["7-2-6", *order, "7-1-5"], known) == Errant("7-2-6", "7-1-5")
    assert known.has_all("0-1-100,0-2-40") and not known.has_all("0-1-100,0-2-41")
    assert known.has_all("0-3-50"), "a third server's came to both"
    unknown = KnownMariadb("0-1-100", ("", ""), 2)
    assert not unknown.has_all("0-2-40"), "when it wrote that is unknown"


@given(st.permutations(range(8)), st.integers(0, 8))
def test_found_is_what_lies_before_something_read(order: list[int], first_own: int) -> None:
    """Numbers below ``first_own`` are the read ones."""
    known = KnownMysql(f"{A}:1-{first_own}" if first_own else "", A)
    texts = [f"{A}:{number + 1}" if number < first_own else f"{B}:{number}" for number in order]
    own = [place for place, number in enumerate(order) if number >= first_own]
    read = [place for place, number in enumerate(order) if number < first_own]
    wanted = bool(own and read and min(own) < max(read))
    assert (errant(texts, known) is not None) == wanted


def test_lines_of_show_binlog_events() -> None:
    assert gtid_of("Gtid", f"SET @@SESSION.GTID_NEXT= '{A}:7'") == f"{A}:7"
    assert gtid_of("Gtid_tagged", f"SET @@SESSION.GTID_NEXT= '{A}:tag:7'") == f"{A}:tag:7"
    assert gtid_of("Gtid", "BEGIN GTID 0-1-5 cid=31") == "0-1-5"
    assert gtid_of("Gtid", "GTID 12-34-56") == "12-34-56"
    assert gtid_of("Anonymous_Gtid", "SET @@SESSION.GTID_NEXT= 'ANONYMOUS'") is None
    assert gtid_of("Query", f"SET @@SESSION.GTID_NEXT= '{A}:7'") is None
    assert list_of([("Format_desc", "x"), ("Previous_gtids", f"{A}:1-5,\n{B}:1")]) == f"{A}:1-5,{B}:1"
    assert list_of([("Format_desc", "x"), ("Gtid_list", "[0-1-5,1-2-3]")]) == "0-1-5,1-2-3"
    assert list_of([("Format_desc", "x"), ("Gtid_list", "[]")]) == ""
    assert list_of([("Format_desc", "x"), ("Query", "y")]) is None
