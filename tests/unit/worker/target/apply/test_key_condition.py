"""Conditions that find rows by their keys: which rows they mean, and in which form."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import literals_of, split_key
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.apply.key_condition import key_condition, source_key_condition
from tests.support.plans import integer, table_plan, text

_TEXTS = ("'a'", "'b'", "'a,b'", "','", "''")
_INTEGERS = ("1", "2", "-3")


def _plan(kinds: str) -> TablePlan:
    columns = tuple(text(f"c{at}") if kind == "t" else integer(f"c{at}") for at, kind in enumerate(kinds))
    return table_plan(columns, tuple(range(len(columns))))


@given(st.text("ti", min_size=1, max_size=3), st.data())
def test_a_condition_means_exactly_the_rows_of_its_keys(kinds: str, data: st.DataObject) -> None:
    literals = st.tuples(*(st.sampled_from(_TEXTS if kind == "t" else _INTEGERS) for kind in kinds))
    rows = data.draw(st.lists(literals, max_size=20, unique=True))
    keys = data.draw(st.lists(literals, min_size=1, max_size=20, unique=True))
    plan = _plan(kinds)
    values = [tuple(value.encode() for value in key) for key in keys]
    with sqlite3.connect(":memory:") as calculator:
        calculator.execute(f"CREATE TABLE t ({', '.join(f'c{at}' for at in range(len(kinds)))})")
        for row in rows:
            calculator.execute(f"INSERT INTO t VALUES ({', '.join(row)})")
        # SQLite is only a calculator here: AND, OR, IN, = mean the same everywhere.
        for condition in (key_condition(plan, [b",".join(key) for key in values]), source_key_condition(plan, values)):
            conditions = ("1 = 1", condition.decode(), f"NOT {condition.decode()} AND 1 = 0")
            [(every,), (met,), (none,)] = (
                calculator.execute(f"SELECT COUNT(*) FROM t WHERE {each} AND 1 = 1").fetchone() for each in conditions
            )
            assert (every, met, none) == (len(rows), len(set(rows) & set(keys)), 0)


def test_one_key_is_found_without_a_tuple() -> None:
    """MariaDB reads the whole table for a DELETE with one tuple."""
    assert key_condition(_plan("ii"), [b"1,2"]) == b"`c0` = 1 AND `c1` = 2"
    assert key_condition(_plan("it"), [b"1,'a,b'"]) == b"`c0` = 1 AND `c1` = 'a,b'"
    assert key_condition(_plan("i"), [b"1"]) == b"`c0` IN (1)"


def test_texts_are_in_no_tuple() -> None:
    """MariaDB does not convert a text within a tuple to the column's character set."""
    assert key_condition(_plan("ii"), [b"1,2", b"3,4"]) == b"(`c0`,`c1`) IN ((1,2),(3,4))"
    assert key_condition(_plan("it"), [b"1,'a'", b"2,'a'"]) == b"`c1` = 'a' AND `c0` IN (1,2)"
    different = key_condition(_plan("it"), [b"1,'a'", b"2,_latin1 X'E4'", b"3,'a'"])
    assert different == b"((`c1` = 'a' AND `c0` IN (1,3)) OR (`c1` = _latin1 X'E4' AND `c0` = 2))"


def test_the_source_is_asked_for_its_own_columns() -> None:
    plan = _plan("it")
    renamed = tuple(replace(item, target_name=f"new_{item.target_name}") for item in plan.columns)
    made = replace(plan, columns=renamed)
    assert source_key_condition(made, [(b"1", b"'a'")]) == b"`c0` = 1 AND `c1` = 'a'"
    assert key_condition(made, [b"1,'a'"]) == b"`new_c0` = 1 AND `new_c1` = 'a'"


@given(st.lists(st.sampled_from([b"1", b"'it\\'s, \\\\'", b"X'2C'", b"_latin1 X'2C'", b"','", b"-1.5"]), min_size=1))
def test_a_key_is_split_into_its_literals(literals: list[bytes]) -> None:
    assert list(split_key(b",".join(literals), len(literals))) == literals
    assert list(literals_of(b",".join(literals))) == literals
