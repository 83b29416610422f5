"""Reads the daemons' own files, in YAML, or in TOML as in DM; flags of the command line win over them."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from shardmerge.proto.config import defaults
from shardmerge.proto.config.address import EVERY_INTERFACE
from shardmerge.proto.config.daemon.model import DaemonFile, MasterFile, WorkerFile
from shardmerge.proto.config.daemon.spark import problem_of
from shardmerge.proto.config.daemon.tls import open_findings, tls_findings
from shardmerge.proto.config.document.file_model import validate
from shardmerge.proto.config.document.masking import without_secrets
from shardmerge.proto.config.document.notes import notes_of, refusals
from shardmerge.proto.config.document.toml_file import compose_toml, looks_like_toml
from shardmerge.proto.config.document.yaml_file import Document, Tree, YamlPlace, compose, read_file
from shardmerge.proto.config.finding import ConfigFinding, error_of
from shardmerge.proto.config.secrets.key_file import key_file
from shardmerge.proto.errors import config, worker
from shardmerge.proto.secret import READS_BOUND

F = TypeVar("F", bound=DaemonFile)


@dataclass(frozen=True, slots=True)
class LoadedFile(Generic[F]):
    """A daemon's configuration, file and flags together. ``notes``: accepted keys that have another effect here."""

    model: F
    notes: tuple[str, ...]


def read_daemon(kind: type[F], text: str, file_name: str, flags: Mapping[str, str] | None = None) -> LoadedFile[F]:
    """Read a daemon's file; ``flags`` are values of the command line by key. Raises ``config.*``."""
    document, findings = compose_daemon(text, file_name)
    model: F | None = None
    if document is not None:
        document = _with_flags(document, kind, flags or {})
        model, findings = check_daemon(document, kind)
    problem = error_of(findings)
    if problem is not None:
        raise problem
    if model is None or document is None:
        raise config.INVALID(finding=file_name, more="")
    return LoadedFile(model.model_copy(update=_identity(model)), notes_of(document, kind))


def check_daemon(document: Document, kind: type[F]) -> tuple[F | None, list[ConfigFinding]]:
    """The model of a daemon's file, and every finding. Pure."""
    model, findings = validate(document, kind)
    if model is not None:
        findings = [*refusals(document, model), *tls_findings(document, model), *open_findings(document, model)]
        if isinstance(model, WorkerFile):
            findings += _spark_problem(document, model)
    return model, [*findings, *_spark_findings(document)]


def compose_daemon(text: str, file_name: str) -> tuple[Document | None, list[ConfigFinding]]:
    """Parse the file, YAML or TOML; None and the findings if that fails. Pure."""
    return compose_toml(text, file_name) if looks_like_toml(text, file_name) else compose(text, file_name)


def load_daemon(kind: type[F], path: Path | None, flags: Mapping[str, str] | None = None) -> LoadedFile[F]:
    """:func:`read_daemon` of a file; None: defaults and flags only. Raises ``config.*``."""
    return read_daemon(kind, read_file(path) if path else "", str(path or "defaults"), flags)


def parse_master(text: str, file_name: str, flags: Mapping[str, str] | None = None) -> MasterFile:
    """The configuration of :func:`read_daemon`, without its notes."""
    return read_daemon(MasterFile, text, file_name, flags).model


def parse_worker(text: str, file_name: str, flags: Mapping[str, str] | None = None) -> WorkerFile:
    """The configuration of :func:`read_daemon`, without its notes."""
    return read_daemon(WorkerFile, text, file_name, flags).model


def shown(file: MasterFile | WorkerFile) -> str:
    """A daemon's settings, defaults and flags included, as a file of its kind; secrets are ``******``."""
    settings = file.model_dump(by_alias=True, mode="json")
    settings["secret-key-path"] = key_file(file.secret_key_path, os.environ).path
    if isinstance(file, WorkerFile):
        settings["spark"] = {"master": defaults.SPARK_MASTER, **file.spark}
    return without_secrets(settings) + READS_BOUND


def _with_flags(document: Document, kind: type[DaemonFile], flags: Mapping[str, str]) -> Document:
    """The document with the flags applied; lists are split at commas."""
    nowhere = YamlPlace(0, 0)
    lists = {field.alias for field in kind.model_fields.values() if isinstance(field.default, tuple)}
    root: dict[str, Tree] = dict(document.root)
    keys, values = dict(document.keys), dict(document.values)
    for key, text in flags.items():
        if key in lists:
            root[key] = [part.strip() for part in text.split(",")]
        else:
            root[key] = text
        keys[(key,)] = values[(key,)] = nowhere
    return Document(document.file, root, keys, values)


def _spark_findings(document: Document) -> list[ConfigFinding]:
    settings = document.root.get("spark")
    if not isinstance(settings, dict):
        return []
    findings: list[ConfigFinding] = []
    for key in settings:
        if key == "spark.master":
            message = "give it as master"
        elif key == "master" or key.startswith("spark."):
            continue
        else:
            message = "must be master or the full name of a Spark setting"
        findings.append(document.finding(("spark", key), message, at_key=True))
    return findings


def _spark_problem(document: Document, model: WorkerFile) -> list[ConfigFinding]:
    """The setting of Spark with which the worker would not start, if there is one."""
    advertised = _identity(model)["advertise_addr"]
    problem = problem_of(model.spark_settings(), advertised)
    if problem is None:
        return []
    key = problem.values.get("key", "master")
    path = ("advertise-addr",) if problem.spec is worker.SPARK_WORKER_ON_LOOPBACK else ("spark", key)
    found = document.finding(path, problem.message, spec=problem.spec)
    return [replace(found, error=problem)]


def _identity(model: DaemonFile) -> dict[str, str]:
    """Fill in the name and the advertised address if the file has none."""
    host, _, port = model.listening.rpartition(":")
    everywhere = host in EVERY_INTERFACE
    advertised = model.advertise_addr or (f"{platform.node()}:{port}" if everywhere else model.listening)
    return {"name": model.name or f"{platform.node()}-{port}", "advertise_addr": advertised}
