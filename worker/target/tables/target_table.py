"""Creates the merged table from its shard tables, or checks an existing one against each of them.

One CREATE TABLE IF NOT EXISTS creates it, so two workers (or two tasks) that find the table missing at the same time
get one table, and each then checks it. Only statements that TiDB also has are used.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import (
    Session,
    Side,
    coded_errors,
    connect,
    dialect_of,
    endpoint_of,
    execute,
    quote_name,
    rows,
    text_of,
    to_coded,
)
from shardmerge.worker.core.mysql.create_table import charset_of, fallback_collations, merged_create_table
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_texts, read_shard_statements
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table
from shardmerge.worker.core.table import EXACT_KINDS, Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AutoIncrement, ColumnPlan, TablePlan, TargetTable
from shardmerge.worker.target.tables.column_fit import incompatibility
from shardmerge.worker.target.tables.defer_existing import defer_existing
from shardmerge.worker.target.tables.defer_indexes import defer_indexes
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.target.tables.extracted_keys import with_extracted_columns
from shardmerge.worker.target.tables.partition_clause import clause_of, problem_of

_PERIOD_ENDS = frozenset({ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIMESTAMP})
_OVERLAPS = re.compile(r"^\s*(PRIMARY|UNIQUE) KEY .*` WITHOUT OVERLAPS\)", re.MULTILINE)
_NO_SUCH_SCHEMA = 1049
_TABLE_EXISTS = 1050
_NO_SUCH_TABLE = 1146
NO_SUCH_COLLATION = (1115, 1253, 1273)  # unknown charset, collation of another charset, unknown collation
_MISSING = (_NO_SUCH_SCHEMA, _NO_SUCH_TABLE)
_SHOWN_TABLES = 3
_ANSWER_SECONDS = 300.0


class MergedRows(Protocol):
    """Knows whether rows were merged into a target table. A caller that may create a table decides it by this."""

    def check_missing(self, target: Session, plan: TablePlan) -> None:
        """Raises the coded error because of which the missing target of ``plan`` must not be created, and
        ``pymysql.MySQLError``."""
        ...

    def record_created(self, target: Session, plans: Sequence[TablePlan]) -> None:
        """The target of ``plans``, which are recorded, was just created. Raises ``pymysql.MySQLError``."""
        ...

    def check_existing(self, target: Session, plans: Sequence[TablePlan], place: str) -> None:
        """Raises the coded error because of which the existing target of ``plans``, ``place``, must not be used, and
        ``pymysql.MySQLError``."""
        ...


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What the replicate unit must know of a target table.

    ``key``: the target's columns of the key that identifies a row; () without one. ``further_keys``: its
    other unique keys. ``exact_key``: equal keys have equal bytes; not so for text, where 'a' = 'A' under a
    collation, and for floats, where 0 = -0; nor where rows of different keys exclude each other (WITHOUT OVERLAPS).
    """

    created: bool
    key: tuple[str, ...]
    further_keys: tuple[tuple[str, ...], ...]
    exact_key: bool

    @property
    def unique_keys(self) -> int:
        """How many unique keys the target table has, the identifying one included."""
        return len(self.further_keys) + bool(self.key)

    @property
    def one_lane(self) -> bool:
        """Whether the order of changes to *different* key bytes matters, so that one lane must apply them all."""
        return bool(self.further_keys) or not self.key or not self.exact_key


def ensure_target(
    source: Session,
    target: Session,
    plans: Sequence[TablePlan],
    merged: MergedRows,
    *,
    meta_schema: str,
    defer: Defer = Defer.NEVER,
    after_load: bool = False,
    recorded: CreateStatement | None = None,
) -> TargetFacts:
    """Create the target table of ``plans`` (one or more plans with the same target) unless it exists, and check it.

    ``merged``: refuses to create a table into which rows were merged: it would lack them.
    ``recorded``: the first plan's CREATE TABLE, from which it is created; None: the source's current one. ``defer``:
    which table may get its secondary indexes after its load. ``after_load``: a load follows, so the AUTO_INCREMENT of a
    created table waits for its end if the plans require it; without, it exists from the start. Nothing else of an
    existing table than its secondary indexes is ever altered or dropped.
    Raises what ``merged`` raises, errors.replicate.TARGET_TABLE_DIFFERS with every difference,
    TARGET_NOT_TRANSACTIONAL, TARGET_CREATE_REFUSED, TARGET_IS_META, SOURCE_TABLE_GONE, or what
    :func:`shardmerge.worker.core.mysql.server_errors.to_coded` returns for a server's error. ``target`` must not be
    inside a transaction.
    """
    first = plans[0]
    if first.target_schema.lower() == meta_schema.lower():
        raise errors.replicate.TARGET_IS_META(source=first.source, **names_of(first))
    with coded_errors(_endpoint(target), Side.TARGET, first.source):
        found = find_target(target, first)
        created = found is None
        creation = ""
        if found is None:
            merged.check_missing(target, first)
            creation = _create(target, first, recorded if recorded is not None else read_shard_creation(source, first))
            found = find_target(target, first)
            if creation:
                merged.record_created(target, plans)
        else:
            merged.check_existing(target, plans, TargetTable(found.schema, found.name).quoted)
        if found is None:
            raise _differs(first, ["it cannot be found under this name after its creation"])
        facts = _check(target, plans, found, created)
        # Without one key for all rows, the stream may need another index to find them.
        deferrable = bool(facts.key) and not found.key_hidden and dialect_of(target).defers_indexes
        if creation:
            numbering = (
                after_load
                and first.auto_increment is AutoIncrement.AFTER_MAX
                and dialect_of(target).adds_auto_increment
            )
            indexes = deferrable and defer is not Defer.NEVER
            defer_indexes(target, meta_schema, plans, creation, indexes=indexes, numbering=numbering)
        elif deferrable and after_load and defer is Defer.EMPTY:
            defer_existing(target, meta_schema, plans, found)
        return facts


def ensure_target_from(
    target: Session, plans: Sequence[TablePlan], creation: CreateStatement, merged: MergedRows, *, meta_schema: str
) -> TargetFacts:
    """As :func:`ensure_target`, but a missing table is created from ``creation``, a shard table's CREATE TABLE."""
    first = plans[0]
    if first.target_schema.lower() == meta_schema.lower():
        raise errors.replicate.TARGET_IS_META(source=first.source, **names_of(first))
    found = find_target(target, first)
    created = found is None
    if found is None:
        merged.check_missing(target, first)
        _create(target, first, creation)
        found = find_target(target, first)
    if found is None:
        raise _differs(first, ["it cannot be found under this name after its creation"])
    return _check(target, plans, found, created)


def check_existing_target(target: Session, plans: Sequence[TablePlan]) -> TargetFacts | None:
    """As :func:`ensure_target` for an existing table; None if the table does not exist.

    Raises ``pymysql.MySQLError`` too.
    """
    found = find_target(target, plans[0])
    return None if found is None else _check(target, plans, found, created=False)


def needs_one_lane(target: Session, plans: Sequence[TablePlan]) -> bool:
    """Whether one lane must apply all changes of the target of ``plans``, whose structure may be that before or after a
    statement of the task: without a check of it. Raises ``pymysql.MySQLError``."""
    if any(plan.one_lane for plan in plans):
        return True
    found = find_target(target, plans[0])
    if found is None:
        return False
    names = {column.name.lower() for column in found.columns}
    if any(plan.columns[index].target_name.lower() not in names for plan in plans for index in plan.source_key):
        return True
    return _facts(plans, found, created=False).one_lane or _forbids_overlaps(target, found)


def require_target(target: Session, plans: Sequence[TablePlan], task: str, found: str) -> TargetFacts:
    """As :func:`check_existing_target`; raises MERGED_TABLE_MISSING, which names the last plan, if the table does not
    exist. ``found``: where that is noticed."""
    facts = check_existing_target(target, plans)
    if facts is None:
        raise missing_error(plans[-1], task, found)
    return facts


def missing_error(plan: TablePlan, task: str, found: str, tables: str = "") -> ShardmergeError:
    """MERGED_TABLE_MISSING for the target of ``plan``. ``found``: where that was noticed. ``tables``: whose rows it has
    got; "": those of the plan."""
    tables = tables or plan.table.dotted
    return errors.replicate.MERGED_TABLE_MISSING(
        source=plan.source, task=task, tables=tables, found=found, **names_of(plan)
    )


@contextmanager
def naming_missing(endpoint: Endpoint, plans: Iterable[TablePlan], task: str, found: str) -> Generator[None]:
    """If the block fails because a table does not exist, and the target of one of ``plans`` does not, raise
    MERGED_TABLE_MISSING instead. ``found``: where that is noticed."""
    try:
        yield
    except (ShardmergeError, pymysql.MySQLError) as error:
        if not is_missing(error):
            raise
        with (
            closing(connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
            coded_errors(endpoint, Side.TARGET, "target"),
        ):
            plan = find_missing(session, plans)
        if plan is None:
            raise
        raise missing_error(plan, task, found) from error


def is_missing(error: ShardmergeError | pymysql.MySQLError) -> bool:
    """Whether a server has refused a statement because a table or a schema does not exist."""
    if isinstance(error, pymysql.MySQLError):
        return errno_of(error) in _MISSING
    return error.values.get("errno") in {str(number) for number in _MISSING}


def find_missing(target: Session, plans: Iterable[TablePlan]) -> TablePlan | None:
    """The first of ``plans`` whose target does not exist. Raises ``pymysql.MySQLError``."""
    for plan in {plan.target: plan for plan in plans}.values():
        try:
            rows(target, f"SELECT 1 FROM {plan.target.quoted} LIMIT 0")
        except pymysql.MySQLError as error:
            if not is_missing(error):
                raise
            return plan
    return None


def find_target(target: Session, plan: TablePlan) -> Table | None:
    """The target table; its name may differ in case where the server's names are not case-sensitive."""
    found = read_table(target, plan.target_schema, plan.target_table, source="target")
    if found is not None or text_of(rows(target, "SELECT @@GLOBAL.lower_case_table_names")[0][0]) == "0":
        return found
    names = rows(
        target,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "
        "WHERE LOWER(TABLE_SCHEMA) = %s AND LOWER(TABLE_NAME) = %s",
        (plan.target_schema.lower(), plan.target_table.lower()),
    )
    return read_table(target, text_of(names[0][0]), text_of(names[0][1]), source="target") if names else None


def _endpoint(session: Session) -> Endpoint:
    return Endpoint(text_of(session.host), session.port, text_of(session.user))


def names_of(plan: TablePlan) -> dict[str, str]:
    """The names of a shard table and of its target, for an error."""
    return {
        "schema": plan.table.schema,
        "table": plan.table.name,
        "target_schema": plan.target_schema,
        "target_table": plan.target_table,
    }


def creation_of(target: Session, plan: TablePlan, described: CreateStatement) -> str:
    """The CREATE TABLE of the plan's target from the shard table's own. Raises TARGET_CREATE_REFUSED and
    ``pymysql.MySQLError``."""
    statement, collation = described.text, described.collation
    replaced = created_collations(target, {collation, *plan.table.collations})
    for lacking, found in replaced.items():
        get_logger(source=plan.source, table=plan.target_name).warning(
            "the target lacks a collation; the new table has another", collation=lacking, stand_in=found
        )
    try:
        merged = merged_create_table(
            statement,
            plan.table.columns,
            plan.columns,
            plan.target_name,
            collation,
            replaced,
            transformed=plan.transform is not None,
            keep_auto_increment=plan.auto_increment is not AutoIncrement.NONE,
            partitions=_kept_partitions(plan, statement) if plan.keep_partitions else "",
            keep_invisible=dialect_of(target).has_invisible_columns,
        )
        return with_extracted_columns(merged, plan)
    except UnreadableCreateTable as error:
        raise _refused(plan, str(error), 0, statement) from error


def _kept_partitions(plan: TablePlan, statement: str) -> str:
    """Raises UnreadableCreateTable, also if the target cannot have the partitions."""
    clause = clause_of(statement, [column.name for column in plan.table.columns])
    if clause is None:
        return ""
    problem = problem_of(clause, plan)
    if problem:
        raise UnreadableCreateTable(f"`partitions: keep` is not possible: {problem}")
    return clause.text


def _create(target: Session, plan: TablePlan, described: CreateStatement) -> str:
    """The statement that created the table, "" when another session created it first."""
    creation = creation_of(target, plan, described)
    numbered = read_create_table(creation).numbered
    lost = next((column for column in plan.table.columns if column.auto_increment), None)
    if plan.auto_increment is not AutoIncrement.NONE and lost is not None and not numbered:
        get_logger(source=plan.source, table=plan.target_name).warning(
            "the new table has no AUTO_INCREMENT: the column is no integer, or no index of the table begins with it",
            column=lost.name,
        )
    ensure_schema(target, plan.target_schema)
    try:
        execute(target, creation)
        existed = any(int(code) == _TABLE_EXISTS for _, code, _ in rows(target, "SHOW WARNINGS"))
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) not in (ErrorKind.STATEMENT, ErrorKind.SESSION):
            raise
        raise _refused(plan, reason_of(error), errno_of(error), creation) from error
    return "" if existed else creation


def ensure_schema(target: Session, schema: str) -> None:
    """Raises ``pymysql.MySQLError``."""
    if not rows(target, "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (schema,)):
        # Checked first: IF NOT EXISTS needs the global CREATE privilege even if the schema exists.
        execute(target, f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")


def created_collations(target: Session, collations: Iterable[str]) -> dict[str, str]:
    """Those of a shard table's collations that the target lacks, each with the one that a table gets which is created
    like it. Without those that have none: the target's error for the whole statement is the best message. Raises
    ``pymysql.MySQLError``."""
    found = find_fallback_collations(target, collations)
    return {collation: other for collation, other in found.items() if other is not None}


def find_fallback_collations(target: Session, collations: Iterable[str]) -> dict[str, str | None]:
    """Those of ``collations`` that the target lacks, each with its fallback in a new table; None: there is none,
    because the target lacks the character set, or the task permits no other collation. Raises ``pymysql.MySQLError``.
    """
    found = known_fallbacks(target, collations)
    return dict.fromkeys(found) if endpoint_of(target).strict_collations else found


def known_fallbacks(target: Session, collations: Iterable[str]) -> dict[str, str | None]:
    """As :func:`find_fallback_collations`, also if the task does not permit the fallbacks."""
    lacking = (collation for collation in sorted(collations) if not _has_collation(target, collation))
    as_utf8 = not dialect_of(target).has_charsets
    return {
        collation: next(
            (each for each in fallback_collations(collation, as_utf8=as_utf8) if _has_collation(target, each)), None
        )
        for collation in lacking
    }


def _has_collation(target: Session, collation: str) -> bool:
    # Tested by using it: lists of collations have different columns (and names) on every server.
    charset = charset_of(collation)
    if charset == "binary":
        return True  # every server has it, and a keyword is no collation in an expression
    try:
        rows(target, f"SELECT CONVERT('' USING {charset}) COLLATE {collation}")
    except pymysql.MySQLError as error:
        if errno_of(error) not in NO_SUCH_COLLATION:
            raise
        return False
    return True


def _refused(plan: TablePlan, reason: str, errno: int, statement: str) -> ShardmergeError:
    return errors.replicate.TARGET_CREATE_REFUSED(
        source=plan.source, reason=reason, errno=errno, statement=statement, **names_of(plan)
    )


def read_shard_creation(source: Session, plan: TablePlan) -> CreateStatement:
    """The shard table's CREATE TABLE. Raises SOURCE_TABLE_GONE and coded errors."""
    table = plan.table
    try:
        [found] = read_shard_statements(source, [(table.schema, table.name)])
    except pymysql.MySQLError as error:
        if errno_of(error) not in (_NO_SUCH_SCHEMA, _NO_SUCH_TABLE):
            raise to_coded(error, _endpoint(source), Side.SOURCE, plan.source) from error
        raise errors.replicate.SOURCE_TABLE_GONE(source=plan.source, **names_of(plan)) from error
    return found


def _differs(plan: TablePlan, differences: Iterable[str]) -> ShardmergeError:
    return errors.replicate.TARGET_TABLE_DIFFERS(
        source=plan.source, differences="; ".join(differences), **names_of(plan)
    )


def _check(target: Session, plans: Sequence[TablePlan], found: Table, created: bool) -> TargetFacts:
    first = plans[0]
    _check_engine(target, first, found.engine)
    # Many shard tables usually differ in the same way: each difference is reported once, with its tables.
    tables_of: dict[str, list[str]] = {}
    required = required_columns(target, found)
    for plan in plans:
        for difference in _differences(plan, found, required):
            tables_of.setdefault(difference, []).append(plan.table.dotted)
    if tables_of:
        raise _differs(first, (f"{what} ({listed(tables, _SHOWN_TABLES)})" for what, tables in tables_of.items()))
    facts = _facts(plans, found, created)
    if not facts.one_lane and _forbids_overlaps(target, found):
        return replace(facts, exact_key=False)
    return facts


def _forbids_overlaps(target: Session, found: Table) -> bool:
    """Whether rows of different keys exclude each other, because their periods overlap: MariaDB's WITHOUT OVERLAPS
    ("Application-Time Periods"). Only SHOW CREATE TABLE of all its versions prints that."""
    ends = sum(column.kind in _PERIOD_ENDS for column in found.key_columns)
    if ends < 2 or not dialect_of(target).is_mariadb:
        return False
    return _OVERLAPS.search(read_create_texts(target, [(found.schema, found.name)])[0]) is not None


def _check_engine(target: Session, plan: TablePlan, engine: str) -> None:
    answer = rows(target, "SELECT TRANSACTIONS FROM information_schema.ENGINES WHERE ENGINE = %s", (engine,))
    if not answer or text_of(answer[0][0]).upper() != "YES":
        raise errors.replicate.TARGET_NOT_TRANSACTIONAL(engine=engine or "?", **names_of(plan))


def required_columns(session: Session, table: Table) -> frozenset[str]:
    """Lower-case names of the table's columns without NULL and without a default. Raises ``pymysql.MySQLError``."""
    answer = rows(
        session,
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
        "AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND EXTRA NOT LIKE '%%auto_increment%%'",
        (table.schema, table.name),
    )
    generated = {column.name.lower() for column in table.columns if column.generated}
    return frozenset(text_of(name).lower() for (name,) in answer) - generated


def _differences(plan: TablePlan, found: Table, required: frozenset[str]) -> list[str]:
    names = {written.target_name.lower() for written in plan.columns}
    return [*column_problems(plan.columns, found), *unwritten_problems(required - names), *key_problems(plan, found)]


def column_problems(columns: Iterable[ColumnPlan], found: Table) -> list[str]:
    """Why the target ``found`` cannot hold these columns."""
    by_name = {column.name.lower(): column for column in found.columns}
    problems: list[str] = []
    for written in columns:
        column = by_name.get(written.target_name.lower())
        if column is None:
            problems.append(f"column {written.target_name} is missing at the target")
            continue
        reason = incompatibility(written, column)
        if reason is not None:
            problems.append(f"column {written.target_name}: {reason}")
    return problems


def unwritten_problems(names: Iterable[str]) -> list[str]:
    """``names``: of the target's columns that an INSERT must name and does not."""
    return [f"target column {name} has no default and is not written" for name in sorted(names)]


def key_problems(plan: TablePlan, found: Table) -> list[str]:
    """Whether the target ``found`` lacks the key of the plan's rows."""
    if not plan.key or _has_key(plan, found):
        return []
    columns = ", ".join(plan.columns[index].target_name for index in plan.source_key)
    return [f"the target has no unique key over exactly ({columns})"]


def _key_names(plan: TablePlan) -> frozenset[str]:
    return frozenset(plan.columns[index].target_name.lower() for index in plan.key)


def _has_key(plan: TablePlan, found: Table) -> bool:
    """Whether a unique key identifies the plan's rows: without the constant columns, or with some of them."""
    own = frozenset(plan.columns[index].target_name.lower() for index in plan.source_key)
    return any(own <= frozenset(name.lower() for name in unique) <= _key_names(plan) for unique in found.unique_keys)


def _facts(plans: Sequence[TablePlan], found: Table, created: bool) -> TargetFacts:
    by_name: dict[str, Column] = {column.name.lower(): column for column in found.columns}
    keyed = [plan for plan in plans if plan.key]
    keys = {_key_names(plan) for plan in keyed}
    if len(keyed) < len(plans) or len(keys) > 1:
        # The shard tables identify their rows differently: no single key identifies rows of the target table.
        return TargetFacts(created, (), found.unique_keys, False)
    [wanted] = keys
    own = frozenset(plans[0].columns[index].target_name.lower() for index in plans[0].source_key)
    # A constant column has the same value in all rows of a shard table, so it identifies none of them.
    further = tuple(
        unique for unique in found.unique_keys if not own <= frozenset(name.lower() for name in unique) <= wanted
    )
    key = tuple(plans[0].columns[index].target_name for index in plans[0].key)
    exact = all(
        by_name[name].kind in EXACT_KINDS
        and all(plan.columns[index].column.kind in EXACT_KINDS for plan in plans for index in plan.source_key)
        for name in own
    )
    return TargetFacts(created, key, further, exact)
