"""The answer to `query-status <task>` as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.dm_words import stage_word, unit_word
from shardmerge.ctl.render import format, style
from shardmerge.ctl.render.progress import lag_seconds, problems, subtasks, unknown_progress
from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.listed_names import listed
from shardmerge.proto.worker_pb2 import JoinStatus, LoadStatus, RelayStatus, SubTaskStatus, SyncStatus


def detail(answer: pb.QueryStatusResponse, *, more: bool = False) -> RenderableType:
    """One row per subtask, then every error in full; ``more``: positions, relay, tables and lanes too."""
    made = style.table(
        "task",
        "source",
        "worker",
        "stage",
        "unit",
        "progress",
        "rows",
        "rows/s",
        "lag",
        "doing",
        right=("rows", "rows/s", "lag"),
    )
    for part in answer.sources:
        for status in part.sub_task_status:
            made.add(
                status.name,
                style.cell(part.source_status.source, "bold"),
                part.source_status.worker or "–",
                style.stage(stage_word(status.stage), failed=len(status.result.errors) > 0),
                *_figures(status),
            )
        if not part.sub_task_status:
            made.add(
                style.cell("–"),
                style.cell(part.source_status.source, "bold"),
                part.source_status.worker or "–",
                style.outcome(result=part.result) if not part.result else Text("no task", style="dim"),
            )
    parts: list[RenderableType] = [made] if answer.sources else [Text("There is no subtask.", style="dim")]
    parts += [style.problem(problem.report, problem.where) for problem in problems(answer)]
    for part in answer.sources:
        parts += [style.warning(one, f"source {part.source_status.source}") for one in part.source_status.warnings]
    for source, status in subtasks(answer):
        joins = list(status.copies)
        if status.HasField("join") and status.join not in joins:
            joins.append(status.join)
        for join in joins:
            parts += _join(source, status.name, join)
    if not more:
        parts += _reports(answer)
    if more:
        for part in answer.sources:
            parts += _more(part)
    return Group(*parts)


def _join(source: str, task: str, join: JoinStatus) -> list[RenderableType]:
    """The progress of tables that are joining a subtask."""
    match join.phase:
        case "copying":
            load = join.load
            progress_text = f"copying, {load.progress}, {format.rows(load.finished_rows)} rows"
            if load.eta_seconds:
                progress_text += f", {format.duration(load.eta_seconds)} left"
        case "following":
            behind = f"unknown: {join.unknown}" if join.unknown else f"{format.size(join.bytes_behind)} not applied"
            progress_text = f"copied, {behind}"
        case "failed":
            again = f"; tried again in {format.duration(join.retry_seconds)}" if join.retry_seconds else ""
            progress_text = f"failed: [{join.error.code} {join.error.name}] {join.error.message}{again}"
        case phase:
            progress_text = phase
    names = listed(join.tables, _NAMED)
    line = Text.assemble(("joining ", "bold"), f"{style.flat(task)} on {style.flat(source)}: {names}: ", progress_text)
    lines: list[RenderableType] = [line]
    if join.HasField("error") and join.error.workaround:
        lines.append(Text.assemble(("what to do: ", "bold"), style.flat(join.error.workaround)))
    return lines


_NAMED = 3


def _figures(status: SubTaskStatus) -> tuple[RenderableType, ...]:
    """Unit, progress, rows, rows/s, lag, activity."""
    unit = unit_word(status.unit) if status.unit else "–"
    activity = style.cell(status.waiting_for, "dim")
    if status.HasField("load"):
        load = status.load
        progress = load.progress or format.percent(format.share(load.finished_rows, load.total_rows))
        left = f", {format.duration(load.eta_seconds)} left" if load.eta_seconds else ""
        rows = f"{format.rows(load.finished_rows)} / {format.rows(max(load.finished_rows, load.total_rows))}"
        return unit, progress + left, rows, format.rate(load.rows_per_second), "–", activity
    if status.HasField("sync"):
        sync = status.sync
        lag = "–" if unknown_progress(status) else format.duration(lag_seconds(sync))
        return unit, _reached(status, sync), format.rows(sync.total_rows), format.rate(sync.recent_rps), lag, activity
    return unit, "–", "–", "–", "–", activity


def _reached(status: SubTaskStatus, sync: SyncStatus) -> Text:
    if status.stage == common_pb2.STAGE_FINISHED:
        return Text(f"✓ ended at {sync.syncer_binlog}", style="green")
    unknown = unknown_progress(status)
    if unknown:
        return style.cell(f"unknown: {unknown}", "yellow")
    if sync.synced:
        return Text("✓ synced", style="green")
    if sync.held_keys and not sync.bytes_behind:
        return Text(f"{format.rows(sync.held_keys)} key(s) held", style="yellow")
    return Text(f"{format.size(sync.bytes_behind)} not applied", style="yellow")


def _reports(answer: pb.QueryStatusResponse) -> list[RenderableType]:
    """The results of the subtasks that have copied their tables and are finished."""
    parts: list[RenderableType] = []
    for source, status in subtasks(answer):
        if status.stage == common_pb2.STAGE_FINISHED:
            parts += _snapshot(source, status)
    return parts


def _snapshot(source: str, status: SubTaskStatus) -> list[RenderableType]:
    """The tables of the subtask's snapshot, if it has one."""
    if not status.HasField("load"):
        return []
    return [style.heading(f"Snapshot of {style.flat(status.name)} on {style.flat(source)}"), _tables(status.load)]


def _more(part: pb.SourceSubTasks) -> list[RenderableType]:
    source = part.source_status.source
    parts: list[RenderableType] = []
    if part.source_status.HasField("relay_status"):
        relay = part.source_status.relay_status
        parts += [style.heading(f"Relay of {style.flat(source)}"), _relay(relay)]
        limits = (relay.task_pause, relay.relay_pause)
        parts += [style.cell(limit.text, "dim") for limit in limits if limit.text]
    for status in part.sub_task_status:
        parts += _snapshot(source, status)
        if status.HasField("sync"):
            parts += [
                style.heading(f"Replicate of {style.flat(status.name)} on {style.flat(source)}"),
                *_sync(status.sync),
            ]
    return parts


def _relay(relay: RelayStatus) -> RenderableType:
    made = style.table("stage", "source at", "relay at", "caught up", "on disk", right=("on disk",))
    made.add(
        style.stage(stage_word(relay.stage), failed=relay.HasField("result")),
        relay.master_binlog_gtid or relay.master_binlog,
        relay.relay_binlog_gtid or relay.relay_binlog,
        _caught_up(relay),
        format.size(relay.bytes_on_disk),
    )
    return made


def _caught_up(relay: RelayStatus) -> Text:
    if relay.unknown:
        return style.cell(f"unknown: {relay.unknown}", "yellow")
    return Text("yes", style="green") if relay.relay_catch_up_master else Text("not yet", style="yellow")


def _tables(load: LoadStatus) -> RenderableType:
    right = ("rows", "share", "bytes", "chunks", "work")
    made = style.table("shard table", "target table", *right, right=right)
    for table in load.tables:
        made.add(
            style.cell(table.source_table),
            table.target_table,
            f"{format.rows(table.finished_rows)} / {format.rows(max(table.finished_rows, table.total_rows))}",
            format.percent(format.share(table.finished_rows, table.total_rows)),
            format.size(table.finished_bytes),
            f"{table.finished_chunks} / {table.total_chunks}",
            format.duration(table.seconds),
        )
    return made


def _sync(sync: SyncStatus) -> list[RenderableType]:
    places = Text.assemble(
        ("source at ", "dim"),
        style.flat(sync.master_binlog_gtid or sync.master_binlog),
        ("   applied to ", "dim"),
        style.flat(sync.syncer_binlog_gtid or sync.syncer_binlog),
        *((("   ends at ", "dim"), style.flat(sync.stop_at)) if sync.stop_at else ()),
    )
    right = ("lane", "for", "rows", "rows/s", "lag", "oldest", "backlog")
    made = style.table("lane", "phase", "for", "rows", "rows/s", "lag", "oldest", "backlog", "waits for", right=right)
    for lane in sync.lanes:
        made.add(
            style.cell(str(lane.lane)),
            lane.phase,
            format.duration(lane.phase_seconds),
            format.rows(lane.rows),
            format.rate(lane.recent_rps),
            "–" if lane.unknown else format.duration(lane.lag_ms / 1000),
            format.duration(lane.oldest_ms / 1000) if lane.oldest_ms else "–",
            "unknown" if lane.unknown else format.size(lane.bytes_behind),
            style.cell(lane.waits_for, "yellow" if lane.HasField("error") else "dim"),
        )
    retried = [
        style.cell(f"lane {lane.lane}, attempt {lane.attempt} after: {lane.error.message}", "yellow")
        for lane in sync.lanes
        if lane.HasField("error")
    ]
    blocking = [style.cell(f"blocking DDL: {ddl}", "yellow") for ddl in sync.blocking_ddls]
    held = [style.cell(f"{sync.held_keys} key(s) held: quarantine list", "yellow")] if sync.held_keys else []
    return [places, *blocking, *held, made, *retried]
