"""Source files: one MySQL or MariaDB server, in TiDB DM's format (docs: "Upstream Database Configuration File")."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shardmerge.proto import common_pb2
from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config import defaults
from shardmerge.proto.config.database import Database, PasswordForm, check_database, database_notes, password_form
from shardmerge.proto.config.document.file_model import LOWERED, FileModel, UInt32, validate
from shardmerge.proto.config.document.notes import notes_of, refusals
from shardmerge.proto.config.document.repair import RepairedModel, repaired
from shardmerge.proto.config.document.yaml_file import Document, read
from shardmerge.proto.config.durations_and_sizes import Duration
from shardmerge.proto.config.finding import ConfigFinding, error_of
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.filter_model import EventFilter
from shardmerge.proto.config.stored_text import OF_SOURCE, stored_text
from shardmerge.proto.errors import config
from shardmerge.proto.name_rules import NAME_RULE, is_name

MAX_SOURCE_ID = 32
"""Characters; DM's limit, and the width of its checkpoint tables' column."""


def file_safe(text: str) -> str:
    """Check a name, which becomes part of etcd keys and directories."""
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


SourceId = Annotated[str, Field(min_length=1, max_length=MAX_SOURCE_ID), AfterValidator(file_safe)]
TaskName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(file_safe)]


_RESUMES = "no effect: paused subtasks resume by themselves where the error allows it"


class Purge(FileModel):
    """When the relay log is purged; files that a task still needs are never removed."""

    interval: Annotated[UInt32, Key("Seconds between two checks.", sample="3600")] = defaults.PURGE_INTERVAL_SECONDS
    expires: Annotated[UInt32, Key("Hours to keep files that no task needs; 0: no limit.", sample="0")] = (
        defaults.PURGE_EXPIRES_HOURS
    )
    remain_space: Annotated[UInt32, Key("GiB of free disk below which it is purged sooner.", sample="15")] = (
        defaults.PURGE_REMAIN_SPACE_GIB
    )


class Checker(FileModel):
    """When DM resumes paused tasks. Its form is checked."""

    check_enable: Annotated[bool, Key("Resume at all.")] = True
    backoff_rollback: Annotated[Duration, Key("Time until the wait becomes shorter.", default="5m")] = ""
    backoff_max: Annotated[Duration, Key("Longest wait.", default="5m")] = ""
    backoff_min: Annotated[Duration, Key("Shortest wait.", default="1s")] = ""
    backoff_jitter: Annotated[bool, Key("Wait a little more or less.")] = True
    backoff_factor: Annotated[float, Field(ge=1, le=1000), Key("Growth of the wait.")] = 2
    check_interval: Annotated[Duration, Key("Time between two checks.", default="5s")] = ""


class SourceModel(FileModel):
    """A whole source file."""

    source_id: Annotated[
        SourceId, Key("Unique name, at most 32 characters; tasks name the source by it.", sample="mysql-01")
    ]
    enable: Annotated[
        bool, Key("Whether the source is used; false: it is stored, but bound to no worker.", sample="true")
    ] = True
    enable_gtid: Annotated[bool, Key("Follow positions by GTID.", sample="false")] = False
    auto_fix_gtid: Annotated[bool, Key("Ignored by DM.", effect="no effect")] = False
    relay_dir: Annotated[
        str, Key("Where DM's relay log is.", effect="the relay log is in the worker's own relay-dir")
    ] = ""
    meta_dir: Annotated[str, Key("Ignored by DM.", effect="no effect")] = ""
    flavor: Annotated[
        Literal["", "auto", "mysql", "mariadb"],
        LOWERED,
        Key("Kind of the server; `auto`: detected.", sample="auto"),
    ] = "auto"
    charset: Annotated[str, Key("Ignored by DM.", effect="no effect: every column is read in its own charset")] = ""
    enable_relay: Annotated[
        bool, Key("Whether DM keeps a relay log. DM: false.", effect="the relay log is always on")
    ] = True
    relay_binlog_name: Annotated[
        str,
        Key(
            "Binlog file at which the relay log begins, when the source has no task and no relay log yet.",
            default="where the first task needs it",
        ),
    ] = ""
    relay_binlog_gtid: Annotated[
        str,
        Key(
            "GTID set after which it begins; wins over relay-binlog-name with enable-gtid.",
            default="where the first task needs it",
        ),
    ] = ""
    from_: Annotated[Database, Field(alias="from"), Key("The server.")]
    purge: Annotated[Purge, Key("When the relay log is purged.")] = Purge()
    checker: Annotated[Checker, Key("When DM resumes paused tasks.", effect=_RESUMES)] = Checker()
    server_id: Annotated[
        UInt32, Key("Id under which the relay reads the binlog; 0: a free one is picked.", sample="0")
    ] = 0
    tracer: Annotated[dict[str, object], Key("Ignored by DM.", effect="no effect")] = Field(
        default_factory=dict[str, object]
    )
    case_sensitive: Annotated[bool, Key("Whether names at the source are case-sensitive.", sample="false")] = False
    filters: Annotated[tuple[EventFilter, ...], Key("Event filters of every task of the source.")] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A valid source file.

    ``notes``: accepted keys that have another effect here. ``text``: the file as it may be stored, its password
    encrypted when this process has a key. ``password``: how the file gives it.
    """

    config: pb.SourceConfig = field(repr=False)
    notes: tuple[str, ...]
    text: str = field(repr=False)
    password: PasswordForm


def parse_source_file(text: str, file_name: str, environ: Mapping[str, str] | None = os.environ) -> SourceFile:
    """Read a source file.

    ``environ`` resolves a password written as ``${NAME}``; None leaves the reference as it is. Raises
    ``config.NOT_YAML``, ``config.INVALID``, ``config.NOT_SUPPORTED``, ``config.SECRET_MISSING``,
    ``config.VARIABLE_NOT_ALLOWED`` or ``config.HOST_NOT_ALLOWED``.
    """
    document = read(text, file_name)
    model, findings = check_source(document, environ)
    problem = error_of(findings)
    if problem is not None:
        raise problem
    if model is None:
        raise config.INVALID(finding=file_name, more="")
    return SourceFile(
        _to_proto(model, environ),
        notes_of_source(document, model),
        stored_text(document, text, OF_SOURCE),
        password_form(model.from_.password),
    )


def parse_source(text: str, file_name: str, environ: Mapping[str, str] | None = os.environ) -> pb.SourceConfig:
    """The configuration of :func:`parse_source_file`, without its notes."""
    return parse_source_file(text, file_name, environ).config


def check_source(
    document: Document, environ: Mapping[str, str] | None
) -> tuple[SourceModel | None, list[ConfigFinding]]:
    """The model of a source file, and every finding. Pure."""
    model, findings = validate(document, SourceModel)
    whole = repaired(document, SourceModel) if model is None else RepairedModel(model)
    return model, findings if whole is None else [*findings, *_check(document, whole, environ)]


def notes_of_source(document: Document, model: SourceModel) -> tuple[str, ...]:
    """Notes on accepted keys that have another effect here than in DM."""
    return (*notes_of(document, SourceModel), *database_notes(document, ("from",), model.from_))


def _check(
    document: Document, whole: RepairedModel[SourceModel], environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    found = list(refusals(document, whole.model))
    if whole.is_sure(("from",)):
        found += check_database(document, ("from",), whole.model.from_, environ)
    return found


def _to_proto(model: SourceModel, environ: Mapping[str, str] | None) -> pb.SourceConfig:
    return pb.SourceConfig(
        source_id=model.source_id,
        flavor=model.flavor or "auto",
        server_id=model.server_id,
        relay_start=common_pb2.SourcePosition(
            file=model.relay_binlog_name,
            pos=4 if model.relay_binlog_name else 0,
            gtid_set=model.relay_binlog_gtid,
        ),
        purge=pb.PurgeConfig(
            interval_seconds=model.purge.interval,
            expires_hours=model.purge.expires,
            remain_space_gib=model.purge.remain_space,
        ),
        case_sensitive=model.case_sensitive,
        enable_gtid=model.enable_gtid,
        filters=[rule.to_proto(f"filters[{index}]") for index, rule in enumerate(model.filters)],
        disabled=not model.enable,
        **{"from": model.from_.to_proto(environ)},
    )
