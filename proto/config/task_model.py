"""The keys of a task file: TiDB DM's (docs: "Task Configuration File") and two blocks of our own.

What a key does here when that differs from DM is said by :mod:`proto.config.task_notes`; what is refused
by :mod:`proto.config.task_checks`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from proto.config.database import Database
from proto.config.model import Count, FileModel, OrDefaults, UInt32
from proto.config.point import start_at, stop_at
from proto.config.rule_model import (
    BlockAllow,
    ColumnMapping,
    EventFilter,
    ExpressionFilter,
    Identifier,
    Route,
    Transform,
)
from proto.config.source import SourceId, TaskName
from proto.errors import ShardmergeError

Names = tuple[str, ...]
Blank = dict[str, object]
"""A block whose content is parsed by nobody: it has no effect here, or is refused as a whole."""


def _is_start(text: str) -> str:
    try:
        start_at(text)
    except ShardmergeError as error:
        raise ValueError(error.message) from None
    return text


def _is_stop(text: str) -> str:
    try:
        stop_at(text)
    except ShardmergeError as error:
        raise ValueError(error.message) from None
    return text


class Meta(FileModel):
    """Where incremental starts. ``binlog_pos`` 0: the start of the file. ``start_at``, our own, instead of a place:
    `earliest`, `latest` or a time; all of it answers one question about one source, so it stands in one block."""

    binlog_name: str = ""
    binlog_pos: UInt32 = 0
    binlog_gtid: str = ""
    start_at: Annotated[str, AfterValidator(_is_start)] = ""

    @model_validator(mode="after")
    def _says_where(self) -> Meta:
        if not self.binlog_name and not self.binlog_gtid and not self.start_at:
            raise ValueError("needs binlog-name, binlog-gtid or start-at")
        if self.start_at and (self.binlog_name or self.binlog_gtid):
            raise ValueError("start-at contradicts binlog-name and binlog-gtid")
        return self


class Mydumper(FileModel):
    mydumper_path: str = ""
    threads: Count = 4
    chunk_filesize: str = ""
    statement_size: UInt32 = 0
    rows: UInt32 = 0
    where: str = ""
    skip_tz_utc: bool = True
    extra_args: str = ""


class Loader(FileModel):
    pool_size: UInt32 = 16
    dir: str = ""
    sorting_dir_physical: str = ""
    import_mode: str = ""
    on_duplicate: str = ""
    on_duplicate_logical: str = ""
    on_duplicate_physical: str = ""
    disk_quota_physical: str = ""
    checksum_physical: str = ""
    analyze: str = ""
    range_concurrency: UInt32 = 0
    compress_kv_pairs: str = ""
    pd_addr: str = ""


class Syncer(FileModel):
    """``worker_count`` and ``batch`` are None where the file is silent: our defaults are not DM's."""

    meta_file: str = ""
    worker_count: Count | None = None
    batch: Count | None = None
    queue_size: UInt32 = 0
    checkpoint_flush_interval: UInt32 = 0
    compact: bool = False
    multiple_rows: bool = False
    max_retry: UInt32 = 0
    auto_fix_gtid: bool = False
    enable_gtid: bool = False
    disable_detect: bool = False
    safe_mode: bool = False
    safe_mode_duration: str = ""
    enable_ansi_quotes: bool = False

    @model_validator(mode="after")
    def _safe_mode_lasts(self) -> Syncer:
        if self.safe_mode and self.safe_mode_duration in {"0", "0s"}:
            raise ValueError('safe-mode: true contradicts safe-mode-duration: "0s"')
        return self


class Validator(FileModel):
    mode: Literal["none", "fast", "full"] = "none"
    worker_count: UInt32 = 4
    validate_interval: str = ""
    check_interval: str = ""
    row_error_delay: str = ""
    meta_flush_interval: str = ""
    batch_query_size: UInt32 = 0
    max_pending_row_size: str = ""
    max_pending_row_count: UInt32 = 0


class Instance(FileModel):
    """One entry of ``mysql-instances``: a source of the task and the rules that hold for it.

    ``stop_at``, our own: where replication ends, a place or GTID set of this source, or a time.
    """

    source_id: SourceId
    meta: Meta | None = None
    stop_at: Annotated[str, AfterValidator(_is_stop)] | None = None
    filter_rules: Names = ()
    column_mapping_rules: Names = ()
    route_rules: Names = ()
    expression_filters: Names = ()
    transform_rules: Names = ()
    block_allow_list: str = ""
    black_white_list: str = ""
    mydumper_config_name: str = ""
    mydumper: Mydumper | None = None
    mydumper_thread: UInt32 = 0
    loader_config_name: str = ""
    loader: Loader | None = None
    loader_thread: UInt32 = 0
    syncer_config_name: str = ""
    syncer: Syncer | None = None
    syncer_thread: UInt32 = 0
    validator_config_name: str = ""


class Snapshot(FileModel):
    """Our own block. ``position``: how a chunk's place in the binlog is found, see SnapshotConfig.position.

    ``rows_per_second``, ``bytes_per_second``: of all readers of one source together. ``max_threads_running``,
    ``max_replica_lag`` (seconds): what of the source's own state makes readers wait.
    """

    threads: Count | None = None
    chunk_rows: Count | None = None
    rows_per_second: Count | None = None
    bytes_per_second: Count | None = None
    max_threads_running: Count | None = None
    max_replica_lag: Count | None = None
    position: Literal["auto", "watermark"] = "auto"


class Load(FileModel):
    """Our own block. ``defer_indexes``: see LoadConfig.defer_indexes."""

    defer_indexes: bool = True


class Replicate(FileModel):
    """Our own block; wins over ``syncers``. ``batch_bytes``: bytes of SQL text that make a lane flush.

    ``on_row_error``: what becomes of a row that the target refuses for its own sake."""

    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    batch_rows: Count | None = None
    batch_bytes: Count | None = None
    on_row_error: Literal["pause", "quarantine"] = "pause"


class Experimental(FileModel):
    async_checkpoint_flush: bool = False


class TaskModel(FileModel):
    """A whole task file."""

    name: TaskName
    task_mode: Literal["full", "incremental", "all", "dump", "load", "load&sync"]
    is_sharding: bool = False
    shard_mode: Literal["", "pessimistic", "optimistic"] = ""
    strict_optimistic_shard_mode: bool = False
    ignore_checking_items: Names = ()
    meta_schema: Identifier = "dm_meta"
    enable_heartbeat: bool = False
    heartbeat_update_interval: UInt32 = 1
    heartbeat_report_interval: UInt32 = 10
    timezone: str = ""
    case_sensitive: bool = False
    collation_compatible: Annotated[Literal["", "loose", "strict"], Field(alias="collation_compatible")] = "loose"
    mariadb2tidb: Blank = Field(default_factory=dict[str, object])
    target_database: Database
    mysql_instances: Annotated[tuple[Instance, ...], Field(min_length=1)]
    online_ddl: bool = True
    online_ddl_scheme: Literal["", "gh-ost", "pt"] = ""
    shadow_table_rules: Names = ()
    trash_table_rules: Names = ()
    routes: dict[str, Route] = Field(default_factory=dict[str, Route])
    filters: dict[str, EventFilter] = Field(default_factory=dict[str, EventFilter])
    column_mappings: dict[str, ColumnMapping] = Field(default_factory=dict[str, ColumnMapping])
    expression_filter: dict[str, ExpressionFilter] = Field(default_factory=dict[str, ExpressionFilter])
    black_white_list: dict[str, OrDefaults[BlockAllow]] = Field(default_factory=dict[str, BlockAllow])
    block_allow_list: dict[str, OrDefaults[BlockAllow]] = Field(default_factory=dict[str, BlockAllow])
    mydumpers: dict[str, OrDefaults[Mydumper]] = Field(default_factory=dict[str, Mydumper])
    loaders: dict[str, OrDefaults[Loader]] = Field(default_factory=dict[str, Loader])
    syncers: dict[str, OrDefaults[Syncer]] = Field(default_factory=dict[str, Syncer])
    validators: dict[str, OrDefaults[Validator]] = Field(default_factory=dict[str, Validator])
    transforms: dict[str, Transform] = Field(default_factory=dict[str, Transform])
    clean_dump_file: bool = True
    ansi_quotes: bool = False
    remove_meta: bool = False
    experimental: Experimental = Experimental()
    snapshot: Snapshot = Snapshot()
    load: Load = Load()
    replicate: Replicate = Replicate()

    def block_allow_lists(self) -> dict[str, BlockAllow]:
        """``block-allow-list``, or its old spelling ``black-white-list`` when the new one is absent."""
        return self.block_allow_list or self.black_white_list
