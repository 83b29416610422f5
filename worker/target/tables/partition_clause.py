"""Reads PARTITION BY from SHOW CREATE TABLE, and decides whether a merged table can have it. Pure.

Servers print it after the table's options, MySQL within version comments. Storage options of partitions are left out:
they were chosen for one shard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Kind, Token, tokens
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table
from shardmerge.worker.core.sql.token_reader import TokenReader, keywords
from shardmerge.worker.core.table_plan import TablePlan

_STORAGE = keywords("ENGINE DIRECTORY TABLESPACE NODEGROUP MAX_ROWS MIN_ROWS")
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
        return "".join(each.text if each.kind is Kind.STRING else each.text.lower() for each in tokens(self.text))


def clause_of(statement: str, columns: Collection[str]) -> PartitionClause | None:
    """The partitions of a table with these columns, from its CREATE TABLE; None: it has none. Raises
    :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    table = read_create_table(statement)
    if not table.partitions:
        return None
    kept = list(_without_storage(table.partitions))
    found = [token for _, token in kept]
    options = statement[table.end :]
    text = "".join(" " * is_apart + options[token.start : token.end] for is_apart, token in kept)
    known = {column.lower() for column in columns}
    by: dict[str, set[str]] = {}
    for at in range(len(found)):
        words = TokenReader(found[at:], "")
        if not (words.take("PARTITION", "SUBPARTITION") and words.take("BY")):
            continue
        words.take("LINEAR")
        names = by.setdefault(words.word(), set())
        words.advance()
        if words.take("ALGORITHM"):
            words.advance()
            words.advance()
        words.take("COLUMNS")
        first = words.at
        if words.group():
            names |= known & {token.text.lower() for token in found[at + first : at + words.at] if token.is_name}
    if "" in by:
        raise UnreadableCreateTable(f"partitions that cannot be read: {text}")
    by_value = frozenset[str]().union(*(names for method, names in by.items() if method in _BY_VALUE))
    other = next((method for method in by if method not in _METHODS), "")
    return PartitionClause(text, frozenset[str]().union(*by.values()), by_value, other)


def _without_storage(found: Sequence[Token]) -> Iterator[tuple[bool, Token]]:
    """The tokens without options such as STORAGE ENGINE = x; whether each is apart from the one
    before."""
    at = 0
    while at < len(found):
        words = TokenReader(found[at : at + 3], "")
        words.take("STORAGE", "DATA", "INDEX")
        if words.take(*_STORAGE) and words.take_symbol("="):
            at += words.at + 1
        else:
            yield at > 0 and found[at].start > found[at - 1].end, found[at]
            at += 1


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
