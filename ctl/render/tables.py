"""Answers as rich tables for a terminal; pure: the same answer gives the same renderable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.dm_words import change_word, check_word
from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.render import format
from shardmerge.ctl.render import style as look
from shardmerge.ctl.verdict import Answer, source_failures
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2

_CHECK_STYLES = {"success": "green", "warn": "yellow", "fail": "bold red"}
_CHECK_MARKS = {"success": "✓ pass", "warn": "! warn", "fail": "✗ fail"}


def operate_source(answer: pb.OperateSourceResponse) -> RenderableType:
    """Sources with the workers they are bound to."""
    if not answer.sources and answer.result:
        return Text("There is no source yet: dmctl operate-source create <file>", style="dim")
    parts: list[RenderableType] = []
    if answer.changes:
        made = look.table("source", "key", "before", "after", "takes effect")
        for change in answer.changes:
            made.add(change.source, change.key, change.before or "–", change.after or "–", change.effect)
        parts.append(made)
    if answer.dry_run:
        parts.append(Text("This was a dry run: nothing was changed.", style="dim"))
    # Of operate-source show: the command has succeeded, and the source cannot be used.
    unusable = [
        look.problem(ErrorReport.of_detail(one.error), f"source {one.source}")
        for one in answer.sources
        if one.result and one.HasField("error")
    ]
    return Group(*parts, _by_source(answer, answer.sources), *unusable)


def transfer_source(answer: pb.TransferSourceResponse) -> RenderableType:
    """The source with the worker that has it now."""
    return _by_source(answer, answer.sources)


def operate_relay(answer: pb.OperateRelayResponse) -> RenderableType:
    """For each source: the result for its relay log, and how long it may stay paused."""
    return Group(_by_source(answer, answer.sources), *_pause_limits(answer.pause_limits))


def start_task(answer: pb.StartTaskResponse) -> RenderableType:
    """For each source: whether its subtask started; plus the checks that failed or warn."""
    parts: list[RenderableType] = []
    notable = [check for check in answer.check_result if check.state != worker_pb2.CHECK_STATE_PASS]
    if notable:
        parts.append(checks(notable))
    if answer.sources:
        parts.append(_by_source(answer, answer.sources))
    return Group(*parts, *notes(answer.msg))


_CHANGE_STYLES = {"joins": "green", "leaves": "yellow", "moves": "cyan", "refused": "bold red"}


def update_task(answer: pb.UpdateTaskResponse) -> RenderableType:
    """For each source: the tables that join and leave, the settings that change; plus the checks that failed or
    warn."""
    parts: list[RenderableType] = []
    notable = [check for check in answer.check_result if check.state != worker_pb2.CHECK_STATE_PASS]
    if notable:
        parts.append(checks(notable))
    made = look.table("source", "change", "what", "before", "after", "rows to copy", right=("rows to copy",))
    changes = 0
    for part in answer.sources:
        for table in part.tables:
            word = change_word(table.kind)
            copies = table.kind in (worker_pb2.TableChange.JOINS, worker_pb2.TableChange.MOVES)
            made.add(
                part.source,
                Text(word, style=_CHANGE_STYLES.get(word, "magenta")),
                table.source_table,
                table.before or "–",
                table.after or "–",
                f"~{format.rows(table.row_estimate)}" if copies else "–",
            )
        for setting in part.settings:
            made.add(part.source, Text("setting"), setting.key, setting.before or "–", setting.after or "–", "–")
        changes += len(part.tables) + len(part.settings)
    if answer.HasField("rename"):
        parts += _rename(answer.rename, dry_run=answer.dry_run)
    elif changes:
        parts.append(made)
    elif answer.sources and answer.result:
        parts.append(Text("Nothing changes."))
    if answer.dry_run:
        parts.append(Text("This was a dry run: nothing was changed.", style="dim"))
    elif answer.sources:
        parts.append(_by_source(answer, answer.sources))
    return Group(*parts, *problems(answer), *notes(answer.msg))


def _rename(rename: pb.TargetRename, *, dry_run: bool) -> Iterator[RenderableType]:
    """The rename of a target table; nothing is copied."""
    verb = "would be" if dry_run else "is"
    yield Text(f"{rename.before} {verb} renamed to {rename.after}; no row is copied.")
    if rename.mentions:
        yield Text("These name the old table; RENAME TABLE does not change them:")
        yield from (Text(f"  {mention}") for mention in rename.mentions)


def operate_task(answer: pb.OperateTaskResponse) -> RenderableType:
    """For each source: whether its subtask was stopped, paused or resumed."""
    parts: list[RenderableType] = []
    if answer.remaining:
        made = look.table("target table that stays", "rows", "")
        for one in answer.remaining:
            text = "; ".join(
                word
                for word, applies in (("also of another task", one.is_shared), ("lacks indexes", one.lacks_indexes))
                if applies
            )
            made.add(one.target, f"{one.rows}{' or more' if one.at_least else ''}", text)
        parts.append(made)
    parts += _pause_limits(answer.pause_limits)
    return Group(_by_source(answer, answer.sources), *parts, *notes(answer.msg if answer.result else ""))


def _pause_limits(limits: Sequence[worker_pb2.PauseLimit]) -> Iterator[RenderableType]:
    """A sentence for each source."""
    for limit in limits:
        yield Text.assemble((f"{look.flat(limit.source)}: ", "bold"), look.flat(limit.text))


def _by_source(answer: Answer, parts: Sequence[pb.SourceResult | pb.SourceUpdate]) -> RenderableType:
    return Group(_done(parts), *problems(answer)) if parts else Group(*problems(answer))


def _done(parts: Sequence[pb.SourceResult | pb.SourceUpdate]) -> RenderableType:
    """What was done for each source."""
    made = look.table("source", "worker", "result", "message")
    for part in parts:
        text = f"[{part.error.code} {part.error.name}]" if part.HasField("error") else part.msg
        made.add(part.source, part.worker or "–", look.outcome(result=part.result), text)
    return made


def handle_binlog(answer: pb.HandleBinlogResponse) -> RenderableType:
    """The overrides of statements, or the confirmation of a new one."""
    if answer.sources:
        made = look.table("source", "worker", "")
        for one in answer.sources:
            made.add(one.source, one.worker or "–", one.msg)
        return Group(made, look.cell(answer.msg)) if answer.result and answer.msg else made
    parts: list[RenderableType] = []
    if answer.ops:
        made = look.table("source", "position", "op", "statements")
        for op in answer.ops:
            made.add(op.source, op.binlog_pos, op.op, op.sqls or "–")
        parts.append(made)
    if answer.skipped:
        parts.append(_skipped(answer))
    if answer.msg:
        parts.append(look.cell(answer.msg))
    return Group(*parts)


def _skipped(answer: pb.HandleBinlogResponse) -> RenderableType:
    made = look.table("source", "position", "rows of", "skipped", "before", "after", "by", "at")
    for row in answer.skipped:
        made.add(
            row.source,
            row.binlog_pos,
            row.source_table,
            row.operation,
            row.before or "–",
            row.after or row.note or "–",
            row.word,
            format.moment(row.skipped_at),
        )
    more = answer.total_skipped - len(answer.skipped)
    return Group(made, Text(f"and {more} more, in skipped_change of the task's meta schema")) if more else made


def purge_relay(answer: pb.PurgeRelayResponse) -> RenderableType:
    """For each source: what was removed, where the relay log begins now, and why it does not begin later."""
    made = look.table("source", "worker", "result", "removed", "begins at", "remark", right=("removed",))
    for part in answer.sources:
        if part.HasField("error"):
            removed, begin, remark = "–", "–", f"[{part.error.code} {part.error.name}]"
        else:
            segments = f"{part.purged_segments} segment{'s' if part.purged_segments != 1 else ''}"
            removed = f"{segments}, {format.size(part.purged_bytes)}" if part.purged_segments else "nothing"
            begin, remark = part.relay_begin, part.kept or "–"
        made.add(part.source, part.worker or "–", look.outcome(result=part.result), removed, begin, remark)
    return Group(made, *problems(answer))


def problems(answer: Answer) -> list[RenderableType]:
    """Every failure in full; none if there is only one, because stderr shows that one."""
    failures = source_failures(answer)
    if len(failures) < 2:
        return []
    return [
        look.problem(ErrorReport.of_detail(failure.error), failure.where)
        for failure in failures
        if failure.error is not None
    ]


def check_task(answer: pb.CheckTaskResponse, *, max_errors: int = 10, max_warnings: int = 10) -> RenderableType:
    """All checks that failed or warn (up to the limits, the rest counted), the names of those that passed, then a count
    of each state."""
    failed = _in_state(answer.check_result, worker_pb2.CHECK_STATE_FAIL)
    warned = _in_state(answer.check_result, worker_pb2.CHECK_STATE_WARN)
    passed = _in_state(answer.check_result, worker_pb2.CHECK_STATE_PASS)
    parts: list[RenderableType] = []
    shown = [*failed[:max_errors], *warned[:max_warnings]]
    if shown:
        parts.append(checks(shown))
    if passed:
        names = ", ".join(dict.fromkeys(one.name for one in passed))
        parts.append(Text.assemble(("passed: ", "green"), look.cell(names)))
    hidden = len(failed) + len(warned) - len(shown)
    count = Text.assemble(
        (f"{len(passed)} passed", "green"),
        "  ",
        (f"{len(warned)} warned", "yellow" if warned else "dim"),
        "  ",
        (f"{len(failed)} failed", "bold red" if failed else "dim"),
    )
    if hidden:
        count.append(f"  ({hidden} not shown: see --error and --warn)", style="dim")
    parts.append(count)
    return Group(*parts, *notes(answer.msg.partition("\n")[2]))  # the first line is the verdict, counted above


def notes(msg: str) -> list[RenderableType]:
    """The master's additional messages: notes on the task file, one per line.

    A line that is a coded error (``[60307 pre-check-failed] …``) is left to stderr and the tables.
    """
    return [look.cell(f"note: {line}", "yellow") for line in msg.splitlines() if line and not line.startswith("[")]


def _in_state(results: Sequence[worker_pb2.CheckResult], state: worker_pb2.CheckState) -> list[worker_pb2.CheckResult]:
    return [result for result in results if result.state == state]


def checks(results: Sequence[worker_pb2.CheckResult]) -> RenderableType:
    """One row per check, those of several sources with one way out together: the findings, and below them what to
    do."""
    made = look.table("check", "source", "state", "finding")
    alike: dict[tuple[str, str, int, str], list[worker_pb2.CheckResult]] = {}
    for result in results:
        alike.setdefault((check_word(result.state), result.name, result.code, result.instruction), []).append(result)
    for (word, name, code, instruction), group in alike.items():
        style = _CHECK_STYLES.get(word, "magenta")
        messages = dict.fromkeys(result.error_msg or result.desc for result in group)
        finding = Text("\n").join(look.cell(message) for message in messages)
        if code:
            finding = Text.assemble((f"[{code}] ", style), finding)
        if instruction:
            finding = Text.assemble(finding, "\n", ("what to do: ", "bold"), look.cell(instruction))
        made.add(
            name,
            ", ".join(dict.fromkeys(result.source for result in group if result.source)) or "–",
            Text(_CHECK_MARKS.get(word, word), style=style),
            finding,
        )
    return made


def list_member(answer: pb.ListMemberResponse) -> RenderableType:
    """Masters (the leader marked) and workers, each only if requested."""
    parts: list[RenderableType] = []
    masters = list(answer.masters)
    if answer.HasField("leader") and not masters:
        masters = [answer.leader]
    if masters:
        made = look.table("master", "address", "state")
        for member in masters:
            leads = answer.HasField("leader") and member.name == answer.leader.name
            state = look.stage("leader" if leads else "alive" if member.alive else "offline")
            state.stylize("green" if member.alive or leads else "red")
            made.add(member.name, _address(member.addr, insecure=member.insecure), state)
        parts.append(made)
    if answer.workers:
        made = look.table("worker", "address", "state", "source")
        for worker in answer.workers:
            state = look.stage(worker.stage)
            state.stylize({"bound": "green", "free": "cyan", "starting": "yellow"}.get(worker.stage, "red"))
            address = _address(worker.addr, insecure=worker.insecure)
            made.add(worker.name, address, state, worker.source or "–")
        parts.append(Text("") if parts else Text("", end=""))
        parts.append(made)
    if not parts:
        return Text("There is no such member.", style="dim")
    members = [*((f"master {one.name}", one.warnings) for one in masters)]
    members += [(f"worker {one.name}", one.warnings) for one in answer.workers]
    return Group(*parts, *(look.warning(one, name) for name, found in members for one in found))


def _address(address: str, *, insecure: bool) -> Text:
    return look.cell(f"{address} (insecure)", "yellow") if insecure else look.cell(address)


def task_list(answer: pb.QueryStatusResponse) -> RenderableType:
    """query-status without a task: one row per task."""
    if not answer.tasks and answer.result:
        return Text("There is no task yet: dmctl start-task <file>", style="dim")
    has_warnings = any(task.warnings for task in answer.tasks)
    made = look.table("task", "status", "sources", *(["warnings"] if has_warnings else []))
    for task in sorted(answer.tasks, key=lambda task: task.task_name):
        made.add(
            task.task_name,
            look.stage(task.task_status),
            ", ".join(task.sources),
            *([look.cell(", ".join(map(_short_warning, task.warnings)), "yellow")] if has_warnings else []),
        )
    if not has_warnings:
        return made
    return Group(made, Text("\nWarnings: `dmctl query-status TASK` shows them, and what to do.", style="dim"))


def _short_warning(found: pb.TaskWarning) -> str:
    """``binlog-expiring mysql-01 and 2 more``."""
    more = f" and {found.others} more" if found.others else ""
    return f"{found.warning.name} {found.source}{more}"


def held(answer: pb.QuarantineResponse) -> RenderableType:
    """Per source what was done; then the keys that are held."""
    parts = [_done(answer.sources)]
    if answer.keys:
        parts.append(_held_keys(answer))
    more = answer.total_keys - len(answer.keys)
    if more:
        parts.append(Text(f"and {more} more keys, in held_change of the task's meta schema"))
    return Group(*parts, *problems(answer))


def _held_keys(answer: pb.QuarantineResponse) -> RenderableType:
    made = look.table(
        "source", "target table", "key", "changes", "first", "position", "why", "since", right=("changes",)
    )
    for key in answer.keys:
        made.add(
            key.source,
            key.target_table,
            key.key,
            format.rows(key.changes),
            key.operation,
            key.binlog_pos,
            f"[{key.code}] {key.reason}",
            format.moment(key.since),
        )
    return made
