"""Renames merged tables in one statement, as their shard tables were renamed."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.worker.core.mysql.connection import Session, execute
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.run_once import subject_lock, subject_of
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.target.tables.target_table import ensure_schema


def run_renames(context: StatementContext, places: Sequence[tuple[TargetTable, TargetTable]]) -> None:
    """Rename the targets once. Tables that swap names may have equal definitions, so a marker table is renamed with
    them: its name shows whether the statement has run."""
    touched = sorted({target for pair in places for target in pair})
    subject = subject_of(touched)
    before, after = mark_names(context, subject)

    for schema in {new.schema for _, new in places}:
        ensure_schema(context.session, schema)

    def mark(session: Session) -> None:
        drop_marks(session, (before, after))
        execute(session, f"CREATE TABLE {before.quoted} (id INT PRIMARY KEY)")

    # All get a temporary name first, so no new name is in use by another table.
    aside = [TargetTable(old.schema, f"ddl_{subject[:16]}_{number}") for number, (old, _) in enumerate(places)]
    steps = [
        *((old, away) for (old, _), away in zip(places, aside, strict=True)),
        *((away, new) for (_, new), away in zip(places, aside, strict=True)),
        (before, after),
    ]
    text = f"RENAME TABLE {', '.join(f'{old.quoted} TO {new.quoted}' for old, new in steps)}"
    context.changes.executed.rename_marks.add(subject)
    context.run([*touched, before, after], text, subject=subject, prepare=mark)


def drop_rename_marks(context: StatementContext) -> None:
    """Drop the marker tables of an executed statement. After a kill they remain, empty and harmless. Raises FENCED."""
    for subject in context.changes.executed.rename_marks:
        marks, session, who = mark_names(context, subject), context.session, context.who
        with subject_lock(session, who, context.epoch, subject, marks, context.stop, context.on_wait) as held:
            if held:
                drop_marks(session, marks)


Marks = tuple[TargetTable, TargetTable]


def with_mark(text: str, names: Marks) -> str:
    """``text``, a RENAME TABLE, extended so that it also renames the marker table. The extension is on a new line
    because the text may end with a comment."""
    before, after = names
    return f"{text}\n, {before.quoted} TO {after.quoted}"


def mark_names(context: StatementContext, subject: str) -> Marks:
    """The marker table's name before the statement and after it."""
    schema = context.run_context.config.meta_schema
    return TargetTable(schema, f"ddl_mark_{subject}_0"), TargetTable(schema, f"ddl_mark_{subject}_1")


def drop_marks(session: Session, names: Marks) -> None:
    """Drop the marker tables. Raises ``pymysql.MySQLError``."""
    before, after = names
    execute(session, f"DROP TABLE IF EXISTS {before.quoted}, {after.quoted}")
