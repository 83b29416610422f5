"""Files of the daemons themselves: dm-master and dm-worker.

Every key is also a command-line flag of the same name; a flag wins over the file. The files are YAML,
unlike DM's TOML, and the keys are DM's where there is one.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from proto.config.finding import ConfigFinding, error_of
from proto.config.masking import without_secrets
from proto.config.model import Count, FileModel, validate
from proto.config.source import file_safe
from proto.config.yamlfile import Document, Place, Tree, read, read_file
from proto.errors import config

DEFAULT_SPARK_MASTER = "local[16]"

_EVERY_INTERFACE = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  (compared, not bound)

F = TypeVar("F", bound=BaseModel)


def _address(text: str) -> str:
    """``host:port``; ``:port`` listens on every interface; an IPv6 host stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError("must be host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("an IPv6 address needs brackets: [::1]:8261")
    return text


def _reachable(text: str) -> str:
    if text.rpartition(":")[0] in _EVERY_INTERFACE:
        raise ValueError("must name a host that the other processes can reach")
    return text


ListenAddress = Annotated[str, AfterValidator(_address)]
PeerAddress = Annotated[str, AfterValidator(_address), AfterValidator(_reachable)]
AdvertisedAddress = Annotated[str, AfterValidator(lambda text: text and _reachable(_address(text)))]
ProcessName = Annotated[str, Field(max_length=64), AfterValidator(file_safe)]


class Daemon(FileModel):
    """What both daemons are told.

    ``name``: unique among the daemons of its kind; default ``<host>-<port>``. ``advertise_addr``: what
    others dial; default the listening address, with this host's name when that is every interface.
    ``etcd``: endpoints, tried in turn.
    """

    name: ProcessName = ""
    advertise_addr: AdvertisedAddress = ""
    etcd: Annotated[tuple[PeerAddress, ...], Field(min_length=1)] = ("127.0.0.1:2379",)
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


class MasterFile(Daemon):
    """dm-master's configuration.

    ``worker_ttl``: seconds of the lease behind leadership and membership. ``rpc_timeout``: seconds for which
    a command waits until workers have done what was decided. ``lock_alert_seconds``: a sharding DDL that has not
    come through for so long is told in the log, again and again.
    """

    master_addr: ListenAddress = "127.0.0.1:8261"
    worker_ttl: Count = 5
    rpc_timeout: Count = 60
    lock_alert_seconds: Count = 300


class WorkerFile(Daemon):
    """dm-worker's configuration.

    ``relay_dir``: parent of one directory per source. ``keepalive_ttl``: seconds without contact to etcd
    after which the worker is taken for lost and stops its lanes. ``drain_seconds``: how long a stop may
    take to finish what has begun. ``spark``: settings by their full names, and ``master``, Spark's
    master URL: ``local[N]`` bounds the lanes and chunk readers that run at once.
    """

    worker_addr: ListenAddress = "127.0.0.1:8262"
    relay_dir: Annotated[str, Field(min_length=1)] = "relay-dir"
    keepalive_ttl: Count = 10
    drain_seconds: Count = 10
    spark: dict[str, str] = Field(default_factory=dict[str, str])

    def spark_settings(self) -> dict[str, str]:
        """Every Spark setting of the file; ``spark.master`` is always there."""
        settings = {key: value for key, value in self.spark.items() if key != "master"}
        return {"spark.master": self.spark.get("master", DEFAULT_SPARK_MASTER), **settings}


def parse_master(text: str, file_name: str, flags: Mapping[str, str] | None = None) -> MasterFile:
    """Read a master's file; ``flags`` are values of the command line by key. Raises ``config.*``."""
    document = _with_flags(read(text, file_name), flags or {})
    model = _valid(document, MasterFile, [])
    return model.model_copy(update=_identity(model, model.master_addr))


def parse_worker(text: str, file_name: str, flags: Mapping[str, str] | None = None) -> WorkerFile:
    """Read a worker's file; ``flags`` are values of the command line by key. Raises ``config.*``."""
    document = _with_flags(read(text, file_name), flags or {})
    model = _valid(document, WorkerFile, _spark_findings(document))
    return model.model_copy(update=_identity(model, model.worker_addr))


def load_master(path: Path | None, flags: Mapping[str, str] | None = None) -> MasterFile:
    """:func:`parse_master` of a file; None: defaults and flags only. Raises ``config.*``."""
    return parse_master(read_file(path) if path else "", str(path or "defaults"), flags)


def load_worker(path: Path | None, flags: Mapping[str, str] | None = None) -> WorkerFile:
    """:func:`parse_worker` of a file; None: defaults and flags only. Raises ``config.*``."""
    return parse_worker(read_file(path) if path else "", str(path or "defaults"), flags)


def shown(file: MasterFile | WorkerFile) -> str:
    """What a daemon was told, defaults and flags included, as a file of its kind; secrets are ``******``."""
    settings = file.model_dump(by_alias=True, mode="json")
    if isinstance(file, WorkerFile):
        settings["spark"] = {"master": DEFAULT_SPARK_MASTER, **file.spark}
    return without_secrets(settings)


def _with_flags(document: Document, flags: Mapping[str, str]) -> Document:
    """The document with the flags laid over it; ``etcd`` takes a comma list."""
    nowhere = Place(0, 0)
    root: dict[str, Tree] = dict(document.root)
    keys, values = dict(document.keys), dict(document.values)
    for key, text in flags.items():
        if key == "etcd":
            root[key] = list(text.split(","))
        else:
            root[key] = text
        keys[(key,)] = values[(key,)] = nowhere
    return Document(document.file, root, keys, values)


def _valid(document: Document, model: type[F], further: list[ConfigFinding]) -> F:
    valid, findings = validate(document, model)
    problem = error_of([*findings, *further])
    if problem is not None:
        raise problem
    if valid is None:
        raise config.INVALID(finding=document.file, more="")
    return valid


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


def _identity(model: Daemon, listening: str) -> dict[str, str]:
    """Name and advertised address where the file gives none."""
    host, _, port = listening.rpartition(":")
    everywhere = host in _EVERY_INTERFACE
    advertised = model.advertise_addr or (f"{platform.node()}:{port}" if everywhere else listening)
    return {"name": model.name or f"{platform.node()}-{port}", "advertise_addr": advertised}
