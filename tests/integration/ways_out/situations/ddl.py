"""The situations in which a task stops before a statement of its source, and what an operator does who follows the
printed way out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace

from tests.integration.ways_out.printed import Operator, Printed
from tests.integration.ways_out.situations.situation import ONE, TWO, Merge, WayOut
from tests.support.cluster import Json
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import Family

_SHARDS = ((1, 1), (1, 2), (2, 1), (2, 2))
"""(source, table) of a merge of two sources."""


def _skip_and_repair(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


def _skip(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")


def _alter(merge: Merge, change: str, shards: tuple[tuple[int, int], ...] = ((1, 1),)) -> None:
    for source, table in shards:
        merge.source(source).execute(f"ALTER TABLE {merge.shard(table)} {change}")
        merge.insert(source, table, "after")


def _log_statements(merge: Merge) -> Printed:
    """A session of the source logs a change of rows as a statement."""
    merge.source(1).execute(
        "SET SESSION binlog_format = STATEMENT",
        f"UPDATE {merge.shard(1)} SET amount = amount + 1 WHERE id <= 50",
        "SET SESSION binlog_format = ROW",
        f"UPDATE {merge.shard(2)} SET amount = amount + 1 WHERE id <= 50",
    )
    return merge.operator.stopped(50003, ONE)


def _column_exists(merge: Merge) -> Printed:
    """Another program has added the column at the target."""
    merge.target(f"ALTER TABLE {merge.merged} ADD COLUMN extra VARCHAR(10)")
    _alter(merge, "ADD COLUMN extra VARCHAR(10) DEFAULT 'x'")
    return merge.operator.stopped(50004, ONE)


def _drop_column_and_resume(merge: Merge, printed: Printed) -> None:
    merge.target(f"ALTER TABLE {merge.merged} DROP COLUMN extra")
    merge.operator.runs(printed, "resume-task")


def _alter_without_mode(merge: Merge) -> Printed:
    """The shard tables are altered, and the task has no shard-mode."""
    _alter(merge, "ADD COLUMN extra INT DEFAULT 7", _SHARDS)
    return merge.operator.stopped(50005, ONE)


def _set_mode(merge: Merge, printed: Printed) -> None:
    merge.file(merge.text + "shard-mode: pessimistic\n")
    merge.operator.runs(printed, "update-task")


def _truncate_partition(merge: Merge) -> Printed:
    """A partition of a shard table is emptied."""
    merge.source(1).execute(
        f"ALTER TABLE {merge.shard(1)} PARTITION BY RANGE (id) "
        "(PARTITION old VALUES LESS THAN (50), PARTITION new VALUES LESS THAN MAXVALUE)",
        f"ALTER TABLE {merge.shard(1)} TRUNCATE PARTITION old",
    )
    merge.insert(1, 1, "after")
    return merge.operator.stopped(50006, ONE)


def _copy_outside(merge: Merge, condition: str) -> str:
    """Make a table ``t`` outside of the task, with those rows of a shard table; return its schema."""
    outside = merge.family.name.replace("way", "outside")
    merge.source(1).execute(
        f"CREATE DATABASE {outside}",
        f"CREATE TABLE {outside}.t LIKE {merge.shard(2)}",
        f"INSERT INTO {outside}.t SELECT * FROM {merge.shard(2)} WHERE {condition}",
    )
    return outside


def _rename_into(merge: Merge) -> Printed:
    """A table from outside of the task gets the name of a shard table that was dropped before."""
    outside = _copy_outside(merge, "id <= 70")
    merge.source(1).execute(
        f"DROP TABLE {merge.shard(2)}",
        f"RENAME TABLE {outside}.t TO {merge.shard(2)}",
    )
    return merge.operator.stopped(50008, ONE)


def _skip_and_add(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")
    merge.operator.runs(printed, "update-task")
    merge.world.cluster.wait_joined(merge.family.name)
    merge.insert(1, 2, "after")


def _swap_into(merge: Merge) -> Printed:
    """A shard table is replaced by a table from outside of the task, which has other values and other rows."""
    outside = _copy_outside(merge, "id % 3 > 0")
    merge.source(1).execute(
        f"UPDATE {outside}.t SET amount = amount + 1",
        f"RENAME TABLE {merge.shard(2)} TO {outside}.before, {outside}.t TO {merge.shard(2)}",
        f"UPDATE {merge.shard(2)} SET amount = amount + 1 WHERE id < 50",
    )
    merge.insert(1, 2, "after")
    return merge.operator.stopped(50008, ONE)


def _skip_remove_and_add(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog skip")
    printed = merge.operator.stopped(40010, ONE)
    answer = merge.operator.runs(printed, "update-task", check=False)
    [error] = [one["error"] for one in answer.json["sources"] if one.get("error")]
    assert int(error["code"]) == 40099, answer.text
    found = re.search(r"(DELETE FROM .*?;)", str(error["workaround"]))
    assert found is not None, answer.text
    merge.target(found[1])
    merge.operator.runs(printed, "update-task")
    merge.world.cluster.wait_joined(merge.family.name)


def _drop_check(merge: Merge) -> Printed:
    """A check is dropped by a name that the target does not have."""
    _alter(merge, "ADD CONSTRAINT small CHECK (amount < 1000000000)")
    _alter(merge, "DROP CONSTRAINT small")
    return merge.operator.stopped(50011, ONE)


def _drop_its_check(merge: Merge, printed: Printed) -> None:
    [(_, text)] = merge.world.target.query(f"SHOW CREATE TABLE {merge.merged}")
    name = str(text).partition("CONSTRAINT `")[2].partition("`")[0]
    change = f"ALTER TABLE {merge.shard(1)} DROP CONSTRAINT {name}"
    merge.operator.runs(printed, "binlog replace", statement=change)


def _change_id(merge: Merge) -> Printed:
    """The id of a shard table gets a wider type."""
    _alter(merge, "MODIFY id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT")
    return merge.operator.stopped(50012, ONE)


def _draw_values(merge: Merge) -> Printed:
    """A column is added whose values each server generates itself."""
    _alter(merge, "ADD COLUMN extra VARCHAR(36) DEFAULT (UUID())")
    return merge.operator.stopped(50014, ONE)


def _add_and_repair(merge: Merge, printed: Printed) -> None:
    change = f"ALTER TABLE {merge.shard(1)} ADD COLUMN extra VARCHAR(36)"
    merge.operator.runs(printed, "binlog replace", statement=change)
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


def _fill_with_time(merge: Merge) -> Printed:
    """The shard tables get a column with the time of the statement."""
    _alter(merge, "ADD COLUMN extra DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", _SHARDS)
    return merge.operator.stopped(50063, ONE)


def _fill_by_repair(merge: Merge, printed: Printed) -> None:
    _replace_once(merge, printed, 50063, "ADD COLUMN extra DATETIME(3) NULL")


def _replace_once(merge: Merge, printed: Printed, code: int, change: str) -> None:
    """Replace the statement of the first shard table, skip those of the others, and compare."""
    merge.operator.runs(printed, "binlog replace", statement=f"ALTER TABLE {merge.shard(1)} {change}")
    for source, table in ((ONE, 2), (TWO, 1), (TWO, 2)):
        printed = _stopped_at(merge, source, table, code)
        merge.operator.runs(printed, "binlog skip")
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


_COPY = "ADD COLUMN extra INT DEFAULT 5, ALGORITHM=COPY"


def _replace_dates(merge: Merge) -> Printed:
    """Rows have dates that the sql_mode of a later ALTER TABLE, which copies its table, does not permit."""
    _alter(merge, "ADD COLUMN day DATE NULL", _SHARDS)
    for source, table in _SHARDS:
        merge.source(source).execute(
            "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
            f"UPDATE {merge.shard(table)} SET day = '2026-02-30' WHERE id = 5",
            f"UPDATE {merge.shard(table)} SET day = '2026-00-10' WHERE id = 6",
            "SET SESSION sql_mode = 'NO_ZERO_IN_DATE'",
            f"ALTER TABLE {merge.shard(table)} {_COPY}",
        )
        merge.insert(source, table, "after")
    [(days,)] = merge.source(1).query(f"SELECT COUNT(*) FROM {merge.shard(1)} WHERE id IN (5, 6) AND day = 0")
    assert days == 2, "the source has not replaced them"
    return merge.operator.stopped(50073, ONE)


def _copy_dates_by_repair(merge: Merge, printed: Printed) -> None:
    _replace_once(merge, printed, 50073, _COPY)
    [(days,)] = merge.world.target.query(f"SELECT COUNT(*) FROM {merge.merged} WHERE day = 0")
    assert days == 2 * len(_SHARDS)


def _stopped_at(merge: Merge, source: str, table: int, code: int) -> Printed:
    """Wait until the task has stopped before the statement of this shard table."""

    def found() -> Printed | None:
        printed = merge.operator.stopped(code, source)
        return printed if merge.shard(table) in printed.message.replace("`", "") else None

    return until(found, f"the statement of table {table} of {source} is reached", 60)


def _drop_filtered(merge: Merge) -> Printed:
    """A column is dropped by which an expression filter decides."""
    _alter(merge, "DROP COLUMN note")
    return merge.operator.stopped(50019, ONE)


def _alter_held(merge: Merge) -> Printed:
    """A statement changes a table of which rows are held."""
    merge.target(f"ALTER TABLE {merge.merged} ADD CONSTRAINT short CHECK (customer <> 'refused')")
    merge.insert(1, 1, "refused")
    held = f"SELECT COUNT(*) FROM dm_meta.held_change WHERE task = '{merge.family.name}'"
    until(lambda: merge.world.target.query(held) == [(1,)], "the row is held", 120)
    _alter(merge, "ADD COLUMN extra INT DEFAULT 7")
    return merge.operator.stopped(50170, ONE)


def _retry_held(merge: Merge, printed: Printed) -> None:
    merge.target(f"ALTER TABLE {merge.merged} DROP CONSTRAINT short")
    merge.operator.runs(printed, "quarantine retry")
    merge.operator.runs(printed, "resume-task")


def _with_quarantine(family: Family) -> str:
    return family.task(extra="replicate: {on-row-error: quarantine}\n")


def _with_expression(family: Family) -> str:
    rule = f"unused: {{schema: {family.name}_01, table: order_01, delete-value-expr: \"note = 'never'\"}}"
    return _with_rules(family, "expression-filters: [unused]", f"expression-filter:\n  {rule}\n")


def _with_rules(family: Family, use: str, rules: str) -> str:
    """The task file in which each source also uses ``rules``."""
    return family.task(extra=rules).replace("    route-rules:", f"    {use}\n    route-rules:")


def _without_rule(merge: Merge, printed: Printed) -> None:
    merge.file(merge.family.task())
    merge.operator.runs(printed, "update-task")


def _filtered_statement(merge: Merge) -> Printed:
    """An event filter stops the task before a statement."""
    merge.source(1).execute(f"TRUNCATE TABLE {merge.shard(1)}")
    merge.insert(1, 1, "after")
    return merge.operator.stopped(50018, ONE)


def _with_event_filter(family: Family) -> str:
    names = f"schema-pattern: {family.name}_01, table-pattern: order_01"
    rule = f"filters:\n  stop: {{{names}, events: [truncate table], action: Error}}\n"
    return _with_rules(family, "filter-rules: [stop]", rule)


def _with_mode(mode: str) -> Callable[[Family], str]:
    return lambda family: family.task(extra=f"shard-mode: {mode}\n")


def _rename_within(merge: Merge) -> Printed:
    """A shard table gets the name of one that was dropped: its ids would be mapped to others."""
    merge.source(1).execute(f"DROP TABLE {merge.shard(1)}", f"RENAME TABLE {merge.shard(2)} TO {merge.shard(1)}")
    merge.insert(1, 1, "after")
    return merge.operator.stopped(50013, ONE)


def _skip_and_add_renamed(merge: Merge, printed: Printed) -> Family:
    merge.operator.runs(printed, "binlog skip")
    merge.operator.runs(printed, "update-task")
    merge.world.cluster.wait_joined(merge.family.name)
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")
    return replace(merge.family, tables=1)


def _give_nonsense(merge: Merge) -> Printed:
    """The operator replaces a statement by one that is not understood."""
    _alter(merge, "ADD COLUMN extra INT DEFAULT 7", _SHARDS)
    merge.operator.stopped(50005, ONE)
    merge.world.cluster.dmctl("binlog", "replace", merge.family.name, "CALL nothing()", "-s", ONE, check=False)
    return merge.operator.stopped(50015, ONE)


def _revert_and_set_mode(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog revert")
    _set_mode(merge, merge.operator.stopped(50005, ONE))


def _alter_without_binlog(merge: Merge) -> Printed:
    """A column is added by a session that logs nothing, and dropped by one that does."""
    merge.source(1).execute(
        "SET SESSION sql_log_bin = 0",
        f"ALTER TABLE {merge.shard(1)} ADD COLUMN hidden INT",
        "SET SESSION sql_log_bin = 1",
        f"ALTER TABLE {merge.shard(1)} DROP COLUMN hidden",
    )
    merge.insert(1, 1, "after")
    return merge.operator.stopped(50009, ONE)


def _swap_unseen(merge: Merge) -> Printed:
    """An online schema change renames a column in a copy of the table that the binlog does not have."""
    shard, name = merge.shard(1), f"{merge.family.name}_01"
    merge.source(1).execute(
        "SET SESSION sql_log_bin = 0",
        f"CREATE TABLE {name}._order_01_gho LIKE {shard}",
        f"ALTER TABLE {name}._order_01_gho {_RENAMED}",
        f"INSERT INTO {name}._order_01_gho SELECT * FROM {shard}",
        "SET SESSION sql_log_bin = 1",
        f"RENAME TABLE {shard} TO {name}._order_01_del, {name}._order_01_gho TO {shard}",
        f"UPDATE {shard} SET state_now = 'sent' WHERE id % 3 = 0",
    )
    return merge.operator.stopped(50016, ONE)


_RENAMED = "RENAME COLUMN state TO state_now"


def _rename_column(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "binlog replace", statement=f"ALTER TABLE {merge.shard(1)} {_RENAMED}")


def _alter_differently(merge: Merge) -> Printed:
    """A shard table gets a column of another type than the first one."""
    _alter(merge, "ADD COLUMN extra INT", ((1, 1),))
    until(lambda: _locks(merge), "the first table waits at its statement", 120)
    _alter(merge, "ADD COLUMN extra BIGINT", ((1, 2), (2, 1), (2, 2)))

    def conflict() -> Json | None:
        return next((one["conflict"] for one in _locks(merge) if one.get("conflict")), None)

    return Printed.of(until(conflict, "the lock shows the conflict", 120))


def _half(mode: str) -> Callable[[Family], str]:
    """The task file of the shard tables ``order_01`` alone; another task has the others."""
    return lambda family: _of_table(family, family.name, "order_01", mode)


def _of_table(family: Family, task: str, table: str, mode: str) -> str:
    plain = f'    do-dbs: ["{family.name}_*"]'
    only = f'    do-tables: [{{db-name: "{family.name}_*", tbl-name: "{table}"}}]'
    extra = f"shard-mode: {mode}\n" if mode else ""
    return family.task(task, extra=extra).replace(plain, only)


def _drop_from_both(mode: str) -> Callable[[Merge], Printed]:
    def produce(merge: Merge) -> Printed:
        """Two tasks merge into one target table, and all shard tables drop a column."""
        world, other = merge.world, _other_task(merge)
        world.cluster.start_task(_of_table(merge.family, other.task, "order_02", mode))
        world.cluster.wait_replicating(other.task)
        sources = range(1, len(merge.family.sources) + 1)
        _alter(merge, "DROP COLUMN note", tuple((source, table) for source in sources for table in (1, 2)))
        return merge.operator.stopped(50074)

    return produce


def _other_task(merge: Merge) -> Operator:
    name = f"{merge.family.name}_other"
    return Operator(merge.world.cluster, name, str(merge.world.cluster.directory / f"{name}.task.yaml"))


def _drop_once(merge: Merge, printed: Printed) -> None:
    cluster, other = merge.world.cluster, _other_task(merge)
    other.stopped(50074)
    stopped = [source for source, its in cluster.subtasks(other.task).items() if its.stage == "Paused"]
    merge.operator.runs(printed, "binlog replace", statement=f"ALTER TABLE {merge.shard(1)} DROP COLUMN note")
    database, table = merge.shard(2).split(".")
    names = {"<other task>": other.task, "<database>": database, "<table>": table}
    for source in stopped if not _locks_of(merge, other.task) else ():
        _as_printed(merge, printed, "binlog-schema update", names | {"<source>": source})
    _as_printed(merge, printed, "binlog skip", names)
    merge.world.settle([other.task])
    merge.world.settle([merge.family.name])
    cluster.dmctl("stop-task", other.task)


def _as_printed(merge: Merge, printed: Printed, begin: str, names: dict[str, str]) -> None:
    command = printed.command(begin)
    for placeholder, name in names.items():
        command = command.replace(placeholder, name)
    merge.world.cluster.dmctl(*shlex.split(command))


def _locks(merge: Merge) -> list[Json]:
    return _locks_of(merge, merge.family.name)


def _locks_of(merge: Merge, task: str) -> list[Json]:
    return locks_of(merge.world, task) or []


def _unlock_both(merge: Merge, printed: Printed) -> None:
    """The first statement runs; then the target is changed as the second one would change it."""
    merge.operator.runs(printed, "shard-ddl-lock unlock", 0)

    def is_next() -> bool:
        # The first lock, too, names the other statement: its tables are listed until they have continued.
        return any("BIGINT" in str(one["DDLs"]) for one in _locks(merge))

    until(is_next, "the other statement has a lock of its own", 120)
    merge.target(f"ALTER TABLE {merge.merged} MODIFY extra BIGINT")
    merge.operator.runs(printed, "shard-ddl-lock unlock", 1)


_DROP, _ADD = "DROP COLUMN note", "ADD COLUMN extra INT DEFAULT 7"


def _alter_in_parts(merge: Merge, *, first_in_one: bool) -> Printed:
    """Shard tables drop and add a column: the first table in one statement and the others in two, or the other way."""
    changes = ((f"{_DROP}, {_ADD}",), (_DROP, _ADD))
    first, others = changes if first_in_one else reversed(changes)
    for change in first:
        _alter(merge, change, ((1, 1),))
    until(lambda: _locks(merge), "the first table waits at its statement", 120)
    for change in others:
        _alter(merge, change, ((1, 2), (2, 1), (2, 2)))

    def conflict() -> Json | None:
        return next((one["conflict"] for one in _locks(merge) if one.get("conflict")), None)

    return Printed.of(until(conflict, "the lock shows the conflict", 120))


def _one_then_parts(merge: Merge) -> Printed:
    return _alter_in_parts(merge, first_in_one=True)


def _parts_then_one(merge: Merge) -> Printed:
    return _alter_in_parts(merge, first_in_one=False)


def _unlock_parts(merge: Merge, printed: Printed) -> None:
    """The target has the first statement; what is missing of the others is run by hand, and they are let through. An
    operator who lets the second statement run gets 50004, whose way out is the same."""
    name, first = merge.family.name, _waiting(merge)
    merge.operator.runs(printed, "shard-ddl-lock unlock", 0)
    until(lambda: _waiting(merge) not in ("", first), "the other statement has a lock of its own", 60)
    merge.operator.runs(printed, "shard-ddl-lock unlock", 0)
    refused = merge.operator.stopped(50004)
    assert "run the rest at the target by hand" in refused.way_out
    assert "run only the part that is missing at the target by hand" in printed.way_out
    columns = {str(name) for name, *_ in merge.world.target.query(f"SHOW COLUMNS FROM {merge.merged}")}
    if "extra" not in columns:
        merge.target(f"ALTER TABLE {merge.merged} {_ADD}")
    _let_through(merge, refused)

    def is_through() -> bool:
        subtasks = merge.world.cluster.subtasks(name).values()
        for one in _locks(merge):
            if one["stage"] == "gathering":  # it may end by itself meanwhile
                merge.operator.runs(printed, "shard-ddl-lock unlock", 1, check=False)
            elif any(subtask.stage == "Paused" for subtask in subtasks):
                _let_through(merge, merge.operator.stopped(50004))
        return not _locks(merge) and all(one.synced for one in subtasks)

    until(is_through, "the further statements are let through", 90)


def _let_through(merge: Merge, refused: Printed) -> None:
    """Do what 50004 prints for a lock whose statement the target has in part: the lock's id is looked up."""
    [lock] = merge.operator.runs(refused, "shard-ddl-lock").json["locks"]
    command = refused.command("shard-ddl-lock unlock").replace("<lock>", lock["ID"])
    merge.world.cluster.dmctl(*shlex.split(command), check=False)


def _waiting(merge: Merge) -> str:
    return next((str(one["DDLs"]) for one in _locks(merge) if one["stage"] == "gathering"), "")


DDL_WAYS_OUT = (
    WayOut(
        50009,
        "a column that the binlog does not have is dropped",
        _alter_without_binlog,
        _skip,
        tables=1,
        sources=1,
    ),
    WayOut(
        50016,
        "an online schema change whose copy the binlog does not have",
        _swap_unseen,
        _rename_column,
        tables=1,
        sources=1,
    ),
    WayOut(
        50101,
        "shard tables get a column of two types",
        _alter_differently,
        _unlock_both,
        text=_with_mode("pessimistic"),
    ),
    *(
        WayOut(
            50101,
            "one statement at one shard table is two at another",
            produce,
            _unlock_parts,
            text=_with_mode("pessimistic"),
            part=part,
        )
        for part, produce in (("_one", _one_then_parts), ("_parts", _parts_then_one))
    ),
    WayOut(50003, "a session of the source logs a change of rows as a statement", _log_statements, _skip_and_repair),
    WayOut(
        50004,
        "the target has the column already",
        _column_exists,
        _drop_column_and_resume,
        tables=1,
        sources=1,
    ),
    WayOut(50005, "shard tables are altered, without a shard-mode", _alter_without_mode, _set_mode),
    WayOut(50006, "a partition of a shard table is emptied", _truncate_partition, _skip_and_repair),
    WayOut(50008, "a table from outside of the task gets the name of a shard table", _rename_into, _skip_and_add),
    WayOut(
        50008,
        "one statement replaces a shard table by a table from outside of the task",
        _swap_into,
        _skip_remove_and_add,
        part="_swap",
    ),
    WayOut(50011, "a check is dropped by its name at the source", _drop_check, _drop_its_check, tables=1, sources=1),
    WayOut(50012, "the id of a shard table gets another type", _change_id, _skip, tables=1, sources=1),
    WayOut(
        50014,
        "a column is added whose values each server generates itself",
        _draw_values,
        _add_and_repair,
        tables=1,
        sources=1,
    ),
    WayOut(
        50063,
        "shard tables get a column with the time of the statement",
        _fill_with_time,
        _fill_by_repair,
        text=_with_mode("optimistic"),
    ),
    WayOut(
        50073,
        "an ALTER TABLE that copies its table may replace dates such as 2026-02-30",
        _replace_dates,
        _copy_dates_by_repair,
        text=_with_mode("optimistic"),
    ),
    *(
        WayOut(
            50074,
            "a column is dropped at a target table that another task merges into, too",
            _drop_from_both(mode),
            _drop_once,
            text=_half(mode),
            sources=sources,
            part=f"_{mode}" if mode else "",
        )
        for mode, sources in (("", 1), ("pessimistic", 2), ("optimistic", 2))
    ),
    WayOut(
        50019,
        "a column is dropped by which an expression filter decides",
        _drop_filtered,
        _without_rule,
        text=_with_expression,
        tables=1,
        sources=1,
    ),
    WayOut(
        50018,
        "an event filter stops the task before a statement",
        _filtered_statement,
        _without_rule,
        text=_with_event_filter,
        tables=1,
        sources=1,
    ),
    WayOut(
        50170,
        "a statement changes a table of which rows are held",
        _alter_held,
        _retry_held,
        text=_with_quarantine,
        tables=1,
        sources=1,
    ),
    WayOut(50013, "a shard table gets a name with another number", _rename_within, _skip_and_add_renamed, sources=1),
    WayOut(50015, "an operator gives a statement that is not understood", _give_nonsense, _revert_and_set_mode),
)
