"""Finds conflicts between keys of a task file that are each valid."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

from shardmerge.proto.config.database import check_database
from shardmerge.proto.config.document.notes import refusals
from shardmerge.proto.config.document.repair import RepairedModel
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, KeyPath, nearest
from shardmerge.proto.config.rules.block_allow import BlockAllowRules
from shardmerge.proto.config.rules.overlap import overlaps
from shardmerge.proto.config.rules.regex import RegexError, compile_regex
from shardmerge.proto.config.rules.reserved_names import SYSTEM_SCHEMAS
from shardmerge.proto.config.rules.rule_model import BlockAllow
from shardmerge.proto.config.task.blocks import Mydumper
from shardmerge.proto.config.task.instance import Instance
from shardmerge.proto.config.task.model import TaskModel
from shardmerge.proto.errors import config

CHECKING_ITEMS = frozenset(
    {
        "all",
        "connection",
        "target_connection",
        "dump_privilege",
        "replication_privilege",
        "version",
        "server_id",
        "binlog_enable",
        "binlog_format",
        "binlog_row_image",
        "binlog_db",
        "meta_position",
        "online_ddl",
        "conn_number",
        "target_privilege",
        "table_schema",
        "schema_of_shard_tables",
        "target_indexes",
        "auto_increment_ID",
        "primary_key",
        "references",
        "empty_region",
        "region_distribution",
        "downstream_version",
        "free_space",
        "downstream_mutex_features",
        "downstream_table_empty",
        "binlog_retention",
        "clock_skew",
        "collation",
        "duplicate_keys",
        "extracted_columns",
        "filter_rules",
        "gtid_gaps",
        "local_infile",
        "relay_disk",
        "spark",
        "triggers",
        "sql_mode",
    }
)
"""Values of ``ignore-checking-items``: "all", and the names of the worker's checks
(worker/verify/precheck/findings.py)."""


_REFERENCES = frozenset(
    {
        "route-rules",
        "filter-rules",
        "column-mapping-rules",
        "expression-filters",
        "transform-rules",
        "block-allow-list",
        "black-white-list",
        "mydumper-config-name",
        "loader-config-name",
        "syncer-config-name",
        "validator-config-name",
    }
)
"""Keys of an instance that name rules and blocks."""

_INSTEAD = {
    "dump": "there are no files between reading and writing; full copies the history to the target",
    "load": "there are no files between reading and writing; full copies the history from the sources",
    "load&sync": "there are no files between reading and writing; all copies the history, then follows the changes",
}
"""What to use instead of DM's modes that work on dump files."""
_HARMLESS_ARGUMENTS = frozenset(
    [
        "--consistency",
        "--no-locks",
        "--transactional-consistency",
        "--skip-tz-utc",
        "--params",
        "--escape-backslash",
        "--threads",
        "-t",
        "--rows",
        "-r",
        "--filesize",
        "-F",
        "--chunk-filesize",
        "--statement-size",
        "-s",
        "--no-views",
        "-W",
        "--compress",
        "--complete-insert",
        "--read-timeout",
        "--tidb-mem-quota-query",
        "--status-addr",
        "--loglevel",
        "--logfile",
        "-L",
        "--logfmt",
    ]
)
"""Options of dumpling, and of mydumper before it, that control how to dump and not what: locks, threads, files, logs.
Views are never copied."""
_HARMLESS_WITH_VALUE = frozenset({"-t", "-r", "-F", "-s", "-L"})
"""Those of them that a value may follow without a space; after others a letter is an option of its own."""


def check_task(
    document: Document, whole: RepairedModel[TaskModel], environ: Mapping[str, str] | None
) -> Iterator[ConfigFinding]:
    """Findings beyond those of single keys; keys with an error of their own cause no further findings."""
    task = whole.model
    if whole.is_sure(("target-database",)):
        yield from check_database(document, ("target-database",), task.target_database, environ)
    yield from refusals(document, task)
    if whole.is_sure(("shard-mode",)):
        yield from _strict(document, task)
    yield from _cascades(document, whole)
    yield from _names(document, task)
    if whole.is_sure(("meta-schema",)):
        yield from _targets(document, task)
    yield from _instances(document, task)
    yield from _references(document, whole)
    if whole.is_sure(
        ("routes",), ("block-allow-list",), ("black-white-list",), ("mysql-instances",), ("case-sensitive",)
    ):
        yield from _contradicting_routes(document, task)
    yield from _not_supported(document, whole)


def _strict(document: Document, task: TaskModel) -> Iterator[ConfigFinding]:
    if task.strict_optimistic_shard_mode and task.shard_mode != "optimistic":
        yield document.finding(("strict-optimistic-shard-mode",), "needs shard-mode: optimistic")


def _cascades(document: Document, whole: RepairedModel[TaskModel]) -> Iterator[ConfigFinding]:
    """Settings under which the rows that a cascade changes cannot be derived exactly."""
    task = whole.model
    if task.cascades != "derive" or not whole.is_sure(("cascades",)):
        return
    others: list[str] = []
    if task.shard_mode or task.is_sharding:
        others.append("shard-mode: a table that waits for a statement would lack them")
    if task.replicate.on_row_error == "quarantine":
        others.append("on-row-error: quarantine: a held row would not be changed")
    blocks = list(task.syncers.values())
    blocks += [instance.syncer for instance in task.mysql_instances if instance.syncer is not None]
    if any(block.safe_mode for block in blocks):
        others.append("safe-mode: the target may be ahead of the source's row")
    if any(instance.meta is not None and instance.meta.start_at for instance in task.mysql_instances):
        others.append("a start time: the target may be ahead of the source's row")
    for other in others:
        yield document.finding(("cascades",), f"derive excludes {other}", at_key=True)


def _names(document: Document, task: TaskModel) -> Iterator[ConfigFinding]:
    for index, item in enumerate(task.ignore_checking_items):
        if item not in CHECKING_ITEMS:
            yield document.finding(
                ("ignore-checking-items", index),
                f"unknown checking item {item}",
                suggestion=nearest(item, CHECKING_ITEMS),
            )
    if task.meta_schema.lower() in SYSTEM_SCHEMAS:
        yield document.finding(("meta-schema",), "is a system schema")
    rules = {"shadow-table-rules": task.shadow_table_rules, "trash-table-rules": task.trash_table_rules}
    for key, texts in rules.items():
        for index, text in enumerate(texts):
            if reason := _unfit(text):
                yield document.finding((key, index), reason)


def _targets(document: Document, task: TaskModel) -> Iterator[ConfigFinding]:
    for name, route in task.routes.items():
        target = route.target_schema.lower()
        if target in SYSTEM_SCHEMAS or target == task.meta_schema.lower():
            kind = "a system schema" if target in SYSTEM_SCHEMAS else "the task's meta schema"
            yield document.finding(("routes", name, "target-schema"), f"is {kind}")


def _unfit(text: str) -> str:
    """Why a rule cannot derive the original table's name; "" if it can."""
    try:
        found = compile_regex(text, needs_groups=True)
    except RegexError as error:
        return str(error)
    return "" if found.group_count else "needs a group (…), which matches the name of the table itself"


def _instances(document: Document, task: TaskModel) -> Iterator[ConfigFinding]:
    first: dict[str, int] = {}
    for index, instance in enumerate(task.mysql_instances):
        here: KeyPath = ("mysql-instances", index)
        seen = first.setdefault(instance.source_id, index)
        if seen != index:
            line = document.line(("mysql-instances", seen, "source-id"))
            yield document.finding(
                (*here, "source-id"), f"source {instance.source_id} is listed twice, see line {line}"
            )
        blocks = (
            ("mydumper", instance.mydumper, instance.mydumper_config_name),
            ("loader", instance.loader, instance.loader_config_name),
            ("syncer", instance.syncer, instance.syncer_config_name),
        )
        for key, block, name in blocks:
            if block is not None and name:
                yield document.finding((*here, key), f"is set together with {key}-config-name: use one", at_key=True)


def _references(document: Document, whole: RepairedModel[TaskModel]) -> Iterator[ConfigFinding]:
    """Names of rules: each one used must exist, each one defined must be used, none is listed twice."""
    task = whole.model
    is_old = task.black_white_list and not task.block_allow_list and not whole.left_out("block-allow-list")
    lists_key = "black-white-list" if is_old else "block-allow-list"
    defined: dict[str, Collection[str]] = {
        "routes": task.routes,
        "filters": task.filters,
        "column-mappings": task.column_mappings,
        "expression-filter": task.expression_filter,
        "transforms": task.transforms,
        lists_key: task.block_allow_lists(),
        "mydumpers": task.mydumpers,
        "loaders": task.loaders,
        "syncers": task.syncers,
        "validators": task.validators,
    }
    defined = {top: {*names, *whole.left_out(top)} for top, names in defined.items()}
    used: dict[str, set[str]] = {top: set() for top in defined}
    readable = {top for top in defined if (top,) not in whole.unsure}
    for index, instance in enumerate(task.mysql_instances):
        for key, top, names in _uses(instance, lists_key):
            path: KeyPath = ("mysql-instances", index, key)
            for position, name in enumerate(names):
                at = (*path, position) if document.holds((*path, position)) else path
                if name in names[:position]:
                    yield document.finding(at, f"{name} is listed twice")
                elif name not in defined[top] and top in readable:
                    yield document.finding(at, f"there is no {name} in {top}", suggestion=nearest(name, defined[top]))
                used[top].add(name)
    for top, names in defined.items():
        for name in names if _tells_its_references(whole) else ():
            if name not in used[top]:
                yield document.finding((top, name), "is used by no source of the task", at_key=True)
    if task.block_allow_list and task.black_white_list:
        yield document.finding(("black-white-list",), "is the old spelling of block-allow-list: use one", at_key=True)


def _contradicting_routes(document: Document, task: TaskModel) -> Iterator[ConfigFinding]:
    """Routes of equal rank that send one table to two targets; each pair once, at the later one."""
    seen: set[tuple[str, str]] = set()
    for instance in task.mysql_instances:
        routes = {name: task.routes[name] for name in instance.route_rules if name in task.routes}
        name = instance.block_allow_list or instance.black_white_list
        given = task.block_allow_lists().get(name, BlockAllow())
        lists = BlockAllowRules.from_config(task.name, given.to_proto(name), task.case_sensitive)
        for found in overlaps(routes, lists, case_sensitive=task.case_sensitive):
            if (found.first, found.second) in seen:
                continue
            seen.add((found.first, found.second))
            line = document.line(("routes", found.first))
            yield document.finding(
                ("routes", found.second),
                f"contradicts route {found.first} of line {line}: neither is more specific, and {found.schema}."
                f"{found.table} of source {instance.source_id}, for example, would go to two targets",
                at_key=True,
            )


def _tells_its_references(whole: RepairedModel[TaskModel]) -> bool:
    """Whether every rule name that a source uses is known."""
    return not any(path[0] == "mysql-instances" and (len(path) < 3 or path[2] in _REFERENCES) for path in whole.unsure)


def _uses(instance: Instance, lists_key: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(key, block it points into, names) for every reference of an instance."""
    yield "route-rules", "routes", instance.route_rules
    yield "filter-rules", "filters", instance.filter_rules
    yield "column-mapping-rules", "column-mappings", instance.column_mapping_rules
    yield "expression-filters", "expression-filter", instance.expression_filters
    yield "transform-rules", "transforms", instance.transform_rules
    single = (
        ("block-allow-list", lists_key, instance.block_allow_list),
        ("black-white-list", lists_key, "" if instance.block_allow_list else instance.black_white_list),
        ("mydumper-config-name", "mydumpers", instance.mydumper_config_name),
        ("loader-config-name", "loaders", instance.loader_config_name),
        ("syncer-config-name", "syncers", instance.syncer_config_name),
        ("validator-config-name", "validators", instance.validator_config_name),
    )
    for key, top, name in single:
        if name:
            yield key, top, (name,)


def _not_supported(document: Document, whole: RepairedModel[TaskModel]) -> Iterator[ConfigFinding]:
    """Keys that would change the data at the target if they were ignored."""
    task = whole.model

    def refuse(path: KeyPath, message: str, *, at_key: bool = True) -> ConfigFinding:
        return document.finding(path, message, at_key=at_key, spec=config.NOT_SUPPORTED)

    if task.task_mode in {"dump", "load", "load&sync"}:
        yield refuse(("task-mode",), f"{task.task_mode} is not supported: {_INSTEAD[task.task_mode]}", at_key=False)
    for index, instance in enumerate(task.mysql_instances):
        if instance.stop_at and task.task_mode == "full" and whole.is_sure(("task-mode",)):
            yield document.finding(
                ("mysql-instances", index, "stop-at"),
                "task-mode: full does not replicate, so there is nothing to end",
                at_key=True,
            )
    for name, block in task.mydumpers.items():
        yield from _dump_filters(document, ("mydumpers", name), block)
    for index, instance in enumerate(task.mysql_instances):
        if instance.mydumper is not None:
            yield from _dump_filters(document, ("mysql-instances", index, "mydumper"), instance.mydumper)


def _dump_filters(document: Document, path: KeyPath, block: Mydumper) -> Iterator[ConfigFinding]:
    refused = _filtering_argument(block.extra_args)
    if refused:
        yield document.finding(
            (*path, "extra-args"),
            f"{refused} is refused: it may select rows or tables of the history only; select tables with "
            "block-allow-list, rows with expression-filter",
            spec=config.NOT_SUPPORTED,
        )


def _filtering_argument(extra_args: str) -> str:
    """The first option of dumpling that may choose rows or tables; "" if there is none. An unknown option may."""
    try:
        words = shlex.split(extra_args)
    except ValueError:
        return "an open quote"
    for word in words:
        option = word.split("=", 1)[0]
        if not word.startswith("-") or option in _HARMLESS_ARGUMENTS:
            continue
        if word[:2] not in _HARMLESS_WITH_VALUE:
            return option
    return ""
