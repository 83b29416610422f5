"""Tests that the statements for one ALTER TABLE have its result, on a model of a table, and that TiDB combines them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.mysql.target_dialect import ServerKind, TargetDialect
from shardmerge.worker.ddl.split.pieces import divided, statements_at

_TIDB = TargetDialect(ServerKind.TIDB, (8, 4, 0))


def _parts(clauses: str, sql_mode: int = 0) -> list[str]:
    """The clauses of each statement, with T for the temporary name."""
    found = divided(f"ALTER TABLE `d`.`t` {clauses}", sql_mode)
    assert all(text.startswith("ALTER TABLE `d`.`t` ") for text in found)
    return [re.sub(r"_shardmerge_[0-9a-f]{24}", "T", text.removeprefix("ALTER TABLE `d`.`t` ")) for text in found]


@pytest.mark.parametrize(
    ("clauses", "parts"),
    [
        ("ADD c INT, ADD INDEX (c)", ["ADD c INT", "ADD INDEX (c)"]),
        ("ADD (c INT, KEY k (c), d INT)", ["ADD COLUMN c INT, ADD COLUMN d INT", "ADD KEY k (c)"]),
        ("DROP INDEX k, ADD INDEX k (b)", ["DROP INDEX k", "ADD INDEX k (b)"]),
        ("ADD INDEX K (b), DROP KEY `k`", ["DROP KEY `k`", "ADD INDEX K (b)"]),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", ["DROP PRIMARY KEY", "ADD PRIMARY KEY (a)"]),
        (
            "CHANGE a b INT, CHANGE b a TEXT",
            ["RENAME COLUMN `a` TO `T`", "CHANGE b a TEXT", "CHANGE COLUMN `T` `b` INT"],
        ),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO c", ["RENAME COLUMN b TO c", "RENAME COLUMN a TO b"]),
        (
            "RENAME INDEX k TO j, RENAME INDEX j TO k",
            ["RENAME INDEX `k` TO `T`", "RENAME INDEX j TO k", "RENAME INDEX `T` TO `j`"],
        ),
        ("ADD x INT AFTER a, ADD y INT AFTER x", ["ADD x INT AFTER a", "ADD y INT AFTER x"]),
        ("MODIFY a BIGINT, ADD UNIQUE u (a)", ["MODIFY a BIGINT", "ADD UNIQUE u (a)"]),
        ("ADD x INT UNIQUE COMMENT 'UNIQUE, KEY'", ["ADD x INT COMMENT 'UNIQUE, KEY'", "ADD UNIQUE KEY (`x`)"]),
        ("ADD x INT, ADD y INT AS (x + 1)", ["ADD x INT", "ADD y INT AS (x + 1)"]),
        ("ADD x TEXT, CHARSET utf8mb4", ["CHARSET utf8mb4", "ADD x TEXT"]),
        ("DROP INDEX k, MODIFY a TEXT", ["DROP INDEX k", "MODIFY a TEXT"]),
        ("DROP COLUMN a, DROP INDEX k", ["DROP INDEX k", "DROP COLUMN a"]),
        ("ADD INDEX (a), ADD INDEX (a)", ["ADD INDEX (a)", "ADD INDEX (a)"]),
        ("ADD INDEX k (b), DROP COLUMN a", ["DROP COLUMN a", "ADD INDEX k (b)"]),
        ("ADD CHECK (a > 0), ADD x INT", ["ADD x INT", "ADD CHECK (a > 0)"]),
        (
            "CHANGE a b INT FIRST, CHANGE b a INT AFTER b",
            [
                "RENAME COLUMN `a` TO `T`",
                "RENAME COLUMN `b` TO `a`",
                "RENAME COLUMN `T` TO `b`",
                "MODIFY COLUMN `b` INT FIRST, MODIFY COLUMN `a` INT AFTER `b`",
            ],
        ),
    ],
)
def test_parts(clauses: str, parts: list[str]) -> None:
    assert _parts(clauses) == parts


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD c INT",
        "ADD c INT, ADD d INT AFTER a, DROP COLUMN b, COMMENT 'x'",
        "ADD c INT, ADD INDEX k (a), MODIFY b TEXT",
        "DROP INDEX k, ADD INDEX j (a), ADD x INT",
        "MODIFY a INT FIRST, MODIFY b INT FIRST",
        "CHARSET utf8mb4, ADD x INT",
        # Their single actions could have another result.
        "DROP COLUMN a, ADD a INT",  # its indexes stay
        "CHANGE a z INT FIRST, ADD a INT FIRST",  # the indexes of a are those of the new one
        "ADD x INT, MODIFY x BIGINT",
        "DROP COLUMN c, RENAME COLUMN a TO b, ADD COLUMN IF NOT EXISTS c INT",
        "ALTER INDEX k INVISIBLE, DROP INDEX k",
        "ADD PARTITION (PARTITION p VALUES LESS THAN (9))",
        "ADD c INT, ADD INDEX (c), ALGORITHM = INPLACE",
        "ADD c INT, ADD INDEX ((c + 1))",
    ],
)
def test_one_statement(clauses: str) -> None:
    assert _parts(clauses) == [clauses]


def test_quotes_of_the_sql_mode_are_read() -> None:
    assert _parts('ADD "c" INT, ADD INDEX ("c")', 1 << 2) == ['ADD "c" INT', 'ADD INDEX ("c")']


@pytest.mark.parametrize("kind", [ServerKind.MARIADB, ServerKind.MYSQL])
def test_other_targets_run_the_whole(kind: ServerKind) -> None:
    text = "ALTER TABLE t ADD c INT, ADD INDEX (c)"
    assert statements_at(TargetDialect(kind, (8, 0, 0)), text, 0) == (text,)
    assert len(statements_at(_TIDB, text, 0)) == 2


# --- a model of a table


@dataclass(frozen=True, slots=True)
class _Column:
    """``was``: the column of the table before all statements whose values it has, "" for none."""

    name: str
    type: str
    was: str = ""


@dataclass(frozen=True, slots=True)
class _Table:
    columns: tuple[_Column, ...]
    indexes: tuple[tuple[str, tuple[str, ...]], ...]
    """Names, and columns by their names, sorted by name."""

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.columns]


class _RefusedError(Exception):
    """The model's server refuses the statement."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """``verb``: add, drop, change, index, unindex or reindex. ``after``: None for no place, "" for FIRST."""

    verb: str
    old: str = ""
    new: str = ""
    type: str = ""
    after: str | None = None

    @property
    def sql(self) -> str:
        place = "" if self.after is None else f" AFTER {self.after}" if self.after else " FIRST"
        match self.verb:
            case "add":
                return f"ADD {self.new} {self.type}{place}"
            case "drop":
                return f"DROP COLUMN {self.old}"
            case "change" if self.type:
                return f"CHANGE {self.old} {self.new} {self.type}{place}"
            case "change":
                return f"RENAME COLUMN {self.old} TO {self.new}"
            case "index":
                return f"ADD INDEX {self.new} ({self.type})"
            case "unindex":
                return f"DROP INDEX {self.old}"
            case _:
                return f"RENAME INDEX {self.old} TO {self.new}"


_PLACE = r"(?P<place> FIRST| AFTER `?\w+`?)?"
_READ = (
    ("add", re.compile(r"ADD (?P<new>\w+) (?P<type>\w+)" + _PLACE)),
    ("drop", re.compile(r"DROP COLUMN (?P<old>\w+)")),
    ("change", re.compile(r"CHANGE (?:COLUMN )?`?(?P<old>\w+)`? `?(?P<new>\w+)`? (?P<type>\w+)" + _PLACE)),
    ("change", re.compile(r"MODIFY COLUMN `(?P<old>\w+)` (?P<type>\w+)" + _PLACE)),
    ("change", re.compile(r"RENAME COLUMN `?(?P<old>\w+)`? TO `?(?P<new>\w+)`?")),
    ("index", re.compile(r"ADD INDEX (?P<new>\w+) \((?P<type>\w+)\)")),
    ("unindex", re.compile(r"DROP INDEX (?P<old>\w+)")),
    ("reindex", re.compile(r"RENAME INDEX `?(?P<old>\w+)`? TO `?(?P<new>\w+)`?")),
)  # fmt: skip


def _read(text: str) -> list[_Clause]:
    """The clauses of a statement that :func:`divided` has written."""
    found: list[_Clause] = []
    for part in text.removeprefix("ALTER TABLE t ").split(", "):
        for verb, pattern in _READ:
            if match := pattern.fullmatch(part):
                given = match.groupdict("")
                place = given.get("place", "")
                after = None if not place else place.removeprefix(" AFTER ").strip("`") if "AFTER" in place else ""
                old, new = given.get("old", ""), given.get("new", "")
                found.append(_Clause(verb, old, new or (old if verb == "change" else ""), given.get("type", ""), after))
                break
        else:
            raise AssertionError(f"unknown clause: {part}")
    return found


def _alter(table: _Table, clauses: list[_Clause]) -> _Table:
    """The table after one ALTER TABLE, as MySQL and MariaDB run it (MySQL sql/sql_table.cc, mysql_prepare_alter_table).
    Raises :class:`_RefusedError`."""
    changed = {one.old: one for one in clauses if one.verb == "change"}
    dropped = {one.old for one in clauses if one.verb == "drop"}
    olds = [one.old for one in clauses if one.verb in ("change", "drop")]
    if len(set(olds)) < len(olds) or not set(olds) <= set(table.names):
        raise _RefusedError
    columns: list[_Column] = []
    named: dict[str, str] = {}
    for each in table.columns:
        if each.name in dropped:
            continue
        one = changed.get(each.name)
        after = each if one is None else _changed(each, one)
        named[each.name] = after.name
        if one is None or one.after is None:
            columns.append(after)
    for one in clauses:
        if one.verb == "add":
            _place(columns, _Column(one.new, one.type), one.after)
        elif one.verb == "change" and one.after is not None:
            [before] = [each for each in table.columns if each.name == one.old]
            _place(columns, _changed(before, one), one.after)
    names = [each.name for each in columns]
    if len(set(names)) < len(names) or not names:
        raise _RefusedError
    indexes = dict(table.indexes)
    gone = [one.old for one in clauses if one.verb in ("unindex", "reindex")]
    if len(set(gone)) < len(gone) or not set(gone) <= indexes.keys():
        raise _RefusedError
    listed = [(name, parts) for name, parts in indexes.items() if name not in gone]
    listed += [(one.new, indexes[one.old]) for one in clauses if one.verb == "reindex"]
    listed = [(name, tuple(named[part] for part in parts if part in named)) for name, parts in listed]
    listed = [(name, parts) for name, parts in listed if parts]
    listed += [(one.new, (one.type,)) for one in clauses if one.verb == "index"]
    if len({name for name, _ in listed}) < len(listed) or any(set(parts) - set(names) for _, parts in listed):
        raise _RefusedError
    return _Table(tuple(columns), tuple(sorted(listed)))


def _changed(column: _Column, one: _Clause) -> _Column:
    return replace(column, name=one.new, type=one.type or column.type)


def _place(columns: list[_Column], column: _Column, after: str | None) -> None:
    if after is None:
        columns.append(column)
    elif not after:
        columns.insert(0, column)
    else:
        at = [each.name for each in columns]
        if after not in at:
            raise _RefusedError
        columns.insert(at.index(after) + 1, column)


def _combines(table: _Table, clauses: list[_Clause]) -> bool:
    """Whether TiDB runs these as one ALTER TABLE: each fits the table before it, and no two touch one name."""
    columns = [name for one in clauses for name in _columns_of(one)]
    indexes = [name for one in clauses if one.verb.endswith("index") for name in {one.old, one.new} - {""}]
    if len(set(columns)) < len(columns) or len(set(indexes)) < len(indexes):
        return False
    for one in clauses:
        if one.verb == "index" and one.type in columns:
            return False
        if one.after and one.after in [
            name for other in clauses if other.old != other.new for name in _columns_of(other)
        ]:
            return False
        try:
            _alter(table, [one])
        except _RefusedError:
            return False
    return True


def _columns_of(one: _Clause) -> set[str]:
    return set() if one.verb.endswith("index") else {one.old, one.new} - {""}


_NAMES = st.sampled_from("abcdxy")
_KEYS = st.sampled_from("jkl")
_TYPES = st.sampled_from(["INT", "TEXT"])
_PLACES = st.one_of(st.none(), st.just(""), _NAMES)
_CLAUSES = st.one_of(
    st.builds(_Clause, st.just("add"), st.just(""), _NAMES, _TYPES, _PLACES),
    st.builds(_Clause, st.just("drop"), _NAMES),
    st.builds(_Clause, st.just("change"), _NAMES, _NAMES, _TYPES, _PLACES),
    st.builds(_Clause, st.just("change"), _NAMES, _NAMES),
    st.builds(_Clause, st.just("index"), st.just(""), _KEYS, _NAMES),
    st.builds(_Clause, st.just("unindex"), _KEYS),
    st.builds(_Clause, st.just("reindex"), _KEYS, _KEYS),
)
_BEFORE = _Table(
    tuple(_Column(name, "INT", name) for name in "abcd"),
    (("j", ("a",)), ("k", ("b", "a"))),
)


def _is_valid(clauses: list[_Clause]) -> bool:
    # Whether an index is left that is to be renamed depends on the table; TiDB refuses such parts before they run.
    if {"drop", "reindex"} <= {one.verb for one in clauses}:
        return False
    try:
        _alter(_BEFORE, clauses)
    except _RefusedError:
        return False
    return True


def _valid(clauses: list[_Clause]) -> list[_Clause]:
    """``clauses``, if a server accepts them; otherwise without those that it refuses after the earlier ones."""
    if _is_valid(clauses):
        return clauses
    kept: list[_Clause] = []
    for one in clauses:
        if _is_valid([*kept, one]):
            kept.append(one)
    return kept


@given(st.lists(_CLAUSES, min_size=1, max_size=5).map(_valid).filter(bool))
def test_the_parts_have_the_result_of_the_whole(clauses: list[_Clause]) -> None:
    goal = _alter(_BEFORE, clauses)
    texts = divided("ALTER TABLE t " + ", ".join(one.sql for one in clauses), 0)
    now, states = _BEFORE, [_BEFORE]
    for text in texts:
        part = _read(text)
        assert len(texts) == 1 or _combines(now, part), (texts, text)
        now = _alter(now, part)
        states.append(now)
    assert now == goal, texts
    # As few as this order allows: no two neighbours are one.
    assert not any(_combines(at, [*_read(one), *_read(other)]) and not _frees(_read(one), _read(other))
                   for at, (one, other) in zip(states, pairwise(texts), strict=False)), texts  # fmt: skip


def _frees(first: list[_Clause], second: list[_Clause]) -> bool:
    """Whether the first part removes an index that may have a column of the second one, or may remove one of its name
    with a column."""
    verbs, following = {one.verb for one in first}, {one.verb for one in second}
    return ("unindex" in verbs and not following.isdisjoint(("drop", "change"))) or (
        "drop" in verbs and "index" in following
    )
