"""Makes the merged table's CREATE TABLE from that of a shard table. Pure, on text.

The input is what SHOW CREATE TABLE prints under an empty sql_mode: every identifier in backticks, strings in
single quotes, items separated by commas at the first level of parentheses, then the table's options (MySQL
8.4 Reference Manual, "SHOW CREATE TABLE Statement"; store_create_info() in sql/sql_show.cc of both servers).
What is not named below stays as the server printed it.

* Foreign keys are removed: the target holds other tables, and rows arrive in another order than at the source.
* Names of CHECK constraints are removed: on MySQL they are unique per schema, and a target schema has many tables.
* Texts that routes extract from names become columns of their own.
* AUTO_INCREMENT is removed, or kept for an integer column with which an index begins (:func:`numbered_column`). A
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

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, ColumnPlan, ComputedValue, Constant, PartitionId

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
_IDENTIFIER = re.compile(r"`((?:[^`]|``)*)`")
_FOREIGN_KEY = re.compile(r"\s*(CONSTRAINT\s+\S+\s+)?FOREIGN\s+KEY\b", re.IGNORECASE)
_CHECK = re.compile(r"\s*CONSTRAINT\s+\S+\s+(?=CHECK\b)", re.IGNORECASE)
_INDEX = re.compile(r"(?:[A-Z]+\s+)?KEY\s+`", re.IGNORECASE)
_LEADING = re.compile(r"(?:PRIMARY\s+KEY|(?:UNIQUE\s+)?KEY\s+`[^`]*`)[^(]*\(`", re.IGNORECASE)
_INDEXED = re.compile(r"(?:PRIMARY\s+KEY|(?:UNIQUE\s+)?KEY\s+`[^`]*`)[^(]*\(", re.IGNORECASE)
_PARTITIONS = re.compile(r"\bPARTITION\s+BY\b", re.IGNORECASE)
_NOT_NULL = re.compile(r"\bNOT\s+NULL\b", re.IGNORECASE)
_PREFIX_LENGTH = re.compile(r"\(\d+\)")
_AUTO_INCREMENT = re.compile(r"\s+AUTO_INCREMENT\b", re.IGNORECASE)
_DEFAULT = re.compile(r"\s+DEFAULT\s+(?:\w+\s*)?(?=\()", re.IGNORECASE)
_OF_SEQUENCE = re.compile(r"\b(?:nextval|lastval|setval)\s*\(", re.IGNORECASE)
_INVISIBLE = re.compile(r"\s+(?:/\*!80023\s+INVISIBLE\s*\*/|INVISIBLE\b)", re.IGNORECASE)
_CHARSET = re.compile(r"\bCHARACTER\s+SET\s+\w+(?!\s+COLLATE|\w)", re.IGNORECASE)
_CHARSET_NAME = re.compile(r"\bCHARACTER\s+SET\s+(\w+)", re.IGNORECASE)
_COLLATE = re.compile(r"\bCOLLATE\s+(\w+)", re.IGNORECASE)
_OWN_COLLATION = re.compile(r"\A(\s+CHARACTER SET \w+)?(\s+COLLATE \w+)?", re.IGNORECASE)
_DEFAULT_COLLATION = re.compile(r"\bCOLLATE=(\w+)", re.IGNORECASE)
_COMMENT = re.compile(r"\bCOMMENT='", re.IGNORECASE)
_MYSQL_COLLECTION, _COLLECTION = " geomcollection", " geometrycollection"
"""MySQL 8 and newer print the short name, which MariaDB does not know; all servers accept the long one."""
_SIZED_TEXT = re.compile(r"((?:var)?char)\((\d+)\)")


CONSTANT_TYPE = "varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""Type of a column that holds the text that a route extracts from a name."""


class UnreadableCreateTable(ValueError):
    """The text is not what SHOW CREATE TABLE prints."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A CREATE TABLE cut into its items (columns, keys, checks) and its table comment ("" or a literal)."""

    items: tuple[str, ...]
    comment: str


def parse_create_table(statement: str) -> CreateTable:
    """Cut the server's text. Raises :class:`UnreadableCreateTable`."""
    masked = masked_quotes(statement)
    start = masked.find("(")
    if start < 0 or not masked[:start].lstrip().upper().startswith("CREATE TABLE"):
        raise UnreadableCreateTable("no CREATE TABLE with a list of columns")
    depth = 0
    cuts = [start]
    for at in range(start, len(masked)):
        match masked[at]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case "," if depth == 1:
                cuts.append(at)
            case _:
                continue
        if depth == 0:
            cuts.append(at)
            break
    else:
        raise UnreadableCreateTable("parentheses do not match")
    items = tuple(statement[a + 1 : b].strip() for a, b in itertools.pairwise(cuts))
    found = _COMMENT.search(masked, cuts[-1])
    comment = ""
    if found is not None:
        literal = _QUOTED.match(statement, found.end() - 1)
        comment = literal.group() if literal else ""
    return CreateTable(items, comment)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One index of a CREATE TABLE; ``text``: its whole definition. ``columns``: its columns, in order."""

    name: str
    text: str
    columns: tuple[str, ...]
    has_expressions: bool


def index_parts(statement: str) -> tuple[IndexPart, ...]:
    """The named indexes of a CREATE TABLE; the primary key has no name. Raises :class:`UnreadableCreateTable`."""
    found: list[IndexPart] = []
    for item in parse_create_table(statement).items:
        masked = masked_quotes(item)
        head = _INDEX.match(masked)
        name = None if head is None else _IDENTIFIER.match(item, head.end() - 1)
        if name is None:
            continue
        start = masked.find("(", name.end())
        end = closing_parenthesis(masked, start)
        listed = _PREFIX_LENGTH.sub("", masked[start + 1 : end])
        columns = tuple(_unquoted(match) for match in _IDENTIFIER.finditer(item, start, end))
        found.append(IndexPart(_unquoted(name), item, columns, "(" in listed))
    return tuple(found)


def has_index_on(statement: str, columns: Collection[str]) -> bool:
    """Whether an index of a CREATE TABLE begins with these columns, in any order: their values are found without a
    scan of the table. Raises :class:`UnreadableCreateTable`."""
    wanted = {column.lower() for column in columns}
    for item in parse_create_table(statement).items:
        head = _INDEXED.match(masked_quotes(item))
        if head is None:
            continue
        listed = _IDENTIFIER.finditer(item, head.end(), closing_parenthesis(masked_quotes(item), head.end() - 1))
        first = [_unquoted(match).lower() for match in itertools.islice(listed, len(wanted))]
        if wanted == set(first):
            return True
    return False


def closing_parenthesis(masked: str, start: int) -> int:
    """The index of the parenthesis that closes the one at ``start``."""
    depth = 0
    for at in range(max(start, 0), len(masked)):
        depth += (masked[at] == "(") - (masked[at] == ")")
        if depth == 0:
            return at
    raise UnreadableCreateTable("parentheses do not match")


def _unquoted(name: re.Match[str]) -> str:
    return name.group(1).replace("``", "`")


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
    parsed = parse_create_table(statement)
    by_name = {column.name: column for column in columns}
    plans = {column.column.name: column for column in written if not column.is_computed}
    renamed = {plan.column.name: plan.target_name for plan in plans.values() if plan.target_name != plan.column.name}
    gone = {name for name, column in by_name.items() if transformed and name not in plans and not column.generated}
    items: list[str] = []
    for item in parsed.items:
        if _FOREIGN_KEY.match(masked_quotes(item)) or (gone and _names_any(item, gone)):
            continue
        own = _IDENTIFIER.match(item)
        check = _CHECK.match(masked_quotes(item))
        text = item[check.end() :] if check is not None else item
        if own is not None:
            name = own.group(1).replace("``", "`")
            if name not in by_name:
                raise UnreadableCreateTable(f"column {name} is not among the table's columns")
            text = _column_item(item, own.end(), by_name[name], plans.get(name), replaced)
            text = text if keep_invisible else _without(_INVISIBLE, text)
        items.append(_rename(text, renamed) if renamed else text)
    items += (_computed_item(plan) for plan in written if plan.is_computed)
    items += (f"{quote_name(plan.target_name)} {CONSTANT_TYPE} NOT NULL" for plan in written if plan.is_constant)
    numbered = next((each for each in columns if each.auto_increment and each.kind is ValueKind.INTEGER), None)
    if keep_auto_increment and numbered is not None:
        name = renamed.get(numbered.name, numbered.name)
        items = [_numbered(item, name) for item in items] if _leads_an_index(items, name) else items
    default = replaced.get(collation, collation)
    options = f"ENGINE=InnoDB DEFAULT CHARSET={charset_of(default)} COLLATE={default}"
    if parsed.comment:
        options += f" COMMENT={parsed.comment}"
    if partitions:
        options += f"\n{partitions}"
    body = ",\n  ".join(items)
    return f"CREATE TABLE IF NOT EXISTS {target} (\n  {body}\n) {options}"


def without_sequence_defaults(statement: str) -> str:
    """The text of SHOW CREATE TABLE without defaults that are numbers of a sequence (MariaDB, "Sequence Functions"),
    which is at the source only. Each row has the column's value, so a merged table needs no default. Raises
    :class:`UnreadableCreateTable`."""
    if _OF_SEQUENCE.search(statement) is None:
        return statement
    masked = masked_quotes(statement)
    kept, begin = "", 0
    for found in _DEFAULT.finditer(masked):
        end = closing_parenthesis(masked, found.end()) + 1
        if found.start() >= begin and _OF_SEQUENCE.search(masked, found.start(), end):
            kept += statement[begin : found.start()]
            begin = end
    return kept + statement[begin:]


def numbered_column(statement: str) -> str:
    """The name of the column with AUTO_INCREMENT, "" for none. Raises :class:`UnreadableCreateTable`."""
    for item in parse_create_table(statement).items:
        own = _IDENTIFIER.match(item)
        if own is not None and _AUTO_INCREMENT.search(masked_quotes(item)):
            return _unquoted(own)
    return ""


def partition_clause(statement: str) -> str:
    """PARTITION BY … of a table, on one line; "" for none."""
    start = partitions_start(statement)
    return "" if start is None else " ".join(statement[start:].removesuffix("*/").split())


def partitions_start(statement: str) -> int | None:
    """The index of PARTITION BY in a CREATE TABLE; None: the table has no partitions."""
    masked = masked_quotes(statement)
    found = _PARTITIONS.search(masked, masked.rfind("\n)"))
    return None if found is None else found.start()


def printed_collation(statement: str) -> str:
    """The default collation in the table's options, "" where none is printed."""
    masked = masked_quotes(statement)
    found = _DEFAULT_COLLATION.search(masked, masked.rfind("\n)"))
    return "" if found is None else found.group(1)


def column_item(statement: str, name: str, *, numbered: bool) -> str:
    """The definition of a column, with its name: with AUTO_INCREMENT if ``numbered``, else without; "" if there is no
    such column. Raises :class:`UnreadableCreateTable`."""
    for item in parse_create_table(statement).items:
        own = _IDENTIFIER.match(item)
        if own is not None and _unquoted(own).lower() == name.lower():
            return _numbered(item, _unquoted(own)) if numbered else _not_numbered(item)
    return ""


def retyped_item(statement: str, name: str, type_text: str, other: str) -> str:
    """The definition of a column, with its name and the type ``other`` instead of ``type_text``, its character set and
    its collation; "" when it has another type. Raises :class:`UnreadableCreateTable`."""
    item = column_item(statement, name, numbered=False)
    own = _IDENTIFIER.match(item)
    if own is None or not item.startswith(f" {type_text}", own.end()):
        return ""
    rest = _OWN_COLLATION.sub("", item[own.end() + 1 + len(type_text) :], count=1)
    return f"{own.group()} {other}{rest}"


def _numbered(item: str, name: str) -> str:
    """A column's item with AUTO_INCREMENT if it is of the column ``name``; such a column is always NOT NULL."""
    own = _IDENTIFIER.match(item)
    if own is None or _unquoted(own) != name or _AUTO_INCREMENT.search(masked_quotes(item)):
        return item
    found = _NOT_NULL.search(masked_quotes(item), own.end())
    if found is None:
        raise UnreadableCreateTable(f"column {name} with AUTO_INCREMENT is not NOT NULL")
    return f"{item[: found.end()]} AUTO_INCREMENT{item[found.end() :]}"


def _not_numbered(item: str) -> str:
    return _without(_AUTO_INCREMENT, item)


def _without(attribute: re.Pattern[str], item: str) -> str:
    """A column's item without an attribute."""
    found = attribute.search(masked_quotes(item))
    return item if found is None else item[: found.start()] + item[found.end() :]


def _leads_an_index(items: Collection[str], name: str) -> bool:
    """Whether an index begins with the whole column: InnoDB requires it of a column with AUTO_INCREMENT."""
    for item in items:
        found = _LEADING.match(masked_quotes(item))
        first = None if found is None else _IDENTIFIER.match(item, found.end() - 1)
        if first is not None and _unquoted(first) == name:
            return True
    return False


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


def _column_item(item: str, at: int, column: Column, plan: ColumnPlan | None, replaced: Mapping[str, str]) -> str:
    """One column's definition; ``at``: index of the end of its name."""
    if plan is not None and plan.mapping is not None:
        old = " " + column.type_text
        if not item.startswith(old, at):
            raise UnreadableCreateTable(f"the type of column {column.name} is not {column.type_text}")
        item = item[:at] + " " + widened_type(plan) + item[at + len(old) :]
    if item.startswith(_MYSQL_COLLECTION, at):
        item = item[:at] + _COLLECTION + item[at + len(_MYSQL_COLLECTION) :]
    item = _not_numbered(item)
    found = _CHARSET.search(masked_quotes(item))
    if found is not None and column.collation:
        item = f"{item[: found.end()]} COLLATE {column.collation}{item[found.end() :]}"
    found = _COLLATE.search(masked_quotes(item))
    if found is not None and found.group(1) in replaced:
        other = replaced[found.group(1)]
        item = item[: found.start(1)] + other + item[found.end(1) :]
        charset = _CHARSET_NAME.search(masked_quotes(item))
        if charset is not None and charset.group(1) != charset_of(other):
            item = item[: charset.start(1)] + charset_of(other) + item[charset.end(1) :]
    return item


def charset_of(collation: str) -> str:
    """The character set of a collation: its name begins with it."""
    return collation.split("_", 1)[0]


def _names_any(item: str, names: Collection[str]) -> bool:
    """Whether an item defines one of the columns, or refers to it."""
    found = (match.group() for match in _QUOTED.finditer(item))
    return any(text.startswith("`") and text[1:-1].replace("``", "`") in names for text in found)


def _computed_item(plan: ColumnPlan) -> str:
    column = plan.column
    charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.collation else ""
    return f"{quote_name(plan.target_name)} {column.type_text}{charset}{'' if column.nullable else ' NOT NULL'}"


def _rename(item: str, renamed: dict[str, str]) -> str:
    """Replace the columns' names everywhere; an index of the same name may change with them."""

    def replace(match: re.Match[str]) -> str:
        text = match.group()
        if not text.startswith("`"):
            return text
        name = text[1:-1].replace("``", "`")
        return quote_name(renamed[name]) if name in renamed else text

    return _QUOTED.sub(replace, item)


def masked_quotes(text: str) -> str:
    """The text with the inside of every quoted part blanked: same length, safe to search."""
    return _QUOTED.sub(lambda match: match.group()[0] + "x" * (len(match.group()) - 2) + match.group()[-1], text)
