"""Reads PARTITION BY from SHOW CREATE TABLE, and decides whether a merged table can have it. Pure.

Servers print it after the table's options, MySQL within version comments. Storage options of partitions are left out:
they were chosen for one shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shardmerge.worker.core.mysql.create_table import (
    UnreadableCreateTable,
    closing_parenthesis,
    masked_quotes,
    partitions_start,
)
from shardmerge.worker.core.table_plan import TablePlan

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`", re.DOTALL)
_WORD = re.compile(r"`((?:[^`]|``)*)`|(\w+)")
_COMMENT_MARKS = re.compile(r"/\*!\d*|\*/")
_STORAGE = re.compile(
    r"\s*(?:\bSTORAGE\s+)?\bENGINE\s*=\s*\w+|\s*\b(?:DATA|INDEX)\s+DIRECTORY\s*=\s*'[^']*'"
    r"|\s*\bTABLESPACE\s*=?\s*(?:`[^`]*`|\w+)|\s*\b(?:NODEGROUP|MAX_ROWS|MIN_ROWS)\s*=\s*\d+",
    re.IGNORECASE,
)
_METHOD = re.compile(
    r"\b(?:SUB)?PARTITION\s+BY\s+(?:LINEAR\s+)?(?P<method>\w+)(?:\s+ALGORITHM\s*=\s*\d+)?(?:\s+COLUMNS)?\s*(?P<list>\(?)",
    re.IGNORECASE,
)
_BY_VALUE = frozenset({"RANGE", "LIST"})
_METHODS = frozenset({*_BY_VALUE, "HASH", "KEY"})


@dataclass(frozen=True, slots=True)
class PartitionClause:
    """``text``: for a CREATE TABLE. ``columns``: by which rows are placed, in lower case; ``by_value``: those of them
    whose values the definitions of partitions contain (RANGE, LIST). ``other``: a method that is not known here, "" for
    none."""

    text: str
    columns: frozenset[str]
    by_value: frozenset[str]
    other: str = ""

    @property
    def comparable(self) -> str:
        """Equal for clauses that differ only in how servers write them."""
        return _outside(self.text, lambda part: "".join(part.split()).lower(), lambda name: name[1:-1].lower())


def clause_of(statement: str, columns: Collection[str]) -> PartitionClause | None:
    """The partitions of a table with these columns, from its CREATE TABLE; None: it has none. Raises
    :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`."""
    start = partitions_start(statement)
    if start is None:
        return None
    text = _outside(statement[start:], lambda part: _COMMENT_MARKS.sub(" ", part), lambda name: name)
    for storage in reversed(list(_STORAGE.finditer(masked_quotes(text)))):
        text = text[: storage.start()] + text[storage.end() :]
    text = _outside(text, lambda part: re.sub(r"\s+", " ", part), lambda name: name).strip()
    masked = masked_quotes(text)
    known = {column.lower() for column in columns}
    by: dict[str, set[str]] = {}
    for head in _METHOD.finditer(masked):
        names = by.setdefault(head["method"].upper(), set())
        if head["list"]:
            listed = text[head.end() : closing_parenthesis(masked, head.end() - 1)]
            names |= known & {(quoted or word).replace("``", "`").lower() for quoted, word in _WORD.findall(listed)}
    if not by:
        raise UnreadableCreateTable(f"partitions that cannot be read: {text}")
    by_value = frozenset[str]().union(*(names for method, names in by.items() if method in _BY_VALUE))
    other = next((method for method in by if method not in _METHODS), "")
    return PartitionClause(text, frozenset[str]().union(*by.values()), by_value, other)


def problem_of(clause: PartitionClause, plan: TablePlan) -> str:
    """Why the target of a shard table cannot have its partitions, for people; "" if it can."""
    if clause.other:
        return f"PARTITION BY {clause.other} is not supported for target tables"
    if plan.transform is not None:
        return f"transform {plan.transform.rule} changes the columns"
    mapped = [
        column.column.name
        for column in plan.columns
        if column.mapping is not None and column.column.name.lower() in clause.by_value
    ]
    if mapped:
        return (
            f"the values of {', '.join(mapped)} are mapped, so rows are outside of the values by which RANGE and LIST "
            "place them"
        )
    for key in plan.table.unique_keys:
        lacking = clause.columns - {name.lower() for name in key}
        if lacking:
            return f"the unique key ({', '.join(key)}) lacks the column {', '.join(sorted(lacking))} of the partitions"
    return ""


def differing_clauses(clauses: Mapping[str, PartitionClause | None]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Groups of shard tables with equal partitions: the clause ("" for none) and the tables; the largest first, () if
    all are equal."""
    groups: dict[str, list[str]] = {}
    for table, clause in clauses.items():
        groups.setdefault("" if clause is None else clause.comparable, []).append(table)
    if len(groups) < 2:
        return ()
    texts = {"" if each is None else each.comparable: "" if each is None else each.text for each in clauses.values()}
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return tuple((texts[form], tuple(tables)) for form, tables in ordered)


def _outside(text: str, plain: Callable[[str], str], name: Callable[[str], str]) -> str:
    """``text`` with its parts outside of quotes, and its quoted names, replaced; literals stay as they are."""
    made: list[str] = []
    end = 0
    for quoted in _QUOTED.finditer(text):
        made.append(plain(text[end : quoted.start()]))
        made.append(name(quoted.group()) if quoted.group().startswith("`") else quoted.group())
        end = quoted.end()
    return "".join((*made, plain(text[end:])))
