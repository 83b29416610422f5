"""The keys of a task file: TiDB DM's (docs: "Task Configuration File") and blocks of our own.

What a key means, and what it does here when that differs from DM, stands at the key; what the file may still have
wrong when each key for itself is right is found by :mod:`proto.config.task_checks`.
"""

from __future__ import annotations

import json
import re
import zoneinfo
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from proto.config import defaults
from proto.config.database import Database
from proto.config.key import Key
from proto.config.model import FileModel, OrDefaults, UInt32
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
from proto.config.task_blocks import Experimental, Load, Loader, Mydumper, Replicate, Snapshot, Syncer, Validator
from proto.errors import ShardmergeError

Names = tuple[str, ...]
Blank = dict[str, object]
"""A block whose content is parsed by nobody: it has no effect here."""

_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d", re.ASCII)
_HEARTBEAT = "no effect: lag needs no heartbeat table"
_VALIDATOR = "no effect: nothing validates by itself; `dmctl compare` compares every row, whenever it is wanted"


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


def _is_zone(text: str) -> str:
    """A name of the time zone database, or an offset, as DM takes them (tiflow, dm/pkg/utils, ParseTimeZone)."""
    if not text or _OFFSET.fullmatch(text):
        return text
    # Names are paths of files to Python: those that are none of the list are not looked at.
    if text not in _zones() and text.lower() not in {"utc", "local"}:
        raise ValueError('must be the name of a time zone, e.g. Asia/Shanghai, or an offset such as "+08:00"')
    return text


@cache  # reading the list takes 10 ms: once, and only when asked
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


class Meta(FileModel):
    """Where ``task-mode: incremental`` starts. ``start-at``, our own, instead of a place."""

    binlog_name: Annotated[str, Key("The source's binlog file to start in.")] = ""
    binlog_pos: Annotated[UInt32, Key("Place in that file.", default="the start of the file")] = 0
    binlog_gtid: Annotated[str, Key("GTID set to start behind.")] = ""
    start_at: Annotated[
        str,
        AfterValidator(_is_start),
        Key(
            "Our own, instead of a place: `earliest`, `latest` or a time, in the source's time zone unless an offset "
            "follows."
        ),
    ] = ""

    @model_validator(mode="after")
    def _says_where(self) -> Meta:
        if not self.binlog_name and not self.binlog_gtid and not self.start_at:
            raise ValueError("needs binlog-name, binlog-gtid or start-at")
        if self.start_at and (self.binlog_name or self.binlog_gtid):
            raise ValueError("start-at contradicts binlog-name and binlog-gtid")
        return self


class Instance(FileModel):
    """One entry of ``mysql-instances``: a source of the task and the rules that hold for it."""

    source_id: Annotated[SourceId, Key("The source, by the source-id of its own file.", sample="mysql-01")]
    meta: Annotated[Meta | None, Key("Where it starts, with task-mode: incremental.")] = None
    stop_at: Annotated[
        Annotated[str, AfterValidator(_is_stop)] | None,
        Key(
            "Our own: where replication of this source ends: a place (`mysql-bin.000003:4711`), a GTID set or a time.",
            default="never",
        ),
    ] = None
    filter_rules: Annotated[Names, Key("Names of event filters in filters.")] = ()
    column_mapping_rules: Annotated[Names, Key("Names of mappings in column-mappings.", sample="[ids-1]")] = ()
    route_rules: Annotated[Names, Key("Names of routes in routes.", sample="[orders]")] = ()
    expression_filters: Annotated[Names, Key("Names of filters in expression-filter.")] = ()
    transform_rules: Annotated[Names, Key("Our own: names of transforms in transforms.")] = ()
    block_allow_list: Annotated[
        str, Key("Name of a list in block-allow-list.", default="all tables take part", sample="shards")
    ] = ""
    black_white_list: Annotated[
        str, Key("Old spelling of block-allow-list.", here="old spelling of block-allow-list")
    ] = ""
    mydumper_config_name: Annotated[str, Key("Name of a block in mydumpers.", sample="global")] = ""
    mydumper: Annotated[Mydumper | None, Key("Such a block, written here.")] = None
    mydumper_thread: Annotated[UInt32, Key("Wins over the block's threads.", default="0: the block's")] = 0
    loader_config_name: Annotated[str, Key("Name of a block in loaders.")] = ""
    loader: Annotated[Loader | None, Key("Such a block, written here.")] = None
    loader_thread: Annotated[
        UInt32, Key("Wins over the block's pool-size.", here="no effect: the snapshot's threads both read and load")
    ] = 0
    syncer_config_name: Annotated[str, Key("Name of a block in syncers.", sample="global")] = ""
    syncer: Annotated[Syncer | None, Key("Such a block, written here.")] = None
    syncer_thread: Annotated[
        UInt32,
        Key(
            "Wins over the block's worker-count.",
            here=f"upper bound of the lanes, of which there are at most {defaults.MAX_LANES_FROM_SYNCER}; "
            "replicate.lanes sets them exactly",
            default="0: the block's",
        ),
    ] = 0
    validator_config_name: Annotated[str, Key("Name of a block in validators.", here=_VALIDATOR)] = ""


class TaskModel(FileModel):
    """A whole task file."""

    name: Annotated[TaskName, Key("Unique name of the task.", sample="orders")]
    task_mode: Annotated[
        Literal["full", "incremental", "all", "dump", "load", "load&sync"],
        Key(
            "`full` copies what is there and ends; `incremental` applies changes from a place on; `all` does both. "
            "DM's `dump`, `load` and `load&sync` are refused: no files lie between reading and writing.",
            sample="all",
        ),
    ]
    is_sharding: Annotated[bool, Key("Deprecated in DM: true means shard-mode: pessimistic.", live=True)] = False
    shard_mode: Annotated[
        Literal["", "pessimistic", "optimistic"],
        Key(
            "What becomes of a DDL of one of several shard tables: `pessimistic` waits for all of them, `optimistic` "
            'gives the target the union of the structures; "" stops the task before it.',
            default='""',
            live=True,
            sample="pessimistic",
        ),
    ] = ""
    strict_optimistic_shard_mode: Annotated[
        bool,
        Key(
            "Only with shard-mode: optimistic.",
            here="no effect: shard-mode: optimistic is always strict: a shard table waits where values could differ",
        ),
    ] = False
    ignore_checking_items: Annotated[
        Names, Key("Names of pre-checks that are not made; `all`: none is.", live=True)
    ] = ()
    meta_schema: Annotated[
        Identifier, Key("Schema at the target that holds checkpoints and chunk states.", sample="dm_meta")
    ] = defaults.META_SCHEMA
    enable_heartbeat: Annotated[bool, Key("Deprecated in DM.", here=_HEARTBEAT)] = False
    heartbeat_update_interval: Annotated[UInt32, Key("Deprecated in DM.", here=_HEARTBEAT)] = 1
    heartbeat_report_interval: Annotated[UInt32, Key("Deprecated in DM.", here=_HEARTBEAT)] = 10
    timezone: Annotated[
        str,
        AfterValidator(_is_zone),
        Key(
            "Time zone of DM's sessions: a name or an offset.",
            here="no effect: both sides always speak UTC, so that a TIMESTAMP is the same instant at both; DATETIME is "
            "copied as it is",
        ),
    ] = ""
    case_sensitive: Annotated[
        bool, Key("Whether patterns tell capital letters from small ones.", live=True, sample="false")
    ] = False
    collation_compatible: Annotated[
        Literal["", "loose", "strict"],
        Field(alias="collation_compatible"),
        Key(
            "Written with an underscore, as in DM.",
            here="no effect: columns keep the charset and collation of the source",
        ),
    ] = "loose"
    mariadb2tidb: Annotated[Blank, Key("A block of DM's plans.", here="no effect")] = Field(
        default_factory=dict[str, object]
    )
    target_database: Annotated[
        Database, Key("The target. Of a running task only user and password may change.", live=True)
    ]
    mysql_instances: Annotated[
        tuple[Instance, ...], Field(min_length=1), Key("The task's sources, one entry each.", live=True)
    ]
    online_ddl: Annotated[
        bool,
        Key("Tables of gh-ost and pt-online-schema-change take no part; their swap is one ALTER TABLE.", sample="true"),
    ] = True
    online_ddl_scheme: Annotated[
        Literal["", "gh-ost", "pt"],
        Key(
            "Deprecated in DM: turns online-ddl on.",
            here="tables of both tools are known by shadow-table-rules and trash-table-rules, whichever it is",
        ),
    ] = ""
    shadow_table_rules: Annotated[
        Names,
        Key(
            "Regular expressions of tables that take a table's place; the first group is the table's own name.",
            default=json.dumps(defaults.SHADOW_TABLES),
        ),
    ] = ()
    trash_table_rules: Annotated[
        Names,
        Key("The same of what is left of a table, and of the tools' own.", default=json.dumps(defaults.TRASH_TABLES)),
    ] = ()
    routes: Annotated[dict[str, Route], Key("Where tables go, by name of the rule.", live=True)] = Field(
        default_factory=dict[str, Route]
    )
    filters: Annotated[dict[str, EventFilter], Key("Event filters, by name of the rule.", live=True)] = Field(
        default_factory=dict[str, EventFilter]
    )
    column_mappings: Annotated[
        dict[str, ColumnMapping],
        Key("What becomes of columns, by name of the rule. Refused by DM since 6.6; it works here.", live=True),
    ] = Field(default_factory=dict[str, ColumnMapping])
    expression_filter: Annotated[
        dict[str, ExpressionFilter], Key("Rows that are passed over, by name of the rule.", live=True)
    ] = Field(default_factory=dict[str, ExpressionFilter])
    black_white_list: Annotated[
        dict[str, OrDefaults[BlockAllow]],
        Key("Old spelling of block-allow-list.", here="old spelling of block-allow-list", live=True),
    ] = Field(default_factory=dict[str, BlockAllow])
    block_allow_list: Annotated[
        dict[str, OrDefaults[BlockAllow]], Key("Which tables take part, by name of the list.", live=True)
    ] = Field(default_factory=dict[str, BlockAllow])
    mydumpers: Annotated[
        dict[str, OrDefaults[Mydumper]], Key("How the snapshot reads, by name of the block.", live=True)
    ] = Field(default_factory=dict[str, Mydumper])
    loaders: Annotated[dict[str, OrDefaults[Loader]], Key("How DM loads, by name of the block.")] = Field(
        default_factory=dict[str, Loader]
    )
    syncers: Annotated[
        dict[str, OrDefaults[Syncer]], Key("How changes are applied, by name of the block.", live=True)
    ] = Field(default_factory=dict[str, Syncer])
    validators: Annotated[
        dict[str, OrDefaults[Validator]], Key("DM's continuous validation, by name of the block.", here=_VALIDATOR)
    ] = Field(default_factory=dict[str, Validator])
    transforms: Annotated[dict[str, Transform], Key("Our own: what rows become, by name of the rule.", live=True)] = (
        Field(default_factory=dict[str, Transform])
    )
    clean_dump_file: Annotated[
        bool, Key("Remove dump files at the end.", here="no effect: nothing is dumped to files")
    ] = True
    ansi_quotes: Annotated[bool, Key("Deprecated in DM.", here="no effect")] = False
    remove_meta: Annotated[
        bool, Key("Forget an earlier run's checkpoints.", here="no effect: give start-task --remove-meta")
    ] = False
    experimental: Annotated[Experimental, Key("DM's experiments.")] = Experimental()
    snapshot: Annotated[Snapshot, Key("Our own: how the history is read.", live=True)] = Snapshot()
    load: Annotated[Load, Key("Our own: how the history is written.")] = Load()
    replicate: Annotated[Replicate, Key("Our own: how changes are applied.", live=True)] = Replicate()

    def block_allow_lists(self) -> dict[str, BlockAllow]:
        """``block-allow-list``, or its old spelling ``black-white-list`` when the new one is absent."""
        return self.block_allow_list or self.black_white_list
