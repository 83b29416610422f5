"""Source files: one MySQL or MariaDB server, in TiDB DM's format (docs: "Upstream Database Configuration File")."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proto import common_pb2
from proto import config_pb2 as pb
from proto.config.database import Database, check_database
from proto.config.finding import ConfigFinding, error_of
from proto.config.model import FileModel, UInt32, validate
from proto.config.note import notes_of
from proto.config.rule_model import EventFilter
from proto.config.yamlfile import Document, read
from proto.errors import config

MAX_SOURCE_ID = 32
"""Characters; DM's limit, and the width of its checkpoint tables' column."""


def file_safe(text: str) -> str:
    """Names become parts of etcd keys and directories."""
    if "/" in text or text in {".", ".."} or not text.isprintable() or text != text.strip():
        raise ValueError("must not hold /, control characters or outer blanks, nor be . or ..")
    return text


SourceId = Annotated[str, Field(min_length=1, max_length=MAX_SOURCE_ID), AfterValidator(file_safe)]
TaskName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(file_safe)]


class Purge(FileModel):
    interval: UInt32 = 3600
    expires: UInt32 = 0
    remain_space: UInt32 = 15


class Checker(FileModel):
    check_enable: bool = True
    backoff_rollback: str = ""
    backoff_max: str = ""
    backoff_min: str = ""
    backoff_jitter: bool = True
    backoff_factor: str = ""
    check_interval: str = ""


class SourceModel(FileModel):
    """The keys of a source file; the ones without a meaning here are in ``_NOTES``."""

    source_id: SourceId
    enable: bool = True
    enable_gtid: bool = False
    auto_fix_gtid: bool = False
    relay_dir: str = ""
    meta_dir: str = ""
    flavor: Literal["", "auto", "mysql", "mariadb"] = "auto"
    charset: str = ""
    enable_relay: bool = True
    relay_binlog_name: str = ""
    relay_binlog_gtid: str = ""
    from_: Database = Field(alias="from")
    purge: Purge = Purge()
    checker: Checker = Checker()
    server_id: UInt32 = 0
    tracer: dict[str, object] = Field(default_factory=dict[str, object])
    case_sensitive: bool = False
    filters: tuple[EventFilter, ...] = ()


_NOTES = {
    ("enable-relay",): "the relay log is always on",
    ("relay-dir",): "the relay log lives in the worker's own relay-dir",
    ("auto-fix-gtid",): "no effect",
    ("meta-dir",): "no effect",
    ("charset",): "no effect: every column is read in its own charset",
    ("tracer",): "no effect",
    ("checker",): "no effect: paused subtasks resume by themselves where the error allows it",
    ("from", "max-allowed-packet"): "no effect: packets of any size are read",
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A valid source file. ``notes``: accepted keys that do something else here."""

    config: pb.SourceConfig
    notes: tuple[str, ...]


def parse_source_file(text: str, file_name: str, environ: Mapping[str, str] | None = os.environ) -> SourceFile:
    """Read a source file.

    ``environ`` resolves a password written as ``${NAME}``; None leaves the reference as it is. Raises
    ``config.NOT_YAML``, ``config.INVALID``, ``config.NOT_SUPPORTED`` or ``config.SECRET_MISSING``.
    """
    document = read(text, file_name)
    model, findings = validate(document, SourceModel)
    if model is not None:
        findings = _check(document, model, environ)
    problem = error_of(findings)
    if problem is not None:
        raise problem
    if model is None:
        raise config.INVALID(finding=file_name, more="")
    return SourceFile(_to_proto(model, environ), notes_of(document, _NOTES))


def parse_source(text: str, file_name: str, environ: Mapping[str, str] | None = os.environ) -> pb.SourceConfig:
    """The configuration of :func:`parse_source_file`, without its notes."""
    return parse_source_file(text, file_name, environ).config


def _check(document: Document, model: SourceModel, environ: Mapping[str, str] | None) -> list[ConfigFinding]:
    findings = check_database(document, ("from",), model.from_, environ)
    if model.filters:
        findings.append(
            document.finding(
                ("filters",), "event filters are not supported yet", at_key=True, spec=config.NOT_SUPPORTED
            )
        )
    return findings


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
