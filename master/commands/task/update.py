"""update-task: changes tables, routes and settings of a running task."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf import json_format

from shardmerge.master.ddl_lock.records import open_locks, shard_mode_name
from shardmerge.master.precheck.precheck import check_subtasks
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.compose import all_with_source_settings
from shardmerge.master.workers.wait import Goal, Waiter
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.config.secrets.sealed import as_comparable
from shardmerge.proto.config.task.task_file import TaskFile, parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto
from shardmerge.proto.worker_pb2 import TableChange

_TABLES = (
    "blockAllowList",
    "routes",
    "columnMappings",
    "references",
    "noReferences",
    "caseSensitive",
    "transforms",
)
"""The keys whose changes the list of tables shows already."""
_CHANGEABLE = (
    *_TABLES,
    "snapshot",
    "replicate",
    "ignoreCheckingItems",
    "shardMode",
    "eventFilters",
    "sourceFilters",
    "expressionFilters",
    "autoIncrement",
    "partitions",
    "extractInKey",
)
_UNSHOWN = frozenset({"target.password", "target.tls.caContent", "target.tls.certContent", "target.tls.keyContent"})
_FILE_KEYS = {
    "eventFilters": "filters",
    "expressionFilters": "expression-filter",
    "sourceFilters": "filters (of the source's file)",
    "onlineDdl.shadowTables": "shadow-table-rules",
    "onlineDdl.trashTables": "trash-table-rules",
    "mode": "task-mode",
    "deriveCascades": "cascades",
    "start": "meta",
    "startAt": "start-time",
    "replicate.quarantine": "replicate.on-row-error",
    "replicate.lanes": "replicate.lanes",
    "replicate.safeMode": "syncers.safe-mode",
    "target.tls.ca": "target-database.security.ssl-ca",
    "target.tls.cert": "target-database.security.ssl-cert",
    "target.tls.key": "target-database.security.ssl-key",
    "target.tls.caContent": "target-database.security.ssl-ca-bytes",
    "target.tls.certContent": "target-database.security.ssl-cert-bytes",
    "target.tls.keyContent": "target-database.security.ssl-key-bytes",
    "target.tls.allowedCn": "target-database.security.cert-allowed-cn",
    "target.allowPublicKeyRetrieval": "target-database.security.allow-public-key-retrieval",
}
"""Fields of a subtask's configuration, several of which come from one key of the task file or from one of several
blocks."""
_FILE_VALUES = {
    "replicate.quarantine": {"": "pause", "False": "pause", "True": "quarantine"},
    "deriveCascades": {"": "refuse", "False": "refuse", "True": "derive"},
}
_ENUM = re.compile(r"(?:SHARD_MODE|TASK_MODE|AUTO_INCREMENT|EXTRACT_IN_KEY|PARTITIONS)_([A-Z_]+)")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def settings_changed(before: config.SubTaskConfig, after: config.SubTaskConfig) -> tuple[pb.SettingChange, ...]:
    """The settings, except rules, whose values differ, including those of the connection to the target. Pure.

    Raises UPDATE_FIXED for what a running task cannot change.
    """
    old, new = (flat(json_format.MessageToDict(as_comparable(one))) for one in (before, after))
    changes: list[pb.SettingChange] = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key, ""), new.get(key, "")
        if was == now or key.split(".")[0] in _TABLES:
            continue
        if key in _UNSHOWN or "password" in key.lower():
            was = now = "(not shown)"
        else:
            was, now = _file_value(key, was), _file_value(key, now)
        name = _file_key(key)
        if key.split(".")[0] not in _CHANGEABLE and not key.startswith(_RECONNECT):
            raise errors.master.UPDATE_FIXED(
                task=before.task, key=name, before=was or "not set", after=now or "not set"
            )
        changes.append(pb.SettingChange(key=name, before=was, after=now))
    return tuple(changes)


def _file_key(path: str) -> str:
    """The key of the task file for the field at ``path`` of a subtask's configuration as JSON, ``snapshot.threads``."""
    known = _FILE_KEYS.get(path)
    if known is not None:
        return known
    if path.startswith("target."):
        path = f"target-database.{path.removeprefix('target.')}"
    return _HUMP.sub("-", path).lower()


def _file_value(path: str, text: str) -> str:
    """The value of the field as the task file writes it."""
    values = _FILE_VALUES.get(path)
    if values is not None:
        return values.get(text, text)
    found = _ENUM.fullmatch(text)
    if found is not None:
        return "" if found[1] == "UNSPECIFIED" else found[1].lower().replace("_", "-")
    return {"True": "true", "False": "false"}.get(text, text)


def check_shard_mode(subtasks: Iterable[config.SubTaskConfig], state: State) -> None:
    """Check that the shard mode may change to that of ``subtasks``: parked tables were parked by the rules of the
    previous mode. Pure. Raises UPDATE_SHARD_MODE."""
    for after in subtasks:
        before = state.subtasks[after.task, after.source_id].value.config
        locks = open_locks(after.task, state)
        if before.shard_mode != after.shard_mode and locks:
            raise errors.master.UPDATE_SHARD_MODE(
                task=after.task,
                before=shard_mode_name(before),
                after=shard_mode_name(after),
                locks=", ".join(locks),
            )


_RECONNECT = ("target.user", "target.password", "target.tls.")
"""The beginnings of these keys. The way to connect to the target and to verify it may change, but not the server: the
checkpoints are there, and the new login reads them before anything is stored."""


def flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """A message's JSON without nesting: values by their paths."""
    found: dict[str, str] = {}
    for key, content in value.items():
        if isinstance(content, Mapping):
            found |= flat(content, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            found[f"{prefix}{key}"] = str(content)
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subtasks with their new configuration, in the order of the file."""

    file: TaskFile
    subtasks: tuple[config.SubTaskConfig, ...]
    absent: tuple[str, ...]


def select(file: TaskFile, state: State) -> Wanted:
    """The subtasks to update. Pure. Raises TASK_UNKNOWN, UPDATE_SOURCES, UPDATE_FULL."""
    present = state.known_sources(file.name)
    gone = [source for source in present if source not in file.source_ids]
    if gone:
        raise errors.master.UPDATE_SOURCES(task=file.name, sources=", ".join(gone))
    subtasks = all_with_source_settings(file.to_subtasks(), state)
    if any(one.mode == config.TASK_MODE_FULL for one in subtasks):
        raise errors.master.UPDATE_FULL(task=file.name)
    return Wanted(
        file,
        tuple(one for one in subtasks if one.source_id in present),
        tuple(one.source_id for one in subtasks if one.source_id not in present),
    )


@dataclass(frozen=True, slots=True)
class UpdateCommand:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def update(self, request: pb.UpdateTaskRequest) -> pb.UpdateTaskResponse:
        """Report what the file changes for the running task; unless it is a dry run, check it and store it."""
        file = parse_task(request.file.content, request.file.name)
        state = self.store.read()
        wanted = select(file, state)
        check_shard_mode(wanted.subtasks, state)
        parts = self.preview(wanted, state)
        notes = (*absent_notes(wanted), *file.notes)
        if request.dry_run:
            refused = () if request.move_tables else move_note(parts)
            return answer_of(parts, (*refused, *rename_note(parts), *notes), dry_run=True)
        if not request.move_tables:
            check_no_moves(file.name, parts)
        if refused := [part for part in parts if not part.result]:
            # Nothing is stored for the other sources either, so the answer has no results of theirs.
            return answer_of(refused, notes, dry_run=False)
        # A joining table whose key exists already stops alone; the keys of the other tables are known.
        checks = check_subtasks(wanted.subtasks, state, self.workers, self.check_seconds, as_recorded=True, keys=False)
        if checks.failed:
            refusal = str(errors.master.PRECHECK_FAILED(task=file.name, count=checks.failed))
            return pb.UpdateTaskResponse(
                result=False, msg=refusal, check_result=checks.failures_and_warnings(), checks_passed=checks.passed
            )
        with self.store.deciding() as now:
            # The checks took time: select again from the current records.
            wanted = select(file, now)
            check_shard_mode(wanted.subtasks, now)
            records = [_record(one, now) for one in wanted.subtasks]
            revision = self.store.update_subtasks(task_record(file, request.file.name, now), records, now)
        # A paused task stays paused: the update takes effect when it is resumed.
        running = [
            (one.config.task, one.config.source_id) for one in records if one.expected == common_pb2.STAGE_RUNNING
        ]
        by_source = {result.source: result for result in self.waiter.subtasks(Goal.RUNNING, running, revision)}
        add_results(parts, by_source)
        answer = answer_of(parts, notes, dry_run=False)
        answer.check_result.extend(checks.failures_and_warnings())
        answer.checks_passed = checks.passed
        return answer

    def preview(self, wanted: Wanted, state: State) -> list[pb.SourceUpdate]:
        """The changes at each source; its workers are asked in parallel. Raises UPDATE_FIXED."""
        name = wanted.file.name
        settings = {
            one.source_id: settings_changed(state.subtasks[name, one.source_id].value.config, one)
            for one in wanted.subtasks
        }

        def ask(subtask: config.SubTaskConfig) -> pb.SourceUpdate:
            source = subtask.source_id
            part = pb.SourceUpdate(result=True, source=source, worker=state.bound_name(source))
            part.settings.extend(settings[source])
            try:
                seen = self.workers.preview_update(
                    state.holder_of(source), state.sources[source].value.config, subtask, self.check_seconds
                )
                part.tables.extend(seen.tables)
                refused = [table for table in seen.tables if table.kind == TableChange.REMAPS]
                if refused:
                    raise errors.replicate.UPDATE_REMAPS(
                        source=source, table=refused[0].source_table, target=refused[0].before
                    )
                if seen.HasField("refusal"):
                    raise error_from_proto(seen.refusal)
            except ShardmergeError as error:
                part.result, part.msg = False, str(error)
                part.error.CopyFrom(error_to_proto(error))
            return part

        return self.workers.for_each(wanted.subtasks, ask)


def _record(subtask: config.SubTaskConfig, state: State) -> state_pb.SubTaskRecord:
    record = state_pb.SubTaskRecord()
    record.CopyFrom(state.subtasks[subtask.task, subtask.source_id].value)
    record.config.CopyFrom(subtask)
    record.update_token = uuid.uuid4().hex
    return record


def task_record(file: TaskFile, file_name: str, state: State) -> state_pb.TaskRecord:
    """The task's record with the new file; its sources stay the same."""
    record = state_pb.TaskRecord()
    record.CopyFrom(state.tasks[file.name].value)
    record.file_name, record.yaml = file_name, file.text
    return record


def add_results(parts: Iterable[pb.SourceUpdate], by_source: Mapping[str, pb.SourceResult]) -> None:
    """Add to ``parts`` whether the subtasks run again. A subtask that was paused stays so."""
    for part in parts:
        result = by_source.get(part.source)
        if result is None:
            part.msg = "paused: takes effect with resume-task"
            continue
        part.result, part.msg, part.worker = result.result, result.msg, result.worker
        if result.HasField("error"):
            part.error.CopyFrom(result.error)


def rename_note(parts: Iterable[pb.SourceUpdate]) -> tuple[str, ...]:
    """That one target table could be renamed instead of copied, if that is all that changes. Pure."""
    changes = [table for part in parts for table in part.tables]
    pairs = {(table.before, table.after) for table in changes}
    moves = all(table.kind == TableChange.MOVES for table in changes)
    if len(pairs) != 1 or not moves or any(part.settings for part in parts):
        return ()
    [(before, after)] = pairs
    return (
        f"Without a copy: update-task --rename-target renames {before} to {after} at the target, if all shard tables "
        f"of {before} move.",
    )


def check_no_moves(task: str, parts: Iterable[pb.SourceUpdate]) -> None:
    """Check that no shard table gets another target: a wrong name in the routes would copy everything elsewhere, and
    leave the table that is in use as it is. Pure. Raises UPDATE_MOVES."""
    moves = _moves(parts)
    if moves:
        source, table = moves[0]
        raise errors.master.UPDATE_MOVES(
            task=task,
            count=len(moves),
            source=source,
            table=table.source_table,
            before=table.before,
            after=table.after,
        )


def move_note(parts: Iterable[pb.SourceUpdate]) -> tuple[str, ...]:
    """What an update without a dry run would refuse (:func:`check_no_moves`). Pure."""
    moves = _moves(parts)
    if not moves:
        return ()
    return (
        f"{len(moves)} shard table(s) get another target table, which copies their history again: update-task refuses "
        "this without --move-tables.",
    )


def _moves(parts: Iterable[pb.SourceUpdate]) -> list[tuple[str, TableChange]]:
    return [(part.source, table) for part in parts for table in part.tables if table.kind == TableChange.MOVES]


def absent_notes(wanted: Wanted) -> tuple[str, ...]:
    return tuple(
        f"source {source} does not run this task yet: start-task with this file begins it there"
        for source in wanted.absent
    )


def answer_of(parts: Iterable[pb.SourceUpdate], notes: Iterable[str], *, dry_run: bool) -> pb.UpdateTaskResponse:
    parts = list(parts)
    failures = tuple(part.msg for part in parts if not part.result)[:1]
    return pb.UpdateTaskResponse(
        result=not failures, msg="\n".join((*failures, *notes)), sources=parts, dry_run=dry_run
    )
