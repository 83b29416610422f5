"""An entry of a task file's ``mysql-instances``: a source, where it starts and ends, and the rules that apply to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, model_validator

from shardmerge.proto.config import defaults
from shardmerge.proto.config.document.file_model import FileModel, UInt32
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.position import start_at, stop_at
from shardmerge.proto.config.source import SourceId
from shardmerge.proto.config.task.blocks import NO_VALIDATION, Loader, Mydumper, Syncer
from shardmerge.proto.errors import ShardmergeError

Names = tuple[str, ...]


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
    """Where ``task-mode: incremental`` starts. ``start-at`` is our own, instead of a position."""

    binlog_name: Annotated[str, Key("The source's binlog file to start in.")] = ""
    binlog_pos: Annotated[UInt32, Key("Position in that file.", default="the start of the file")] = 0
    binlog_gtid: Annotated[str, Key("GTID set to start after.")] = ""
    start_at: Annotated[
        str,
        AfterValidator(_is_start),
        Key(
            "Our own, instead of a position: `earliest`, `latest` or a time, in the source's time zone unless an "
            "offset follows."
        ),
    ] = ""

    @model_validator(mode="after")
    def _has_one_start(self) -> Meta:
        if not self.binlog_name and not self.binlog_gtid and not self.start_at:
            raise ValueError("needs binlog-name, binlog-gtid or start-at")
        if self.start_at and (self.binlog_name or self.binlog_gtid):
            raise ValueError("start-at contradicts binlog-name and binlog-gtid")
        return self


class Instance(FileModel):
    """One entry of ``mysql-instances``: a source of the task and the rules that apply to it."""

    source_id: Annotated[SourceId, Key("The source, by the source-id of its own file.", sample="mysql-01")]
    meta: Annotated[Meta | None, Key("Where it starts, with task-mode: incremental.")] = None
    stop_at: Annotated[
        Annotated[str, AfterValidator(_is_stop)] | None,
        Key(
            "Our own: where replication of this source ends: a position (`mysql-bin.000003:4711`), a GTID set or a "
            "time.",
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
        str, Key("Old spelling of block-allow-list.", effect="old spelling of block-allow-list")
    ] = ""
    mydumper_config_name: Annotated[str, Key("Name of a block in mydumpers.", sample="global")] = ""
    mydumper: Annotated[Mydumper | None, Key("Such a block, written here.")] = None
    mydumper_thread: Annotated[UInt32, Key("Wins over the block's threads.", default="0: the block's")] = 0
    loader_config_name: Annotated[str, Key("Name of a block in loaders.")] = ""
    loader: Annotated[Loader | None, Key("Such a block, written here.")] = None
    loader_thread: Annotated[
        UInt32, Key("Wins over the block's pool-size.", effect="no effect: the snapshot's threads both read and load")
    ] = 0
    syncer_config_name: Annotated[str, Key("Name of a block in syncers.", sample="global")] = ""
    syncer: Annotated[Syncer | None, Key("Such a block, written here.")] = None
    syncer_thread: Annotated[
        UInt32,
        Key(
            "Wins over the block's worker-count.",
            effect=f"upper bound of the lanes, of which there are at most {defaults.MAX_LANES_FROM_SYNCER}; "
            "replicate.lanes sets them exactly",
            default="0: the block's",
        ),
    ] = 0
    validator_config_name: Annotated[str, Key("Name of a block in validators.", effect=NO_VALIDATION)] = ""
