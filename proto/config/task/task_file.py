"""Reads task files, in TiDB DM's format: what is merged from which sources into which target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardmerge.proto import common_pb2
from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config import defaults
from shardmerge.proto.config.database import database_notes
from shardmerge.proto.config.document.file_model import validate
from shardmerge.proto.config.document.notes import notes_of
from shardmerge.proto.config.document.repair import RepairedModel, repaired
from shardmerge.proto.config.document.yaml_file import Document, read
from shardmerge.proto.config.finding import ConfigFinding, error_of
from shardmerge.proto.config.position import start_at, stop_at
from shardmerge.proto.config.rules.rule_model import AUTO_INCREMENTS, EXTRACT_IN_KEY
from shardmerge.proto.config.stored_text import OF_TASK, stored_text
from shardmerge.proto.config.task.blocks import Mydumper, Syncer
from shardmerge.proto.config.task.cross_checks import check_task
from shardmerge.proto.config.task.instance import Instance, Meta
from shardmerge.proto.config.task.model import TaskModel
from shardmerge.proto.errors import config

_MODES = {
    "full": pb.TASK_MODE_FULL,
    "incremental": pb.TASK_MODE_INCREMENTAL,
    "all": pb.TASK_MODE_ALL,
}
_SHARD_MODES = {
    "": pb.SHARD_MODE_NONE,
    "pessimistic": pb.SHARD_MODE_PESSIMISTIC,
    "optimistic": pb.SHARD_MODE_OPTIMISTIC,
}


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A valid task file.

    ``notes``: accepted keys that have another effect here, one line each. ``text``: the file as it is stored, its
    password encrypted when this process has a key. ``start_time``, ``stop_at``: set outside the file, for all of its
    sources; they win over the file's values; "" for none. ``start_notes``: (source, note) about the first start.
    """

    model: TaskModel
    notes: tuple[str, ...]
    text: str = field(repr=False)
    environ: Mapping[str, str] | None = field(repr=False)
    start_time: str = ""
    stop_at: str = ""
    start_notes: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The task's sources, in the order of the file."""
        return tuple(instance.source_id for instance in self.model.mysql_instances)

    def to_subtasks(self) -> tuple[pb.SubTaskConfig, ...]:
        """One configuration per source, in the order of the file."""
        return tuple(self._subtask(instance) for instance in self.model.mysql_instances)

    def _subtask(self, instance: Instance) -> pb.SubTaskConfig:
        task = self.model
        list_name = instance.block_allow_list or instance.black_white_list
        incremental = task.task_mode == "incremental"
        subtask = pb.SubTaskConfig(
            task=task.name,
            source_id=instance.source_id,
            mode=_MODES[task.task_mode],
            meta_schema=task.meta_schema,
            target=_target(task, self.environ),
            case_sensitive=task.case_sensitive,
            start=_start(instance.meta if incremental and not self.start_time else None),
            routes=[task.routes[name].to_proto(name) for name in instance.route_rules],
            column_mappings=[task.column_mappings[name].to_proto(name) for name in instance.column_mapping_rules],
            references=[reference.to_proto() for reference in task.references],
            no_references="references" in task.model_fields_set and not task.references,
            event_filters=[task.filters[name].to_proto(name) for name in instance.filter_rules],
            expression_filters=[task.expression_filter[name].to_proto(name) for name in instance.expression_filters],
            transforms=[task.transforms[name].to_proto(name) for name in instance.transform_rules],
            snapshot=_snapshot(task, instance),
            load=pb.LoadConfig(
                defer_indexes=task.load.defer_indexes != "never", defer_existing=task.load.defer_indexes == "empty"
            ),
            replicate=_replicate(task, instance),
            ignore_checking_items=task.ignore_checking_items,
            shard_mode=_SHARD_MODES[task.shard_mode or ("pessimistic" if task.is_sharding else "")],
            online_ddl=_online_ddl(task),
            auto_increment=AUTO_INCREMENTS[task.auto_increment],
            partitions=pb.PARTITIONS_KEEP if task.partitions == "keep" else pb.PARTITIONS_DROP,
            derive_cascades=task.cascades == "derive",
            extract_in_key=EXTRACT_IN_KEY[task.extract_in_key],
        )
        if list_name:
            subtask.block_allow_list.CopyFrom(task.block_allow_lists()[list_name].to_proto(list_name))
        begins = self.start_time or (instance.meta.start_at if instance.meta is not None else "")
        if incremental and begins:
            subtask.start_at.CopyFrom(start_at(begins))
        ends = self.stop_at or instance.stop_at
        if ends:
            subtask.stop_at.CopyFrom(stop_at(ends))
        return subtask


def with_ends(file: TaskFile, start_time: str, stop_at_text: str) -> TaskFile:
    """``file`` with a start and an end from outside the file, "" for none.

    Raises START_UNREADABLE, STOP_UNREADABLE, START_OF_SNAPSHOT, STOP_OF_FULL.
    """
    mode = file.model.task_mode
    if start_time:
        start_at(start_time)
        if mode != "incremental":
            raise config.START_OF_SNAPSHOT(task=file.name, mode=mode)
    if stop_at_text:
        stop_at(stop_at_text)
        if mode == "full":
            raise config.STOP_OF_FULL(task=file.name)
    notes = () if start_time else file.start_notes
    return replace(file, start_time=start_time, stop_at=stop_at_text, start_notes=notes)


def parse_task(text: str, file_name: str, environ: Mapping[str, str] | None = os.environ) -> TaskFile:
    """Read a task file.

    ``environ`` resolves a password written as ``${NAME}``; None leaves the reference as it is. Raises
    ``config.NOT_YAML``, ``config.INVALID``, ``config.NOT_SUPPORTED``, ``config.SECRET_MISSING``,
    ``config.VARIABLE_NOT_ALLOWED`` or ``config.HOST_NOT_ALLOWED``.
    """
    document = read(text, file_name)
    model, findings = check_file(document, environ)
    problem = error_of(findings)
    if problem is not None:
        raise problem
    if model is None:
        raise config.INVALID(finding=file_name, more="")
    kept = stored_text(document, text, OF_TASK)
    return TaskFile(model, notes_of_task(document, model), kept, environ, start_notes=start_notes(document, model))


def check_file(document: Document, environ: Mapping[str, str] | None) -> tuple[TaskModel | None, list[ConfigFinding]]:
    """The model of a task file, and every finding. Pure."""
    model, findings = validate(document, TaskModel)
    whole = repaired(document, TaskModel) if model is None else RepairedModel(model)
    return model, findings if whole is None else [*findings, *check_task(document, whole, environ)]


def notes_of_task(document: Document, model: TaskModel) -> tuple[str, ...]:
    """Notes on accepted keys that have another effect here than in DM, and on missing settings."""
    return (
        *notes_of(document, TaskModel),
        *database_notes(document, ("target-database",), model.target_database),
        *_meta_notes(document, model),
        *_instance_number_notes(document, model),
    )


def start_notes(document: Document, model: TaskModel) -> tuple[tuple[str, str], ...]:
    """(source, note) of the sources whose first start is not set in the file."""
    return tuple(
        (
            instance.source_id,
            f"line {document.line(('mysql-instances', index, 'source-id'))}: source {instance.source_id} has no meta: "
            "without a checkpoint it starts at its newest position",
        )
        for index, instance in enumerate(model.mysql_instances)
        if model.task_mode == "incremental" and instance.meta is None
    )


def _meta_notes(document: Document, task: TaskModel) -> tuple[str, ...]:
    notes: list[str] = []
    for index, instance in enumerate(task.mysql_instances):
        if task.task_mode != "incremental" and instance.meta is not None:
            line = document.line(("mysql-instances", index, "meta"))
            notes.append(f"line {line}: meta: no effect with task-mode: {task.task_mode}")
    return tuple(notes)


def _instance_number_notes(document: Document, task: TaskModel) -> tuple[str, ...]:
    """Sources that share an instance number: correct only if schema or table numbers distinguish them."""
    sources: dict[str, list[str]] = {}
    for instance in task.mysql_instances:
        rules = [task.column_mappings[name] for name in instance.column_mapping_rules if name in task.column_mappings]
        for number in dict.fromkeys(rule.arguments[0] for rule in rules if rule.expression == "partition id"):
            sources.setdefault(number.lstrip("0"), []).append(instance.source_id)
    line = document.line(("column-mappings",))
    return tuple(
        f"line {line}: column-mappings: sources {', '.join(names)} share the instance number {number or '0 or none'} "
        "in partition id: no schema and table number may occur at two of them"
        for number, names in sources.items()
        if len(names) > 1
    )


def _online_ddl(task: TaskModel) -> pb.OnlineDdl | None:
    if not task.online_ddl and not task.online_ddl_scheme:
        return None
    return pb.OnlineDdl(
        shadow_tables=task.shadow_table_rules or defaults.SHADOW_TABLES,
        trash_tables=task.trash_table_rules or defaults.TRASH_TABLES,
    )


def _start(meta: Meta | None) -> common_pb2.SourcePosition:
    if meta is None:
        return common_pb2.SourcePosition()
    # A binlog file's events begin after its 4 bytes of magic (MySQL internals, "Binary Log Files").
    pos = max(meta.binlog_pos, 4) if meta.binlog_name else 0
    return common_pb2.SourcePosition(file=meta.binlog_name, pos=pos, gtid_set=meta.binlog_gtid)


def _target(task: TaskModel, environ: Mapping[str, str] | None) -> pb.Endpoint:
    endpoint = task.target_database.to_proto(environ)
    endpoint.strict_collations = task.collation_compatible == "strict"
    return endpoint


def _snapshot(task: TaskModel, instance: Instance) -> pb.SnapshotConfig:
    own = task.snapshot
    block = instance.mydumper or task.mydumpers.get(instance.mydumper_config_name) or Mydumper()
    return pb.SnapshotConfig(
        threads=own.threads or instance.mydumper_thread or block.threads,
        chunk_rows=own.chunk_rows or block.rows or defaults.CHUNK_ROWS,
        position=own.position,
        rows_per_second=own.rows_per_second or 0,
        bytes_per_second=own.bytes_per_second or 0,
        max_threads_running=own.max_threads_running or 0,
        max_replica_lag=own.max_replica_lag or 0,
    )


def _replicate(task: TaskModel, instance: Instance) -> pb.ReplicateConfig:
    own = task.replicate
    block = instance.syncer or task.syncers.get(instance.syncer_config_name) or Syncer()
    workers = instance.syncer_thread or block.worker_count
    return pb.ReplicateConfig(
        lanes=own.lanes or (min(workers, defaults.MAX_LANES_FROM_SYNCER) if workers else defaults.LANES),
        batch_rows=own.batch_rows or block.batch or defaults.BATCH_ROWS,
        batch_bytes=own.batch_bytes or defaults.BATCH_BYTES,
        safe_mode=block.safe_mode,
        quarantine=own.on_row_error == "quarantine",
    )
