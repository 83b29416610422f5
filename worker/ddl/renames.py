"""Merged tables get other names: in one statement, as their shard tables did."""

from __future__ import annotations

from collections.abc import Sequence

from worker.connection import Session, execute
from worker.ddl.execute import alone, subject_of
from worker.ddl.work import Work
from worker.plan import TargetTable
from worker.target_table import ensure_schema


def run_renames(work: Work, places: Sequence[tuple[TargetTable, TargetTable]]) -> None:
    """Tables that swap their names may look alike, so a mark that is renamed with them tells whether it has run."""
    touched = sorted({target for pair in places for target in pair})
    subject = subject_of(touched)
    before, after = marks(work, subject)

    for schema in {new.schema for _, new in places}:
        ensure_schema(work.session, schema)

    def mark(session: Session) -> None:
        drop_marks(session, (before, after))
        execute(session, f"CREATE TABLE {before.quoted} (id INT PRIMARY KEY)")

    # All step aside first: no name is taken while it is still another's.
    aside = [TargetTable(old.schema, f"ddl_{subject[:16]}_{number}") for number, (old, _) in enumerate(places)]
    steps = [
        *((old, away) for (old, _), away in zip(places, aside, strict=True)),
        *((away, new) for (_, new), away in zip(places, aside, strict=True)),
        (before, after),
    ]
    text = f"RENAME TABLE {', '.join(f'{old.quoted} TO {new.quoted}' for old, new in steps)}"
    work.passing.marked.add(subject)
    work.run([*touched, before, after], text, subject=subject, prepare=mark)


def forget_marks(work: Work) -> None:
    """Of the statement, which is passed; a kill leaves them behind, empty and in nobody's way. Raises FENCED."""
    for subject in work.passing.marked:
        with alone(work.session, work.who, work.epoch, subject, work.stop, work.tell) as held:
            if held:
                drop_marks(work.session, marks(work, subject))


Marks = tuple[TargetTable, TargetTable]


def with_mark(text: str, names: Marks) -> str:
    """``text``, a RENAME TABLE, extended so that it also renames the marker table. The extension is on a new line
    because the text may end with a comment."""
    before, after = names
    return f"{text}\n, {before.quoted} TO {after.quoted}"


def marks(work: Work, subject: str) -> Marks:
    """The name before the statement, and the one behind it."""
    schema = work.context.config.meta_schema
    return TargetTable(schema, f"ddl_mark_{subject}_0"), TargetTable(schema, f"ddl_mark_{subject}_1")


def drop_marks(session: Session, names: Marks) -> None:
    """Drop the marker tables. Raises ``pymysql.MySQLError``."""
    before, after = names
    execute(session, f"DROP TABLE IF EXISTS {before.quoted}, {after.quoted}")
