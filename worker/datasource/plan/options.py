"""The options of ``spark.read.format("mysql-shards")``: texts, as Spark passes them, become sources and rules. Pure,
except that it reads a task file.

The rules are those of a task file and are checked by its model: the options are written as such a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config import defaults
from shardmerge.proto.config.document.yaml_file import read, read_file
from shardmerge.proto.config.source import parse_source
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.datasource.plan.fixed_position import FixedPosition, from_text
from shardmerge.worker.datasource.plan.lazy_rules import LazyRules
from shardmerge.worker.datasource.plan.password import Password, PasswordFile, PasswordText, PasswordVariable
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadSource
from shardmerge.worker.datasource.plan.where import parse_where
from shardmerge.worker.rules import Rules

CHUNK_ROWS = 100_000
MAX_UNDO_MIB = 512

_PASSWORDS = ("password", "password-file", "password-env")
_SECURITY = ("ssl-ca", "ssl-cert", "ssl-key", "cert-allowed-cn", "allow-public-key-retrieval")
_SERVER = ("host", "port", "user", *_SECURITY)
_ONE_SOURCE = ("source-id", *_SERVER, *_PASSWORDS)
_EXTRACTS = ("extract-table", "extract-schema", "extract-source")
_INLINE = ("tables", "routes", "column-mappings", "case-sensitive", *_EXTRACTS)
_OF_READ = ("columns", "where", "chunk-rows", "zero-dates", "max-undo-mib", "max-inflated-event-mib")
_KNOWN = frozenset((*_ONE_SOURCE, *_INLINE, "sources", "task-file", "target-table", "position", *_OF_READ))
_TARGET = TargetTable("mysql-shards", "rows")
"""The name of the merged table where the options name none."""


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Raises ``read.OPTION``, and what the models of source files and task files raise."""
    found = {key.lower(): value for key, value in options.items()}
    for key in found:
        if key not in _KNOWN:
            raise errors.read.OPTION(option=key, reason="there is no such option")
    sources = _sources(found)
    subtasks, target, wanted = _subtasks(found, sources)
    zero_dates = found.get("zero-dates", "fail").lower()
    if zero_dates not in ("fail", "null"):
        raise errors.read.OPTION(option="zero-dates", reason="it is fail or null")
    fixed = _fixed(found, sources)
    made = [
        ReadSource(source, endpoint, password, LazyRules(Rules.from_config(subtasks[source])), fixed.get(source))
        for source, (endpoint, password, _) in sources.items()
    ]
    return ReadOptions(
        sources=tuple(made),
        target=target,
        wanted=wanted,
        columns=tuple(_listed(found.get("columns", ""))),
        where=parse_where(found.get("where", "")),
        chunk_rows=number(found, "chunk-rows", CHUNK_ROWS),
        zero_is_null=zero_dates == "null",
        most_undo=number(found, "max-undo-mib", MAX_UNDO_MIB) << 20,
        most_inflated=number(found, "max-inflated-event-mib", defaults.MAX_INFLATED_EVENT_MIB) << 20,
    )


def _fixed(found: Mapping[str, str], sources: _Sources) -> Mapping[str, FixedPosition]:
    """By source-id: the positions of the option ``position``, of all sources or of none."""
    if "position" not in found:
        return {}
    fixed = from_text(found["position"])
    if fixed.keys() != sources.keys():
        reason = f"it is of the sources {', '.join(fixed)}, but the DataFrame has {', '.join(sources)}"
        raise errors.read.OPTION(option="position", reason=reason)
    return fixed


_Sources = dict[str, tuple[Endpoint, Password, tuple[str, ...] | None]]
"""By source-id: endpoint, password, and the names of its column mappings, None for all."""


def _sources(found: Mapping[str, str]) -> _Sources:
    if "sources" not in found:
        own: dict[str, object] = {key: found[key] for key in _ONE_SOURCE if key in found}
        name = str(own.pop("source-id", "mysql-01"))
        return {name: _source("", name, own)}
    for key in _ONE_SOURCE:
        if key in found:
            raise errors.read.OPTION(option=key, reason="with option sources each source has its own, within it")
    made: _Sources = {}
    for name, entry in read(found["sources"], "option sources").root.items():
        if not isinstance(entry, dict):
            raise errors.read.OPTION(option="sources", reason=f"source {name} needs keys such as host, port and user")
        made[name] = _source(f"sources, {name}: ", name, dict(entry))
    if not made:
        raise errors.read.OPTION(option="sources", reason="it names no source")
    return made


def _source(place: str, name: str, entry: dict[str, object]) -> tuple[Endpoint, Password, tuple[str, ...] | None]:
    given = [key for key in _PASSWORDS if key in entry]
    if len(given) > 1:
        raise errors.read.OPTION(option=f"{place}{given[1]}", reason=f"{given[0]} is there, too: only one can apply")
    password: Password = PasswordText("")
    if given:
        text = str(entry.pop(given[0]))
        kinds = {"password": PasswordText, "password-file": PasswordFile, "password-env": PasswordVariable}
        password = kinds[given[0]](text)
    for key in ("host", "user"):
        if key not in entry:
            raise errors.read.OPTION(option=f"{place}{key}", reason="it is needed")
    rules = entry.pop("column-mapping-rules", None)
    security = {key: entry.pop(key) for key in _SECURITY if key in entry}
    if isinstance(security.get("cert-allowed-cn"), str):
        security["cert-allowed-cn"] = _listed(str(security["cert-allowed-cn"]))
    if security and "security" not in entry:
        entry["security"] = security
    entry.setdefault("port", "3306")
    # Only keys and names of files: without the password, the text has no secret that a message could show.
    config = parse_source(json.dumps({"source-id": name, "from": entry}), f"source {name}", environ=None)
    names = None if rules is None else _names(rules)
    return Endpoint.from_proto(getattr(config, "from")), password, names


def _names(rules: object) -> tuple[str, ...]:
    return tuple(map(str, cast("list[object]", rules))) if isinstance(rules, list) else (str(rules),)


def _subtasks(found: Mapping[str, str], sources: _Sources) -> tuple[dict[str, pb.SubTaskConfig], TargetTable, str]:
    """By source-id; the merged table; what selects the tables, for messages."""
    if "task-file" in found:
        for key in _INLINE:
            if key in found:
                raise errors.read.OPTION(option=key, reason="the task file has it: give only one of both")
        text, file = read_file(Path(found["task-file"])), found["task-file"]
        target = _target(found)
        wanted = f"the task file for target {target.schema}.{target.table}"
    else:
        text, file = json.dumps(_as_task(found, sources)), "options"
        target = _target(found) if "routes" in found else _TARGET
        wanted = f"option tables ({found['tables']})" if "tables" in found else "option routes"
    subtasks = {subtask.source_id: subtask for subtask in _parsed(text, file)}
    if subtasks.keys() != sources.keys():
        reason = f"the sources are {', '.join(sources)}, but those of the task are {', '.join(subtasks)}"
        raise errors.read.OPTION(option="sources", reason=reason)
    return subtasks, target, wanted


def _parsed(text: str, file: str) -> tuple[pb.SubTaskConfig, ...]:
    # Without an environment: the login of the target is not used.
    return parse_task(text, file, environ=None).to_subtasks()


def _target(found: Mapping[str, str]) -> TargetTable:
    schema, point, table = found.get("target-table", "").partition(".")
    if not (schema and point and table):
        raise errors.read.OPTION(option="target-table", reason="it names the merged table as schema.table")
    return TargetTable(schema, table)


def _as_task(found: Mapping[str, str], sources: _Sources) -> dict[str, object]:
    """The options as a task file."""
    if ("tables" in found) == ("routes" in found):
        raise errors.read.OPTION(option="tables", reason="give one of tables, routes and task-file")
    if "routes" in found:
        for key in _EXTRACTS:
            if key in found:
                raise errors.read.OPTION(option=key, reason="with option routes it belongs to a route")
        routes: dict[str, object] = dict(_tree(found, "routes"))
    else:
        routes = _routes_of_tables(found)
    mappings = _tree(found, "column-mappings")
    instances = [
        {
            "source-id": name,
            "route-rules": list(routes),
            "column-mapping-rules": list(mappings if own is None else own),
        }
        for name, (_, _, own) in sources.items()
    ]
    return {
        "name": "mysql-shards",
        "task-mode": "full",
        "case-sensitive": found.get("case-sensitive", "false"),
        "extract-in-key": "never",
        "target-database": {"host": "none", "port": "3306", "user": "none"},
        "mysql-instances": instances,
        "routes": routes,
        "column-mappings": mappings,
    }


def _routes_of_tables(found: Mapping[str, str]) -> dict[str, object]:
    extracts = {key: _tree(found, key) for key in _EXTRACTS if key in found}
    routes: dict[str, object] = {}
    for number, text in enumerate(_listed(found["tables"])):
        schema, point, table = text.partition(".")
        if not (schema and point and table):
            raise errors.read.OPTION(option="tables", reason=f"{text} is no pattern of the form schema.table")
        target = {"target-schema": _TARGET.schema, "target-table": _TARGET.table}
        routes[f"tables-{number}"] = {"schema-pattern": schema, "table-pattern": table, **target, **extracts}
    if not routes:
        raise errors.read.OPTION(option="tables", reason="it has no pattern")
    return routes


def _tree(found: Mapping[str, str], key: str) -> Mapping[str, object]:
    """An option that is a mapping, as JSON or YAML."""
    return read(found[key], f"option {key}").root if key in found else {}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def number(found: Mapping[str, str], key: str, default: int, most: int = 999_999_999) -> int:
    text = found.get(key, str(default)).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 15 and 0 < int(text) <= most):
        raise errors.read.OPTION(option=key, reason=f"it is a whole number from 1 to {most}")
    return int(text)
