"""Blocks of a task file that configure its units: DM's (mydumpers, loaders, syncers, validators) and our own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from shardmerge.proto.config import defaults
from shardmerge.proto.config.document.file_model import LOWERED, Count, FileModel, UInt32
from shardmerge.proto.config.durations_and_sizes import Duration, Size
from shardmerge.proto.config.key import Key

_ROWS_COLLIDE = (
    "no effect: a row that the target holds already always stops the task with a coded error (DM's `error`); none is "
    "replaced or skipped"
)
_NO_LIGHTNING = "no effect: rows are loaded by INSERT, in chunks that commit with their record; no import program runs"
NO_VALIDATION = "no effect: there is no continuous validation; `dmctl compare` compares every row on demand"


class Mydumper(FileModel):
    """How the snapshot reads: a block of ``mydumpers``."""

    mydumper_path: Annotated[
        str, Key("Path of DM's dump program.", effect="no effect: no program is called", default="./bin/mydumper")
    ] = ""
    threads: Annotated[
        Count,
        Key("Chunk readers of one source, one Spark task each; snapshot.threads wins over it.", live=True, sample="4"),
    ] = defaults.READERS
    chunk_filesize: Annotated[
        Size,
        Key("Size of a dump file.", effect="no effect: chunks are cut by rows (snapshot.chunk-rows)", default="64"),
    ] = ""
    statement_size: Annotated[
        UInt32, Key("Bytes of one INSERT.", effect="no effect: a statement is as large as the target accepts")
    ] = 0
    rows: Annotated[
        UInt32,
        Key(
            "Rows of one chunk; snapshot.chunk-rows wins over it. In DM 0 reads a table in one piece; here tables are "
            "always cut.",
            default=f"0: {defaults.CHUNK_ROWS}",
            live=True,
        ),
    ] = 0
    where: Annotated[
        str,
        Key(
            "A condition that rows of the history must meet.",
            refused="the history would hold fewer rows than the changes that follow; choose rows for both with a "
            "`expression-filter`, tables with block-allow-list",
        ),
    ] = ""
    skip_tz_utc: Annotated[
        bool, Key("Dump in the session's own time zone.", effect="no effect: both sides always use UTC")
    ] = True
    extra_args: Annotated[
        str,
        Key(
            "Further options of the dump program. Options that choose rows or tables are refused.",
            effect="no effect: the snapshot takes no locks and needs no option; threads and rows have keys of their "
            "own",
        ),
    ] = ""


class Loader(FileModel):
    """How DM loads what it dumped: a block of ``loaders``. It has no effect here, but its form is checked."""

    pool_size: Annotated[
        UInt32, Key("Threads that load.", effect="no effect: the snapshot's threads both read and load")
    ] = 16
    dir: Annotated[
        str, Key("Where dump files are.", effect="no effect: rows do not pass through files", default="./dumped_data")
    ] = ""
    sorting_dir_physical: Annotated[str, Key("Where a physical import sorts.", effect=_NO_LIGHTNING)] = ""
    import_mode: Annotated[
        Literal["", "sql", "loader", "logical", "physical", "import-into"],
        LOWERED,
        Key("How rows are loaded.", effect="no effect: rows are loaded by multi-row INSERT", default="logical"),
    ] = ""
    on_duplicate: Annotated[
        Literal["", "replace", "error", "ignore"],
        LOWERED,
        Key("Old spelling of on-duplicate-logical.", effect=_ROWS_COLLIDE),
    ] = ""
    on_duplicate_logical: Annotated[
        Literal["", "replace", "error", "ignore"],
        LOWERED,
        Key("How a row that the target holds already is handled.", effect=_ROWS_COLLIDE, default="replace"),
    ] = ""
    on_duplicate_physical: Annotated[
        Literal["", "none", "manual"],
        LOWERED,
        Key("The same in a physical import.", effect=_ROWS_COLLIDE, default="none"),
    ] = ""
    disk_quota_physical: Annotated[Size, Key("Disk that a physical import may use.", effect=_NO_LIGHTNING)] = ""
    checksum_physical: Annotated[
        Literal["", "required", "optional", "off"],
        LOWERED,
        Key("Checksums after a physical import.", effect="no effect: `dmctl compare` compares every row on demand"),
    ] = ""
    analyze: Annotated[
        Literal["", "required", "optional", "off"],
        LOWERED,
        Key("ANALYZE TABLE after the load.", effect="no effect: run ANALYZE TABLE at the target when the load is done"),
    ] = ""
    range_concurrency: Annotated[UInt32, Key("Writers of a physical import.", effect=_NO_LIGHTNING)] = 0
    compress_kv_pairs: Annotated[
        Literal["", "gzip", "gz"], LOWERED, Key("Compression of a physical import.", effect=_NO_LIGHTNING)
    ] = ""
    pd_addr: Annotated[str, Key("Address of TiDB's PD.", effect=_NO_LIGHTNING)] = ""


class Syncer(FileModel):
    """How changes are applied: a block of ``syncers``.

    ``worker_count`` and ``batch`` are None if the file does not set them: our defaults are not DM's."""

    meta_file: Annotated[
        str, Key("File of the checkpoint.", effect="no effect: checkpoints are in the target's meta schema")
    ] = ""
    worker_count: Annotated[
        Count | None,
        Key(
            "Threads that apply changes.",
            effect=f"upper bound of the lanes, of which there are at most {defaults.MAX_LANES_FROM_SYNCER}; "
            "replicate.lanes sets them exactly",
            default=f"{defaults.LANES} lanes; DM: 16",
            live=True,
            sample="4",
        ),
    ] = None
    batch: Annotated[
        Count | None,
        Key(
            "Rows of one transaction at the target.",
            effect="upper bound of rows in one target transaction; replicate.batch-rows wins over it",
            default=f"{defaults.BATCH_ROWS}; DM: 100",
            live=True,
        ),
    ] = None
    queue_size: Annotated[
        UInt32, Key("Length of DM's queues.", effect="no effect: lanes read the relay log at their own pace")
    ] = 1024
    checkpoint_flush_interval: Annotated[
        UInt32,
        Key("Seconds between two checkpoints.", effect="no effect: rows and checkpoint commit together"),
    ] = 30
    compact: Annotated[
        bool,
        Key("Join changes of one key.", effect="no effect: changes of a key are always compacted within a batch"),
    ] = False
    multiple_rows: Annotated[
        bool, Key("Many rows in one statement.", effect="no effect: statements always hold many rows")
    ] = False
    max_retry: Annotated[UInt32, Key("Deprecated in DM.", effect="no effect: the error decides about a retry")] = 0
    auto_fix_gtid: Annotated[bool, Key("Deprecated in DM.", effect="no effect")] = False
    enable_gtid: Annotated[bool, Key("Deprecated in DM.", effect="no effect: it is a key of the source")] = False
    disable_detect: Annotated[bool, Key("Deprecated in DM.", effect="no effect")] = False
    safe_mode: Annotated[
        bool,
        Key(
            "Apply changes in a way that may be repeated: an existing row is replaced, and a missing row is no error "
            "for a delete.",
            live=True,
            sample="false",
        ),
    ] = False
    safe_mode_duration: Annotated[
        Duration, Key("How long DM does so after each start.", effect="no effect: a restart repeats nothing")
    ] = ""
    enable_ansi_quotes: Annotated[bool, Key("Deprecated in DM.", effect="no effect")] = False

    @model_validator(mode="after")
    def _safe_mode_lasts(self) -> Syncer:
        if self.safe_mode and self.safe_mode_duration in {"0", "0s"}:
            raise ValueError('safe-mode: true contradicts safe-mode-duration: "0s"')
        return self


class Validator(FileModel):
    """DM's continuous validation: a block of ``validators``. Its form is checked."""

    mode: Annotated[Literal["none", "fast", "full"], Key("What is compared.")] = "none"
    worker_count: Annotated[UInt32, Key("Threads that compare.")] = 4
    validate_interval: Annotated[Duration, Key("Time between two rounds.", default="10s")] = ""
    check_interval: Annotated[Duration, Key("Time between two checks of rows in doubt.", default="5s")] = ""
    row_error_delay: Annotated[Duration, Key("Time until a row in doubt is an error.", default="30m")] = ""
    meta_flush_interval: Annotated[Duration, Key("Time between two records.", default="5m")] = ""
    batch_query_size: Annotated[UInt32, Key("Rows of one query.")] = 100
    max_pending_row_size: Annotated[Size, Key("Memory for rows in doubt.", default="500m")] = ""
    max_pending_row_count: Annotated[UInt32, Key("Number of rows in doubt.")] = 2147483647


class Snapshot(FileModel):
    """How the history is read. Our own block; wins over ``mydumpers``."""

    threads: Annotated[
        Count | None, Key("Chunk readers of one source.", default=f"mydumpers.threads, {defaults.READERS}")
    ] = None
    chunk_rows: Annotated[
        Count | None,
        Key("Rows of one chunk.", default=f"mydumpers.rows, {defaults.CHUNK_ROWS}", sample=str(defaults.CHUNK_ROWS)),
    ] = None
    rows_per_second: Annotated[
        Count | None, Key("How fast all readers of one source may read, together.", default="no limit")
    ] = None
    bytes_per_second: Annotated[
        Count | None, Key("The same in bytes of the text that is sent to the target.", default="no limit")
    ] = None
    max_threads_running: Annotated[
        Count | None, Key("No chunk begins while more threads run at the source.", default="no limit")
    ] = None
    max_replica_lag: Annotated[
        Count | None,
        Key("Nor while the source, itself a replica, lags by more seconds than this.", default="no limit"),
    ] = None
    position: Annotated[
        Literal["auto", "watermark"],
        Key(
            "How a chunk's position in the binlog is found. `auto`: one consistent read if the server supports it, "
            "else watermarks; `watermark`: always watermarks.",
            sample="auto",
        ),
    ] = "auto"


_SWITCH = TypeAdapter(bool)


def _deferral(value: object) -> object:
    """The setting was a switch before it had three values."""
    try:
        return "created" if _SWITCH.validate_python(value) else "never"
    except ValidationError:
        return value


class Load(FileModel):
    """How the history is written. Our own block."""

    defer_indexes: Annotated[
        Literal["created", "empty", "never"],
        BeforeValidator(_deferral, json_schema_input_type=Literal["created", "empty", "never"] | bool),
        Key(
            "Target tables whose non-unique secondary indexes are added after the load. `created`: those that the task "
            "creates; `empty`: also those that exist and are empty when the load begins, whose indexes are dropped "
            "first; `never`: none. `true` means `created`, `false` means `never`.",
            sample="created",
        ),
    ] = "created"


class Replicate(FileModel):
    """How changes are applied. Our own block; wins over ``syncers``."""

    lanes: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | None,
        Key("Lanes: Spark tasks that each apply one share of the keys.", default=f"{defaults.LANES}"),
    ] = None
    batch_rows: Annotated[
        Count | None,
        Key(
            "A lane commits after this number of rows, or when it has no more input.",
            default=f"{defaults.BATCH_ROWS}",
            sample=str(defaults.BATCH_ROWS),
        ),
    ] = None
    batch_bytes: Annotated[
        Count | None,
        Key(
            "The same in bytes of SQL text.",
            default=f"{defaults.BATCH_BYTES}",
            sample=str(defaults.BATCH_BYTES),
        ),
    ] = None
    on_row_error: Annotated[
        Literal["pause", "quarantine"],
        Key(
            "How a row that the target refuses because of its values is handled: `pause` stops the task before it, "
            "`quarantine` holds it and all later changes of its key.",
            sample="pause",
        ),
    ] = "pause"


class Experimental(FileModel):
    """DM's experiments."""

    async_checkpoint_flush: Annotated[
        bool, Key("Checkpoints separate from rows.", effect="no effect: rows and checkpoint commit together")
    ] = False
