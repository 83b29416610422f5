"""What lanes and tables wait for: locks of the target, DDL locks, held rows, tables that join. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from shardmerge.master.diagnosis.finding import HELD, LOCKED, NOTE, PARKED, SCANNED, Finding, percent, seconds, some
from shardmerge.master.diagnosis.stopped import workaround
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto import master_pb2
from shardmerge.proto.common_pb2 import ErrorDetail

_LEAST_SECONDS = 1.0
"""A shorter wait for a lock is not reported: it may be over."""

_IDLE_COMMANDS = frozenset({"sleep", "daemon"})
_ROW_LOCK = "row lock"
_NOT_STARTED = "has not started"
_STATEMENT_CHARACTERS = 200
_NO_SESSION, _UNKNOWN_HOLDER = 0, -1
"""The numbers of holders that are no connection: a prepared XA transaction whose session has ended (LockHolder in
proto/diagnose.proto), and one that is not known."""

AT_LOCK = frozenset({"ready", "conflicting"})
"""The states of a shard table whose rows wait at a DDL lock."""

Connections = Mapping[int, str]
"""The lanes of the task by their connection to the target, as a phrase."""


def own_connections(views: Sequence[SourceView]) -> dict[int, str]:
    return {
        lane.connection: f"lane {lane.lane} of source {view.source}"
        for view in views
        for lane in view.use.lanes
        if lane.connection
    }


def locks_of_target(view: SourceView, own: Connections) -> Iterator[Finding]:
    """A finding for each lock of the target that lanes wait for: of each holder's, or of each table's."""
    if not view.is_replicating:
        return
    shown = {lane.lane: lane for lane in view.status.sync.lanes} if view.status is not None else {}
    waits = [
        (shown[wait.lane].phase_seconds, wait)
        for wait in view.use.target.waits
        if not wait.statement and wait.lane in shown and shown[wait.lane].phase_seconds >= _LEAST_SECONDS
    ]
    for same in _by_lock(waits, own):
        numbers = [str(wait.lane) for _, wait in same]
        who = f"Lane {numbers[0]} has waited" if len(same) == 1 else f"Lanes {some(numbers)} have waited"
        figures = {"lanes": float(len(same))} if len(same) > 1 else {}
        yield _lock(who, same[0], own, view.use.target.hidden, {"lane": numbers[0]}, figures)


def locks_of_statements(views: Sequence[SourceView], own: Connections) -> Iterator[Finding]:
    """The same for other statements of the task's account: of readers, and DDLs. Each source's worker sees all of
    them, so the findings concern the task as a whole."""
    waits: dict[int, tuple[float, pb.TargetWait]] = {}
    hidden = ""
    for view in views:
        for wait in view.use.target.waits:
            if wait.statement and wait.connection not in own:
                waits[wait.connection] = (wait.seconds, wait)
                hidden = hidden or view.use.target.hidden
    known = {**own, **dict.fromkeys(waits, "another statement of the task")}
    for same in _by_lock(list(waits.values()), known):
        statement = same[0][1].statement
        who = "A statement" if len(same) == 1 else f"{len(same)} statements"
        verb = "has" if len(same) == 1 else "have"
        who = f"{who} of the task's account (of readers, or a DDL) {verb} waited"
        figures = {"statements": float(len(same))}
        found = _lock(who, same[0], known, hidden, {"statement": statement}, figures)
        yield replace(found, text=f"{found.text} The {'first ' if len(same) > 1 else ''}statement: {statement}")


def running_statements(views: Sequence[SourceView]) -> Iterator[Finding]:
    """The DDLs of the task's tables that run at the target, and wait for nothing. Each source's worker sees all of
    them, so the findings concern the task as a whole."""
    running = {each.connection: each for view in views for each in view.use.target.running}
    for each in sorted(running.values(), key=lambda one: (-one.seconds, one.connection)):
        has_progress = each.HasField("progress")
        done = f" ({percent(each.progress)} of it is done)" if has_progress else ""
        yield Finding(
            "target-statement",
            LOCKED - 1 + min(each.seconds / 60, 5.0),
            f"The target has executed a DDL of the task's account for {seconds(each.seconds)}{done}: {each.statement}",
            (
                "Wait until it ends: the task continues by itself. A KILL would lose what the target has done of it.",
                f"`SHOW FULL PROCESSLIST` at the target shows connection {each.connection}: MariaDB shows the progress "
                "there, MySQL in `performance_schema.events_stages_current`, TiDB in `ADMIN SHOW DDL JOBS`.",
            ),
            figures={"seconds": each.seconds, **({"progress": each.progress} if has_progress else {})},
            names={"connection": str(each.connection), "statement": each.statement},
        )


def statement_scans(views: Sequence[SourceView], own: Connections) -> Iterator[Finding]:
    """A finding for each statement that reads many more rows than it has keys. Each source's worker sees all sessions
    of the account, so a statement of no lane concerns the task as a whole."""
    scans = {each.connection: each for view in views for each in view.use.target.scans}
    source_of = {lane.connection: view.source for view in views for lane in view.use.lanes}
    for scan in sorted(scans.values(), key=lambda one: (-one.read_rows, one.connection)):
        who = f"A statement of {own[scan.connection]}" if scan.connection in own else "A statement of the task"
        figures = {"read_rows": float(scan.read_rows)}
        if scan.HasField("changed_rows"):
            changed, figures["changed_rows"] = f"and changed {scan.changed_rows:,}", float(scan.changed_rows)
        else:
            changed, figures["most_keys"] = f"for {scan.most_keys:,} key(s) at most", float(scan.most_keys)
        yield Finding(
            "statement-scans",
            SCANNED + min(scan.read_rows / 1e7, 1.0),
            f"{who} has read {scan.read_rows:,} rows of {scan.table} {changed}: the target finds the rows without an "
            f"index, by reading the table. The statement: {scan.statement}",
            (
                f"`SHOW CREATE TABLE {scan.table}` at the target: it lacks an index with the columns in the WHERE "
                "clause. The task writes rows by the key of the shard tables (`dmctl schema` prints a CREATE TABLE "
                "with it); add the key that was dropped. If the shard tables have no key, each changed row is searched "
                "in the whole table: an index over columns that distinguish most rows, at the target only, helps.",
                "If the index is there, `EXPLAIN` of the statement, and `ANALYZE TABLE` at the target: old statistics "
                "may keep the server from using it.",
            ),
            (source_of[scan.connection],) if scan.connection in source_of else (),
            figures,
            {"table": scan.table, "connection": str(scan.connection), "statement": scan.statement},
        )


def waiting_lanes(view: SourceView) -> list[int]:
    """The lanes that wait for a lock of the target, as far as it is known."""
    return [wait.lane for wait in view.use.target.waits if not wait.statement]


def _by_lock(
    waits: Sequence[tuple[float, pb.TargetWait]], own: Connections
) -> Iterator[list[tuple[float, pb.TargetWait]]]:
    """Waits, as (seconds, wait), for one lock together, the longest first."""
    locks: dict[tuple[str, str, int], list[tuple[float, pb.TargetWait]]] = {}
    for seconds_, wait in sorted(waits, key=lambda each: (-each[0], each[1].lane, each[1].connection)):
        first = next(iter(_blockers(wait, own)), None)
        holder = _UNKNOWN_HOLDER if first is None else first.connection
        locks.setdefault((wait.kind, wait.table, holder), []).append((seconds_, wait))
    yield from locks.values()


def _blockers(wait: pb.TargetWait, own: Connections) -> list[pb.LockHolder]:
    """Other lanes may wait for the same lock, and are shown as its holders, too."""
    strangers = [each for each in wait.holders if each.connection not in own]
    return strangers or list(wait.holders)


def _lock(
    who: str,
    longest: tuple[float, pb.TargetWait],
    own: Connections,
    hidden: str,
    names: Mapping[str, str],
    figures: Mapping[str, float],
) -> Finding:
    """``who``: subject and verb of the sentence. ``longest``: (seconds, wait)."""
    waited, wait = longest
    holders = _blockers(wait, own)
    first = holders[0] if holders else None
    is_row = wait.kind == _ROW_LOCK
    what = f"a row of {wait.table}" if is_row and wait.table else f"a {wait.kind}"
    of_table = f" of {wait.table}" if wait.table and not is_row else ""
    names = {**names, "table": wait.table}
    figures = {"wait_seconds": waited, **figures}
    head = f"{who} {seconds(waited)} for {what}{of_table}"
    if first is None:
        hint = wait.hint or hidden or "the server does not show who holds it"
        text = f"{head}; who holds it is not known: {hint}."
        actions: tuple[str, ...] = ("`SHOW FULL PROCESSLIST` at the target shows all sessions.",)
    else:
        names["connection"] = str(first.connection)
        others = [str(each.connection) for each in holders[1:] if each.connection != _NO_SESSION]
        text = f"{head}: {_holder(first, own)}."
        if others:
            text += f" Connection(s) {some(others)} hold it, or wait for it, too."
        if first.visible:
            names["user"], names["host"] = first.user, first.host
            figures["holder_seconds"] = first.seconds
        actions = _actions(first, own)
    kind = "row-lock" if is_row else "metadata-lock"
    weight = LOCKED if first is None or first.connection not in own else LOCKED / 2
    return Finding(kind, weight + min(waited / 60, 5.0), text, actions, figures=figures, names=names)


def _holder(holder: pb.LockHolder, own: Connections) -> str:
    if holder.connection == _NO_SESSION:
        return "a prepared XA transaction holds it, which no session has any more"
    lane = own.get(holder.connection)
    if lane is not None:
        return f"connection {holder.connection}, {lane}, holds it"
    if not holder.visible:
        return f"connection {holder.connection} holds it (its user and statement are not visible: needs PROCESS)"
    account = f"{holder.user}@{holder.host}" if holder.host else holder.user
    if holder.command.lower() in _IDLE_COMMANDS:
        does = f"idle for {seconds(holder.seconds)} in a transaction"
    else:
        statement = holder.statement[:_STATEMENT_CHARACTERS]
        does = f"running for {seconds(holder.seconds)}" + (f": {statement}" if statement else "")
    return f"connection {holder.connection} holds it ({account}, {does})"


def _actions(holder: pb.LockHolder, own: Connections) -> tuple[str, ...]:
    if holder.connection == _NO_SESSION:
        return (
            "`XA RECOVER` at the target lists the prepared transactions. Let the program that began it end it, or end "
            "it as that program would: `XA COMMIT` or `XA ROLLBACK`. The task continues by itself.",
        )
    if holder.connection in own:
        return ("Nothing, if it ends soon: lanes of several sources may write rows next to each other.",)
    return (
        "Let the session end its transaction (COMMIT or ROLLBACK).",
        f"Or end it at the target, which rolls its transaction back: `KILL {holder.connection}`. The task continues by "
        "itself.",
    )


# --- DDL locks


def ddl_locks(locks: Sequence[master_pb2.DDLLock]) -> Iterator[Finding]:
    for lock in locks:
        yield _ddl_lock(lock)


def _ddl_lock(lock: master_pb2.DDLLock) -> Finding:
    missing = [each for each in lock.tables if each.standing == "missing"]
    unknown = sorted({each.source for each in lock.tables if each.standing == "unknown"})
    parked = [each for each in lock.tables if each.standing in AT_LOCK]
    statement = "; ".join(lock.ddls)[:_STATEMENT_CHARACTERS]
    names = {"lock": lock.id, "owner": lock.owner, "stage": lock.stage, "statement": statement}
    figures = {"seconds": lock.seconds, "parked_tables": float(len(parked)), "missing_tables": float(len(missing))}
    if missing:
        names["missing"] = ", ".join(_table(each) for each in missing[:10])
    sources = tuple(sorted({each.source for each in missing} | set(unknown))) or tuple(lock.unsynced)
    unlock = f"`dmctl shard-ddl-lock unlock {shlex.quote(lock.id)}`"
    actions = [f"`dmctl shard-ddl-lock {shlex.quote(lock.task)}` shows the lock, and the state of each shard table."]
    if lock.HasField("conflict"):
        actions.append(lock.conflict.workaround)
    elif missing:
        actions += [
            f"Run the same statement on {some([_table(each) for each in missing])}, or find out why their source lags.",
            "Or let it run at the target without them, if you accept that their rows lose what they have in a dropped "
            f"column: {unlock}",
        ]
    elif unknown:
        actions.append(f"Source(s) {', '.join(unknown)} have not reported their tables: look at them first.")
    waited = seconds(lock.seconds)
    if lock.HasField("conflict"):
        error = lock.conflict
        text = (
            f"[{error.code} {error.name}] {error.message}. This has lasted for {waited}: the rows of {len(parked)} "
            "shard table(s) wait meanwhile."
        )
    else:
        text = (
            f"A statement on shard tables waits to run at the target, for {waited} by now: {statement}. It runs there "
            f"once, after all shard tables of {lock.id.removeprefix(f'{lock.task}-')} have reached it. It waits for "
            f"{lock.waiting_for}. The rows of {len(parked)} shard table(s) that have reached it wait meanwhile; other "
            "tables are applied."
        )
    weight = PARKED if missing or unknown or lock.HasField("conflict") else PARKED / 2
    return Finding("ddl-lock", weight, text, tuple(filter(None, actions)), sources, figures, names)


def _table(table: master_pb2.DDLLockTable) -> str:
    return f"{table.source} `{table.schema}`.`{table.table}`"


# --- rows and tables of a subtask


def held_rows(view: SourceView) -> Iterator[Finding]:
    status = view.status
    held = status.sync.held_keys if status is not None and status.WhichOneof("status") == "sync" else 0
    if held:
        of = f"{view.task_word} -s {view.source_word}"
        yield Finding(
            "quarantine",
            HELD,
            f"{held} key(s) are held in the quarantine: the target refused a row, and all later changes of these keys "
            "wait. Everything else is applied.",
            (
                f"`dmctl quarantine list {of}` shows the keys, and why.",
                f"Correct the target or the source, then `dmctl quarantine retry {of}`. `dmctl quarantine drop` gives "
                f"changes up: the target lacks them until `dmctl compare {view.task_word} --repair`.",
            ),
            figures={"held_keys": held},
        )


def joining_tables(view: SourceView) -> Iterator[Finding]:
    status = view.status
    if status is None:
        return
    joins = [*status.copies, *([status.join] if status.HasField("join") and status.join not in status.copies else [])]
    for join in joins:
        tables = some(join.tables)
        names = {"tables": ", ".join(join.tables[:10]), "phase": join.phase}
        if join.phase == "failed":
            again = f" It is tried again in {seconds(join.retry_seconds)}." if join.retry_seconds else ""
            yield Finding(
                "join-failed",
                HELD + 5,
                f"{tables} could not join the task: [{join.error.code} {join.error.name}] {join.error.message}{again}",
                (*workaround(view, join.error), *_try_again(view, join.error)),
                names=names,
                figures={"code": join.error.code},
            )
        else:
            done = f", {join.load.progress} copied" if join.phase == "copying" else ""
            yield Finding(
                "tables-joining",
                NOTE + 5,
                f"{tables} join the task while it runs ({join.phase}{done}): they are applied by their own stream.",
                names=names,
            )


def _try_again(view: SourceView, error: ErrorDetail) -> Iterator[str]:
    """How tables join that wait for a person, unless the error's text has it."""
    if not error.retryable and not any("resume-task" in text for text in workaround(view, error)):
        yield f"Then `dmctl resume-task {view.task_word} -s {view.source_word}`."


def silent_lanes(view: SourceView) -> Iterator[Finding]:
    """Lanes of which it is not known what they do."""
    if not view.is_replicating or view.status is None:
        return
    known = {lane.number for lane in view.lanes}
    unknown = [lane for lane in view.status.sync.lanes if lane.unknown and lane.lane not in known]
    starting = [lane for lane in unknown if lane.unknown == _NOT_STARTED]
    if starting:
        spark = view.use.spark
        yield Finding(
            "lanes-starting",
            LOCKED - 5,
            f"Lane(s) {some([str(lane.lane) for lane in starting])} have not started: their Spark tasks wait, or have "
            f"no connection to the worker ({spark.free_slots} of {spark.total_slots} Spark slots are free).",
            (f"`dmctl query-status {view.task_word} --more`", "On a cluster: look at Spark's executors."),
            figures={"free_slots": spark.free_slots, "total_slots": spark.total_slots},
        )
    silent = [lane for lane in unknown if lane.unknown != _NOT_STARTED]
    if silent:
        first = silent[0]
        more = [str(lane.lane) for lane in silent[1:]]
        text = f"Lane {first.lane} {first.unknown}: what it does is not known."
        yield Finding(
            "lane-silent",
            LOCKED - 5,
            text + (f" Nor is it of lane(s) {some(more)}." if more else ""),
            (
                f"`dmctl query-status {view.task_word} --more`. A lane that does not report for a minute is started "
                "again by its worker.",
            ),
            figures={"lanes": float(len(silent))},
            names={"lane": str(first.lane)},
        )


def target_unreachable(view: SourceView) -> Iterator[Finding]:
    target = view.use.target
    if view.answer is not None and target.HasField("error"):
        error = target.error
        yield Finding(
            "target-unreachable",
            LOCKED - 2 if not view.transactions else 2 * NOTE,
            f"The worker could not ask the target: [{error.code} {error.name}] {error.message}".rstrip(". ") + ".",
            workaround(view, error),
            names={"error": error.name},
            figures={"code": error.code},
        )
