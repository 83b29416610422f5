"""Checks what source and target interpret differently: collations of keys, sql_mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.target.tables.target_table import created_collations, find_target
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, passed, variable, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource

_MEANINGS = frozenset(
    {
        "ANSI_QUOTES",
        "EMPTY_STRING_IS_NULL",
        "HIGH_NOT_PRECEDENCE",
        "IGNORE_SPACE",
        "NO_BACKSLASH_ESCAPES",
        "NO_UNSIGNED_SUBTRACTION",
        "PAD_CHAR_TO_FULL_LENGTH",
        "PIPES_AS_CONCAT",
        "REAL_AS_FLOAT",
        "SIMULTANEOUS_ASSIGNMENT",
        "TIME_ROUND_FRACTIONAL",
        "TIME_TRUNCATE_FRACTIONAL",
    }
)
"""Modes under which the same statement gives another result; the others make it fail or warn, or are names of groups
of modes. Sources: MySQL 8.4 Reference Manual, "Server SQL Modes"; MariaDB Knowledge Base, "SQL_MODE"."""


def check_sql_mode(checklist: Checklist, view: ConnectedSource, target: Session) -> None:
    checklist.run("sql_mode", lambda: _sql_mode(view, target))


def _sql_mode(view: ConnectedSource, target: Session) -> Iterator[pb.CheckResult]:
    here, there = (variable(session, "sql_mode") or "" for session in (view.session, target))
    differences = mode_differences(here, there)
    if differences:
        yield warned(
            "sql_mode",
            view.source_id,
            errors.check_data.SQL_MODE_DIFFERS(source=view.source_id, differences=", ".join(differences)),
        )


def mode_differences(source: str, target: str) -> list[str]:
    """The modes that change a statement's meaning and are set at one side only."""
    here, there = ({mode.strip().upper() for mode in text.split(",")} & _MEANINGS for text in (source, target))
    return [f"{mode} at the {'source' if mode in here else 'target'} alone" for mode in sorted(here ^ there)]


def check_collations(checklist: Checklist, target: Session, plans: Sequence[TablePlan]) -> None:
    checklist.run("collation", lambda: _collations(checklist.source, target, plans), privilege_of="target_privilege")


def _collations(source: str, target: Session, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
    groups: dict[str, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target_name, []).append(plan)
    compared = 0
    for group in groups.values():
        found = find_target(target, group[0])
        merged = _existing_columns(found) if found is not None else _columns_to_create(target, group[0])
        keys = found.unique_keys if found is not None else group[0].table.unique_keys
        keyed = {name.lower() for key in keys for name in key}
        coarser: dict[str, None] = {}
        for plan in group:
            for item in plan.columns:
                column = merged.get(item.target_name.lower())
                if column is None or item.target_name.lower() not in keyed or item.column.kind is not ValueKind.STRING:
                    continue
                compared += 1
                if column.kind is ValueKind.STRING and collation_is_coarser(item.column.collation, column.collation):
                    coarser[_column_text(plan, item, column)] = None
        if coarser:
            name = f"{group[0].target_schema}.{group[0].target_table}"
            shown = abbreviated(list(coarser))
            yield warned("collation", source, errors.check_data.COLLATION_COARSER(target=name, columns=shown))
    if compared == 0:
        yield passed("collation", source, "no unique key holds text")


def _column_text(plan: TablePlan, item: ColumnPlan, column: Column) -> str:
    table = plan.table
    return (
        f"{table.schema}.{table.name}.{item.column.name} has {item.column.collation}, the target's {column.name} "
        f"{column.collation}"
    )


def _existing_columns(table: Table) -> Mapping[str, Column]:
    return {column.name.lower(): column for column in table.columns}


def _columns_to_create(target: Session, plan: TablePlan) -> Mapping[str, Column]:
    """The columns of a table that will be created like the first shard table."""
    replaced = created_collations(target, plan.table.collations)
    return {
        item.target_name.lower(): replace(
            item.column, collation=replaced.get(item.column.collation, item.column.collation)
        )
        for item in plan.columns
    }


_BYTES = 4
_TRAITS = frozenset({"bin", "cs", "ci", "as", "ai", "ks", "nopad"})
_UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"})
# MySQL's 0900 corresponds to MariaDB's uca1400_nopad, see worker/core/mysql/create_table.py.
_SAME_TABLE = {"uca1400": "0900"}


def collation_is_coarser(source: str, target: str) -> bool:
    """Whether ``target`` may treat texts as equal that ``source`` distinguishes. True when in doubt; pure.

    A case-sensitive collation distinguishes more than a case-insensitive one, a binary one most. A collation that
    ignores trailing spaces (all but MySQL's 0900 ones and MariaDB's nopad ones) distinguishes less than one that does
    not. Two collations of the same grade with different letter tables may differ in single letters, such as German ß.
    """
    here, there = _traits(source), _traits(target)
    if there.pads and not here.pads:
        return True
    if there.grade == _BYTES:
        return False
    return there.grade < here.grade or there.table != here.table


@dataclass(frozen=True, slots=True)
class _Traits:
    """What a collation distinguishes. ``grade``: how much, higher is more; ``pads``: it ignores trailing spaces;
    ``table``: its letter table."""

    grade: int
    pads: bool
    table: tuple[str, ...]


def _traits(collation: str) -> _Traits:
    """Derived from the name: MySQL 8.4 Reference Manual, "Collation Naming Conventions"; MariaDB's names are alike."""
    if collation in ("", "binary"):
        return _Traits(_BYTES, False, ())
    charset, *words = collation.split("_")
    found = set(words)
    if "bin" in found:
        grade = _BYTES
    elif "cs" in found:
        grade = 2 if "ai" in found else 3
    else:
        grade = 1 if "as" in found else 0
    table = (
        "unicode" if charset in _UNICODE else charset,
        *(_SAME_TABLE.get(word, word) for word in words if word not in _TRAITS),
    )
    return _Traits(grade, not ("0900" in found or "nopad" in found), table)
