"""The keys of a task file: TiDB DM's (docs: "Task Configuration File") and blocks of our own.

The meaning of a key, and its effect here where that differs from DM, is written at the key;
:mod:`shardmerge.proto.config.task.cross_checks` finds conflicts between keys.
"""

from __future__ import annotations

import json
import re
import zoneinfo
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shardmerge.proto.config import defaults
from shardmerge.proto.config.database import Database
from shardmerge.proto.config.document.file_model import FileModel, OrDefaults, UInt32
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.filter_model import EventFilter, ExpressionFilter
from shardmerge.proto.config.rules.pattern_text import Identifier
from shardmerge.proto.config.rules.reference_model import References
from shardmerge.proto.config.rules.rule_model import BlockAllow, ColumnMapping, Route
from shardmerge.proto.config.rules.transforms.model import Transform
from shardmerge.proto.config.source import TaskName
from shardmerge.proto.config.task.blocks import (
    NO_VALIDATION,
    Experimental,
    Load,
    Loader,
    Mydumper,
    Replicate,
    Snapshot,
    Syncer,
    Validator,
)
from shardmerge.proto.config.task.instance import Instance, Names

Blank = dict[str, object]
"""A block whose content is not parsed: it has no effect here."""

_HEARTBEAT = "no effect: lag needs no heartbeat table"
_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d", re.ASCII)


def _is_zone(text: str) -> str:
    """A name of the time zone database, or an offset, as in DM (tiflow, dm/pkg/utils, ParseTimeZone)."""
    if not text or _OFFSET.fullmatch(text):
        return text
    # Python treats names as paths of files: names that are not in the list are not looked up.
    if text not in _zones() and text.lower() not in {"utc", "local"}:
        raise ValueError('must be the name of a time zone, e.g. Asia/Shanghai, or an offset such as "+08:00"')
    return text


@cache  # reading the list takes 10 ms: only once, and only when needed
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


TimeZone = Annotated[str, AfterValidator(_is_zone)]


class TaskModel(FileModel):
    """A whole task file."""

    name: Annotated[TaskName, Key("Unique name of the task.", sample="orders")]
    task_mode: Annotated[
        Literal["full", "incremental", "all", "dump", "load", "load&sync"],
        Key(
            "`full` copies the existing rows and ends; `incremental` applies changes from a position on; `all` does "
            "both. DM's `dump`, `load` and `load&sync` are refused: there are no files between reading and writing.",
            sample="all",
        ),
    ]
    is_sharding: Annotated[bool, Key("Deprecated in DM: true means shard-mode: pessimistic.", live=True)] = False
    shard_mode: Annotated[
        Literal["", "pessimistic", "optimistic"],
        Key(
            "How a DDL of one of several shard tables is handled: `pessimistic` waits for all of them, `optimistic` "
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
            effect="no effect: shard-mode: optimistic is always strict: a shard table waits where values could differ",
        ),
    ] = False
    ignore_checking_items: Annotated[
        Names, Key("Names of pre-checks that are skipped; `all`: all of them.", live=True)
    ] = ()
    auto_increment: Annotated[
        Literal["keep", "after-max", "none"],
        Key(
            "Our own: AUTO_INCREMENT of target tables that the task creates. `keep`: as at the sources, and the server "
            "raises the next id with every replicated row, mapped or not, so that it is above all of them at a "
            "cut-over; `after-max`: added when the table is loaded, which rebuilds the table while writes to it wait; "
            "`none`: without, and an INSERT that names no id fails. Replicated ids never change. A route may have "
            "its own value. A MariaDB target writes the next id to the root page of the primary key with every row "
            "(MDEV-6076): there `keep` costs about a fifth of the history's speed and a tenth of a drain's. Until "
            "the cut-over no other program may insert rows: an id that the target generates may "
            "be a later id of a source.",
            live=True,
            sample="keep",
        ),
    ] = "keep"
    extract_in_key: Annotated[
        Literal["auto", "always", "never"],
        Key(
            "Our own: whether the columns of extract-schema, extract-table and extract-source are part of the primary "
            "key and of each unique key of target tables that the task creates. `auto`: of every key whose values "
            "`partition id` does not keep apart; `always`: of every key; `never`: of none, and equal keys of two shard "
            "tables stop the task. A route may have its own value. Existing tables stay as they are: the pre-check "
            "prints the statement that adds what is missing.",
            live=True,
            sample="auto",
        ),
    ] = "auto"
    partitions: Annotated[
        Literal["keep", "drop"],
        Key(
            "Our own: partitions of target tables that the task creates. `keep`: the PARTITION BY of the shard tables, "
            "which must be the same in all of them; RANGE and LIST by a mapped column are refused. `drop`: without. "
            "Statements of a source that add or reorganize partitions never run at the target: with `keep`, add a "
            "partition there before its rows arrive. Existing tables stay as they are.",
            live=True,
            sample="drop",
        ),
    ] = "drop"
    cascades: Annotated[
        Literal["refuse", "derive"],
        Key(
            "Our own: foreign keys between the task's tables that delete or change rows by cascade, which the binary "
            "log does not show. `refuse`: the pre-check refuses them; `derive`: the task derives these rows and writes "
            "them in the transaction of the row that caused them. It excludes shard-mode, safe-mode, "
            "on-row-error: quarantine and a start time.",
            sample="refuse",
        ),
    ] = "refuse"
    meta_schema: Annotated[
        Identifier, Key("Schema at the target that holds checkpoints and chunk states.", sample="dm_meta")
    ] = defaults.META_SCHEMA
    enable_heartbeat: Annotated[bool, Key("Deprecated in DM.", effect=_HEARTBEAT)] = False
    heartbeat_update_interval: Annotated[UInt32, Key("Deprecated in DM.", effect=_HEARTBEAT)] = 1
    heartbeat_report_interval: Annotated[UInt32, Key("Deprecated in DM.", effect=_HEARTBEAT)] = 10
    timezone: Annotated[
        TimeZone,
        Key(
            "Time zone of DM's sessions: a name or an offset.",
            effect="no effect: both sides always use UTC, so that a TIMESTAMP is the same instant at both; DATETIME is "
            "copied as it is",
        ),
    ] = ""
    case_sensitive: Annotated[bool, Key("Whether patterns are case-sensitive.", live=True, sample="false")] = False
    collation_compatible: Annotated[
        Literal["", "loose", "strict"],
        Field(alias="collation_compatible"),
        Key(
            "A collation that the target lacks: `loose` replaces it by one that distinguishes at least the same texts, "
            "`strict` refuses it in the pre-check, in a table that is created and in a DDL. Written with an "
            "underscore, as in DM.",
        ),
    ] = "loose"
    mariadb2tidb: Annotated[Blank, Key("A planned block of DM.", effect="no effect")] = Field(
        default_factory=dict[str, object]
    )
    target_database: Annotated[
        Database, Key("The target. In a running task only user, password and security may change.", live=True)
    ]
    mysql_instances: Annotated[
        tuple[Instance, ...], Field(min_length=1), Key("The task's sources, one entry each.", live=True)
    ]
    online_ddl: Annotated[
        bool,
        Key(
            "Tables of gh-ost and pt-online-schema-change take no part; their swap counts as one ALTER TABLE.",
            sample="true",
        ),
    ] = True
    online_ddl_scheme: Annotated[
        Literal["", "gh-ost", "pt"],
        Key(
            "Deprecated in DM: turns online-ddl on.",
            effect="tables of both tools are recognised by shadow-table-rules and trash-table-rules, with either value",
        ),
    ] = ""
    shadow_table_rules: Annotated[
        Names,
        Key(
            "Regular expressions of tables that replace a table; the first group is the name of that table.",
            default=json.dumps(defaults.SHADOW_TABLES),
        ),
    ] = ()
    trash_table_rules: Annotated[
        Names,
        Key(
            "The same for tables that are left over, and for the tools' own tables.",
            default=json.dumps(defaults.TRASH_TABLES),
        ),
    ] = ()
    routes: Annotated[dict[str, Route], Key("Targets of tables, by name of the rule.", live=True)] = Field(
        default_factory=dict[str, Route]
    )
    filters: Annotated[dict[str, EventFilter], Key("Event filters, by name of the rule.", live=True)] = Field(
        default_factory=dict[str, EventFilter]
    )
    column_mappings: Annotated[
        dict[str, ColumnMapping],
        Key("Mappings of columns, by name of the rule. Refused by DM since 6.6; supported here.", live=True),
    ] = Field(default_factory=dict[str, ColumnMapping])
    references: Annotated[
        References,
        Key(
            "Our own: columns that hold values of a mapped column of another table. They get the mapping of that "
            "column. `none`: there are none, and the pre-check proposes none.",
            live=True,
        ),
    ] = ()
    expression_filter: Annotated[
        dict[str, ExpressionFilter], Key("Filters that drop rows, by name of the rule.", live=True)
    ] = Field(default_factory=dict[str, ExpressionFilter])
    black_white_list: Annotated[
        dict[str, OrDefaults[BlockAllow]],
        Key("Old spelling of block-allow-list.", effect="old spelling of block-allow-list", live=True),
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
        dict[str, OrDefaults[Validator]], Key("DM's continuous validation, by name of the block.", effect=NO_VALIDATION)
    ] = Field(default_factory=dict[str, Validator])
    transforms: Annotated[
        dict[str, Transform], Key("Our own: transformations of rows, by name of the rule.", live=True)
    ] = Field(default_factory=dict[str, Transform])
    clean_dump_file: Annotated[
        bool, Key("Remove dump files at the end.", effect="no effect: nothing is dumped to files")
    ] = True
    ansi_quotes: Annotated[bool, Key("Deprecated in DM.", effect="no effect")] = False
    remove_meta: Annotated[
        bool, Key("Delete an earlier run's checkpoints.", effect="no effect: use start-task --remove-meta")
    ] = False
    experimental: Annotated[Experimental, Key("DM's experiments.")] = Experimental()
    snapshot: Annotated[Snapshot, Key("Our own: how the history is read.", live=True)] = Snapshot()
    load: Annotated[Load, Key("Our own: how the history is written.")] = Load()
    replicate: Annotated[Replicate, Key("Our own: how changes are applied.", live=True)] = Replicate()

    def block_allow_lists(self) -> dict[str, BlockAllow]:
        """``block-allow-list``, or its old spelling ``black-white-list`` when the new one is absent."""
        return self.block_allow_list or self.black_white_list
