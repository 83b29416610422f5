"""The answer to `query-status <task>` as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import figures, look
from ctl.progress import lag_seconds, problems
from ctl.words import stage_word, unit_word
from proto import common_pb2
from proto import master_pb2 as pb
from proto.worker_pb2 import LoadStatus, RelayStatus, SubTaskStatus, SyncStatus


def detail(answer: pb.QueryStatusResponse, *, more: bool = False) -> RenderableType:
    """One row per subtask, then every error in full; ``more``: positions, relay, tables and lanes too."""
    made = look.table(
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
            made.add_row(
                look.cell(status.name, "bold"),
                look.cell(part.source_status.source, "bold"),
                look.cell(part.source_status.worker or "–"),
                look.stage(stage_word(status.stage), failed=len(status.result.errors) > 0),
                *_figures(status),
            )
        if not part.sub_task_status:
            made.add_row(
                look.cell("–"),
                look.cell(part.source_status.source, "bold"),
                look.cell(part.source_status.worker or "–"),
                look.outcome(result=part.result) if not part.result else Text("no task", style="dim"),
            )
    parts: list[RenderableType] = [made] if answer.sources else [Text("There is no subtask.", style="dim")]
    parts += [look.problem(problem.report, problem.where) for problem in problems(answer)]
    for part in answer.sources:
        for status in part.sub_task_status:
            if status.HasField("join"):
                parts += _join(part.source_status.source, status)
    if not more:
        parts += _reports(answer)
    if more:
        for part in answer.sources:
            parts += _more(part)
    return Group(*parts)


def _join(source: str, status: SubTaskStatus) -> list[RenderableType]:
    """The tables that are joining a subtask: how far they are."""
    join = status.join
    match join.phase:
        case "copying":
            load = join.load
            far = f"copying, {load.progress}, {figures.rows(load.finished_rows)} rows"
            if load.eta_seconds:
                far += f", {figures.duration(load.eta_seconds)} left"
        case "following":
            far = f"copied, {figures.size(join.bytes_behind)} behind"
        case "failed":
            again = f"; tried again in {figures.duration(join.retry_seconds)}" if join.retry_seconds else ""
            far = f"failed: [{join.error.code} {join.error.name}] {join.error.message}{again}"
        case phase:
            far = phase
    names = ", ".join(join.tables[:_NAMED]) + (f" and {len(join.tables) - _NAMED} more" if join.tables[_NAMED:] else "")
    line = Text.assemble(("joining ", "bold"), f"{look.flat(status.name)} on {look.flat(source)}: {names}: ", far)
    lines: list[RenderableType] = [line]
    if join.HasField("error") and join.error.workaround:
        lines.append(Text.assemble(("what to do: ", "bold"), look.flat(join.error.workaround)))
    return lines


_NAMED = 3


def _figures(status: SubTaskStatus) -> tuple[Text, ...]:
    """Unit, progress, rows, rows/s, lag, doing."""
    unit = look.cell(unit_word(status.unit) if status.unit else "–")
    doing = look.cell(status.waiting_for, "dim")
    if status.HasField("load"):
        load = status.load
        progress = load.progress or figures.percent(figures.share(load.finished_rows, load.total_rows))
        left = f", {figures.duration(load.eta_seconds)} left" if load.eta_seconds else ""
        rows = f"{figures.rows(load.finished_rows)} / {figures.rows(max(load.finished_rows, load.total_rows))}"
        return (
            unit,
            look.cell(progress + left),
            look.cell(rows),
            look.cell(figures.rate(load.rows_per_second)),
            look.cell("–"),
            doing,
        )
    if status.HasField("sync"):
        sync = status.sync
        return (
            unit,
            _reached(status.stage, sync),
            look.cell(figures.rows(sync.total_rows)),
            look.cell(figures.rate(sync.recent_rps)),
            look.cell(figures.duration(lag_seconds(sync))),
            doing,
        )
    return (unit, look.cell("–"), look.cell("–"), look.cell("–"), look.cell("–"), doing)


def _reached(stage: common_pb2.Stage, sync: SyncStatus) -> Text:
    if stage == common_pb2.STAGE_FINISHED:
        return Text(f"✓ ended at {sync.syncer_binlog}", style="green")
    if sync.synced:
        return Text("✓ synced", style="green")
    if sync.held_keys and not sync.bytes_behind:
        return Text(f"{figures.rows(sync.held_keys)} key(s) held", style="yellow")
    return Text(f"{figures.size(sync.bytes_behind)} behind", style="yellow")


def _reports(answer: pb.QueryStatusResponse) -> list[RenderableType]:
    """What the subtasks came to that have copied their tables and are finished."""
    parts: list[RenderableType] = []
    for part in answer.sources:
        for status in part.sub_task_status:
            if status.stage == common_pb2.STAGE_FINISHED and status.HasField("load"):
                source = part.source_status.source
                parts += [
                    look.heading(f"Snapshot of {look.flat(status.name)} on {look.flat(source)}"),
                    _tables(status.load),
                ]
    return parts


def _more(part: pb.SourceSubTasks) -> list[RenderableType]:
    source = part.source_status.source
    parts: list[RenderableType] = []
    if part.source_status.HasField("relay_status"):
        parts += [look.heading(f"Relay of {look.flat(source)}"), _relay(part.source_status.relay_status)]
    for status in part.sub_task_status:
        if status.HasField("load"):
            parts += [
                look.heading(f"Snapshot of {look.flat(status.name)} on {look.flat(source)}"),
                _tables(status.load),
            ]
        if status.HasField("sync"):
            parts += [
                look.heading(f"Replicate of {look.flat(status.name)} on {look.flat(source)}"),
                *_sync(status.sync),
            ]
    return parts


def _relay(relay: RelayStatus) -> RenderableType:
    made = look.table("stage", "source at", "relay at", "caught up", "on disk", right=("on disk",))
    made.add_row(
        look.stage(stage_word(relay.stage), failed=relay.HasField("result")),
        look.cell(relay.master_binlog_gtid or relay.master_binlog),
        look.cell(relay.relay_binlog_gtid or relay.relay_binlog),
        Text("yes", style="green") if relay.relay_catch_up_master else Text("not yet", style="yellow"),
        look.cell(figures.size(relay.bytes_on_disk)),
    )
    return made


def _tables(load: LoadStatus) -> RenderableType:
    right = ("rows", "share", "bytes", "chunks", "work")
    made = look.table("shard table", "target table", *right, right=right)
    for table in load.tables:
        made.add_row(
            look.cell(table.source_table),
            look.cell(table.target_table),
            look.cell(
                f"{figures.rows(table.finished_rows)} / {figures.rows(max(table.finished_rows, table.total_rows))}"
            ),
            look.cell(figures.percent(figures.share(table.finished_rows, table.total_rows))),
            look.cell(figures.size(table.finished_bytes)),
            look.cell(f"{table.finished_chunks} / {table.total_chunks}"),
            look.cell(figures.duration(table.seconds)),
        )
    return made


def _sync(sync: SyncStatus) -> list[RenderableType]:
    places = Text.assemble(
        ("source at ", "dim"),
        look.flat(sync.master_binlog_gtid or sync.master_binlog),
        ("   applied to ", "dim"),
        look.flat(sync.syncer_binlog_gtid or sync.syncer_binlog),
        *((("   ends at ", "dim"), look.flat(sync.stop_at)) if sync.stop_at else ()),
    )
    right = ("lane", "for", "rows", "rows/s", "lag", "oldest", "behind")
    made = look.table("lane", "phase", "for", "rows", "rows/s", "lag", "oldest", "behind", "waits for", right=right)
    for lane in sync.lanes:
        made.add_row(
            look.cell(str(lane.lane)),
            look.cell(lane.phase),
            look.cell(figures.duration(lane.phase_seconds)),
            look.cell(figures.rows(lane.rows)),
            look.cell(figures.rate(lane.recent_rps)),
            look.cell(figures.duration(lane.lag_ms / 1000)),
            look.cell(figures.duration(lane.oldest_ms / 1000) if lane.oldest_ms else "–"),
            look.cell(figures.size(lane.bytes_behind)),
            look.cell(lane.waits_for, "yellow" if lane.HasField("error") else "dim"),
        )
    retried = [
        look.cell(f"lane {lane.lane}, attempt {lane.attempt} after: {lane.error.message}", "yellow")
        for lane in sync.lanes
        if lane.HasField("error")
    ]
    blocking = [look.cell(f"blocking DDL: {ddl}", "yellow") for ddl in sync.blocking_ddls]
    held = [look.cell(f"{sync.held_keys} key(s) held: quarantine list", "yellow")] if sync.held_keys else []
    return [places, *blocking, *held, made, *retried]
