"""Further situations of rows, of the target's tables and of its accounts, and what an operator does who follows the
printed way out."""

from __future__ import annotations

from tests.integration.ways_out.printed import Printed
from tests.integration.ways_out.situations.situation import ONE, Merge, WayOut, as_account
from tests.support.world import Family


def _partial_images(merge: Merge) -> Printed:
    """A session of the source logs rows without all columns."""
    merge.source(1).execute(
        "SET SESSION binlog_row_image = MINIMAL", f"UPDATE {merge.shard(1)} SET amount = 5 WHERE id <= 20"
    )
    return merge.operator.stopped(21004, ONE)


def _copy_again(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "stop-task")
    merge.operator.runs(printed, "start-task")


def _no_transactions(merge: Merge) -> Printed:
    """The merged table gets an engine without transactions."""
    cluster, name = merge.world.cluster, merge.family.name
    cluster.dmctl("pause-task", name)
    merge.target(f"ALTER TABLE {merge.merged} ENGINE=MyISAM")
    merge.insert(1, 1, "after")
    cluster.dmctl("resume-task", name, check=False)
    return merge.operator.stopped(40031, ONE)


def _give_engine(merge: Merge, printed: Printed) -> None:
    merge.target(f"ALTER TABLE {merge.merged} ENGINE=InnoDB")
    merge.operator.runs(printed, "resume-task")


def _drop_note(merge: Merge) -> Printed:
    """A column of the merged table is dropped at the target."""
    merge.target(f"ALTER TABLE {merge.merged} DROP COLUMN note")
    merge.insert(1, 1, "after")
    return merge.operator.stopped(40026, ONE)


def _give_note(merge: Merge, printed: Printed) -> None:
    merge.target(f"ALTER TABLE {merge.merged} ADD COLUMN note VARCHAR(120) NULL AFTER state")
    merge.operator.runs(printed, "resume-task")
    merge.world.settle([merge.family.name])
    merge.operator.runs(printed, "compare")


def _revoke(merge: Merge) -> Printed:
    """The account of the target may no longer write the merged table."""
    cluster, name = merge.world.cluster, merge.family.name
    merge.target(
        f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'now'",
        f"GRANT ALL ON dm_meta.* TO {name}@'127.0.0.1'",
        f"GRANT ALL ON {name}.* TO {name}@'127.0.0.1'",
    )
    merge.file(as_account(merge, "now"))
    cluster.dmctl("update-task", merge.operator.file)
    cluster.wait_replicating(name)
    merge.target(f"REVOKE INSERT ON {name}.* FROM {name}@'127.0.0.1'")
    merge.world.target.kill_threads(name)
    merge.insert(1, 1, "after")
    return merge.operator.stopped(40021, ONE)


def _grant(merge: Merge, printed: Printed) -> None:
    name = merge.family.name
    merge.target(f"GRANT INSERT ON {name}.* TO {name}@'127.0.0.1'")
    merge.operator.runs(printed, "resume-task")


def _with_row_filter(family: Family) -> str:
    names = f"schema-pattern: {family.name}_01, table-pattern: order_01"
    rule = f"filters:\n  stop: {{{names}, events: [delete], action: Error}}\n"
    return family.task(extra=rule).replace("    route-rules:", "    filter-rules: [stop]\n    route-rules:")


def _filtered_rows(merge: Merge) -> Printed:
    """An event filter stops the task before rows."""
    merge.source(1).execute(f"DELETE FROM {merge.shard(1)} WHERE id <= 20")
    return merge.operator.stopped(40070, ONE)


def _without_filter(merge: Merge, printed: Printed) -> None:
    merge.file(merge.family.task())
    merge.operator.runs(printed, "update-task")
    merge.operator.runs(printed, "resume-task")


DATA_WAYS_OUT = (
    WayOut(40031, "the merged table gets an engine without transactions", _no_transactions, _give_engine, sources=1),
    WayOut(40021, "a privilege at the target is revoked", _revoke, _grant, sources=1),
    WayOut(40026, "a column of the merged table is dropped at the target", _drop_note, _give_note),
    WayOut(
        40070,
        "an event filter stops the task before rows",
        _filtered_rows,
        _without_filter,
        _with_row_filter,
        sources=1,
    ),
    WayOut(21004, "a session of the source logs rows without all columns", _partial_images, _copy_again),
)
