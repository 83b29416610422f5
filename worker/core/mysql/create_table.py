"""Makes the merged table's CREATE TABLE from that of a shard table. Pure, on tokens.

The input is what SHOW CREATE TABLE prints (worker/core/sql/table_text.py). What is not named below stays as the server
printed it.

* Foreign keys are removed: the target holds other tables, and rows arrive in another order than at the source.
* Names of CHECK constraints are removed: on MySQL they are unique per schema, and a target schema has many tables.
* Texts that routes extract from names become columns of their own.
* AUTO_INCREMENT is removed, or kept for an integer column with which an index begins (:func:`_leads_an_index`). A
  `partition id` column becomes BIGINT; a CHAR or VARCHAR column with a prefix or suffix becomes longer by it.
* For a table with a transform only the columns that the transform keeps remain: keys, checks and generated columns
  that name another column are removed. Computed columns come last.
* Collations are written out: a charset's default collation differs between servers and versions. A collation that the
  target lacks is replaced (:func:`fallback_collations`).
* Storage options are removed: they were chosen for one shard. So are partitions, unless the caller has a clause that
  the merged table can have (worker/target/tables/partition_clause.py). The engine is InnoDB, because the target
  must be transactional. Create the target table by hand to choose otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

from shardmerge.proto.sql_lexer import Kind, edited, quote_name
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import TableItem, TableText, UnreadableCreateTable, read_create_table
from shardmerge.worker.core.sql.token_reader import find_words
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, ColumnPlan, ComputedValue, Constant, PartitionId

_OWN_COLLATION = re.compile(r"\A(\s+CHARACTER SET \w+)?(\s+COLLATE \w+)?", re.IGNORECASE)
_OPENED, _CLOSED = re.compile(r"\s*/\*M?!\d*\s*\Z"), re.compile(r"\s*\*/")
_SIZED_TEXT = re.compile(r"((?:var)?char)\((\d+)\)")

_Edits = Iterator[tuple[int, int, str]]

CONSTANT_TYPE = "varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""Type of a column that holds the text that a route extracts from a name."""


def merged_create_table(
    statement: str,
    columns: tuple[Column, ...],
    written: tuple[ColumnPlan, ...],
    target: str,
    collation: str,
    replaced: Mapping[str, str] = MappingProxyType({}),
    *,
    transformed: bool = False,
    keep_auto_increment: bool = False,
    partitions: str = "",
    keep_invisible: bool = True,
) -> str:
    """The statement that makes the target table unless it exists.

    ``columns``: of the shard table; ``written``: its plan's; ``target``: quoted name; ``collation``: the shard
    table's default; ``replaced``: collations that the target lacks, each with its replacement; ``transformed``: a
    transform may drop columns of the shard table. ``keep_auto_increment``: where the target can have it.
    ``partitions``: PARTITION BY …, "" for none. ``keep_invisible``: the target has invisible columns; otherwise they
    become visible.

    Raises :class:`UnreadableCreateTable`.
    """
    parsed = read_create_table(statement)
    by_name = {column.name: column for column in columns}
    plans = {column.column.name: column for column in written if not column.is_computed}
    renamed = {plan.column.name: plan.target_name for plan in plans.values() if plan.target_name != plan.column.name}
    gone = {name for name, column in by_name.items() if transformed and name not in plans and not column.generated}
    kept = tuple(
        item
        for item in parsed.items
        if item.kind is not ClauseKind.ADD_FOREIGN_KEY
        and not (gone and any(token.kind is Kind.NAME and token.text in gone for token in item.tokens))
    )
    numbered = next((each.name for each in columns if each.auto_increment and each.kind is ValueKind.INTEGER), "")
    if not keep_auto_increment or not _leads_an_index(replace(parsed, items=kept), numbered):
        numbered = ""
    items: list[str] = []
    for item in kept:
        edits = [*_renames(item, renamed)]
        if item.kind is ClauseKind.ADD_COLUMN:
            if item.name not in by_name:
                raise UnreadableCreateTable(f"column {item.name} is not among the table's columns")
            edits += _column_edits(item, by_name[item.name], plans.get(item.name), replaced)
            edits += _numbering(item, numbered=item.name == numbered)
            edits += () if keep_invisible else _removal(item, "INVISIBLE")
        elif item.kind is ClauseKind.ADD_CHECK:
            edits.append((0, len(item.text) - len(item.unnamed), ""))
        items.append(edited(item.text, edits))
    items += (_computed_item(plan) for plan in written if plan.is_computed)
    items += (f"{quote_name(plan.target_name)} {CONSTANT_TYPE} NOT NULL" for plan in written if plan.is_constant)
    default = replaced.get(collation, collation)
    options = f"ENGINE=InnoDB DEFAULT CHARSET={charset_of(default)} COLLATE={default}"
    if parsed.comment:
        options += f" COMMENT={parsed.comment}"
    if partitions:
        options += f"\n{partitions}"
    body = ",\n  ".join(items)
    return f"CREATE TABLE IF NOT EXISTS {target} (\n  {body}\n) {options}"


def column_item(statement: str, name: str, *, numbered: bool) -> str:
    """The definition of a column, with its name: with AUTO_INCREMENT if ``numbered``, else without; "" if there is no
    such column. Raises :class:`UnreadableCreateTable`."""
    item = read_create_table(statement).column(name)
    return "" if item is None else edited(item.text, _numbering(item, numbered=numbered))


def retyped_item(statement: str, name: str, type_text: str, other: str) -> str:
    """The definition of a column, with its name and the type ``other`` instead of ``type_text``, its character set and
    its collation; "" when it has another type. Raises :class:`UnreadableCreateTable`."""
    item = read_create_table(statement).column(name)
    if item is None:
        return ""
    text, named = edited(item.text, _numbering(item, numbered=False)), len(item.text) - len(item.declared)
    if not text.startswith(f" {type_text}", named):
        return ""
    return f"{text[:named]} {other}{_OWN_COLLATION.sub('', text[named + 1 + len(type_text) :], count=1)}"


def _numbering(item: TableItem, *, numbered: bool) -> _Edits:
    """Adds or removes AUTO_INCREMENT; a column with it is always NOT NULL."""
    if not numbered:
        yield from _removal(item, "AUTO_INCREMENT")
    elif not item.place("AUTO_INCREMENT"):
        found = item.place("NOT", "NULL")
        if found is None:
            raise UnreadableCreateTable(f"column {item.name} with AUTO_INCREMENT is not NOT NULL")
        yield found[1], found[1], " AUTO_INCREMENT"


def _removal(item: TableItem, word: str) -> _Edits:
    """Removes an attribute of a column, with a version comment of its own."""
    found = item.place(word)
    if found is None:
        return
    opened, closed = _OPENED.search(item.text, 0, found[0]), _CLOSED.match(item.text, found[1])
    if opened and closed:
        yield opened.start(), closed.end(), ""
    else:
        yield len(item.text[: found[0]].rstrip()), found[1], ""


def _leads_an_index(parsed: TableText, name: str) -> bool:
    """Whether an index begins with the column: InnoDB requires it of a column with AUTO_INCREMENT."""
    return any(index.names[:1] == (name,) for index in parsed.indexes if index.word in ("PRIMARY", "UNIQUE", "KEY"))


def widened_type(plan: ColumnPlan) -> str:
    """The target's COLUMN_TYPE that holds every mapped value of the column."""
    column = plan.column
    match plan.mapping:
        case None | Constant() | ComputedValue():
            return column.type_text
        case PartitionId():
            return "bigint unsigned" if column.unsigned else "bigint"
        case AddPrefix(text) | AddSuffix(text):
            sized = _SIZED_TEXT.fullmatch(column.type_text)
            if sized is None:
                return column.type_text
            return f"{sized.group(1)}({int(sized.group(2)) + len(text)})"


def fallback_collations(collation: str, *, as_utf8: bool = False) -> tuple[str, ...]:
    """Collations that may replace one that the target lacks, best first, all of the same charset; with ``as_utf8`` also
    of utf8mb4, which has every character.

    Each distinguishes all texts that the source distinguishes, so that no two rows of the source become one: MySQL's
    0900 collations do not ignore trailing spaces, which MariaDB calls nopad. The last one is the charset's binary
    collation, which never takes two letters for equal (but may ignore trailing spaces).
    """
    charset, _, rest = collation.partition("_")
    found: list[str] = []
    if charset in ("utf8", "utf8mb3"):  # the same charset under its old and new name
        found.append(f"{'utf8mb3' if charset == 'utf8' else 'utf8'}_{rest}")
    if rest.startswith("0900_"):
        found.append(f"{charset}_uca1400_nopad_{rest.removeprefix('0900_')}")
    if rest.startswith("uca1400_"):
        found.append(f"{charset}_0900_{rest.removeprefix('uca1400_').removeprefix('nopad_')}")
    if "0900_" in rest or "nopad_" in rest:
        found += [f"{charset}_nopad_bin", f"{charset}_0900_bin"]
    found.append(f"{charset}_bin")
    if as_utf8:
        # TiDB has utf8mb4_0900_bin, for which trailing spaces count (its manual, "Character Set and Collation").
        found += ["utf8mb4_0900_bin"] if "0900_" in rest or "nopad_" in rest else []
        found.append("utf8mb4_bin")
    return tuple(each for each in found if each != collation)


def _column_edits(item: TableItem, column: Column, plan: ColumnPlan | None, replaced: Mapping[str, str]) -> _Edits:
    """Edits of a column's type and collations."""
    found = item.tokens
    if plan is not None and plan.mapping is not None:
        begin = found[1].start
        end = begin + len(column.type_text)
        if item.text[begin:end] != column.type_text:
            raise UnreadableCreateTable(f"the type of column {column.name} is not {column.type_text}")
        yield begin, end, widened_type(plan)
    elif found[1].is_word("GEOMCOLLECTION"):
        # MySQL 8 and newer print the short name, which MariaDB does not know; all servers accept the long one.
        yield found[1].start, found[1].end, "geometrycollection"
    for token, name in pairwise(found):
        if token.is_word("COLLATE") and name.text in replaced:
            yield name.start, name.end, replaced[name.text]
    charset, collate = find_words(found, "CHARACTER", "SET"), find_words(found, "COLLATE")
    if charset is not None:
        own = column.collation if collate is None else found[collate + 1].text
        name = found[charset + 2]
        if own in replaced:
            yield name.start, name.end, charset_of(replaced[own])
        if collate is None and own:
            yield name.end, name.end, f" COLLATE {replaced.get(own, own)}"


def charset_of(collation: str) -> str:
    """The character set of a collation: its name begins with it."""
    return collation.split("_", 1)[0]


def _computed_item(plan: ColumnPlan) -> str:
    column = plan.column
    charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.collation else ""
    return f"{quote_name(plan.target_name)} {column.type_text}{charset}{'' if column.nullable else ' NOT NULL'}"


def _renames(item: TableItem, renamed: Mapping[str, str]) -> _Edits:
    """The columns' new names everywhere; an index of the same name may change with them."""
    for token in item.tokens if renamed else ():
        if token.kind is Kind.NAME and token.text in renamed:
            yield token.start, token.end, quote_name(renamed[token.text])
