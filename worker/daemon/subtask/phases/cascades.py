"""Determines the foreign keys whose effect on rows a subtask derives, and checks that it can do so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.foreign_keys import cascading_keys
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.daemon.subtask.phases.finish import read_safe_mode_bound
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.rules.cascades import find_cascades
from shardmerge.worker.target.records.partitioning import Partitioning


def first_cascades(
    resources: RunResources, plans: Iterable[TablePlan], creations: Mapping[int, CreateStatement]
) -> CascadeKeys:
    """The keys with which the subtask begins: those that its tables had where it begins. Raises CASCADES_INEXACT."""
    config = resources.config
    if not config.derive_cascades:
        return CascadeKeys()
    texts = {number: creation.text for number, creation in creations.items()}
    try:
        found = find_cascades(plans, texts, case_sensitive=config.case_sensitive)
    except UnreadableCreateTable as error:
        raise _error(resources, errors.replicate.CASCADES_INEXACT, reason=error) from error
    if found.refused:
        reason = "; ".join(item.text for item in found.refused)
        raise _error(resources, errors.replicate.CASCADES_INEXACT, reason=reason)
    if found.keys.keys and read_safe_mode_bound(resources) is not None:
        reason = "the task has a start time, so the target may be ahead of the source's rows"
        raise _error(resources, errors.replicate.CASCADES_INEXACT, reason=reason)
    return found.keys


def check_setting(resources: RunResources, recorded: Partitioning) -> None:
    """Check that the setting is the one with which the lanes began. Raises CASCADES_CHANGED."""
    before, after = recorded.derives_cascades, resources.config.derive_cascades
    if before != after:
        names = {True: "derive", False: "refuse"}
        raise _error(resources, errors.replicate.CASCADES_CHANGED, before=names[before], after=names[after])


def check_together(
    resources: RunResources,
    keys: CascadeKeys,
    tables: tuple[Table, ...],
    away: Collection[int],
    joining: Collection[int],
    creations: Mapping[int, CreateStatement],
) -> None:
    """Check that all tables of ``keys`` are in the subtask's own lanes, and that tables that join bring no further
    keys. Raises CASCADES_AWAY."""
    if not resources.config.derive_cascades:
        return
    apart = keys.tables & (frozenset(away) | frozenset(joining))
    if apart:
        names = ", ".join(tables[number].full_name for number in sorted(apart))
        raise _error(resources, errors.replicate.CASCADES_AWAY, tables=names, reason="they are not in the same lanes")
    for number in sorted(joining):
        found = cascading_keys(creations[number].text) if number in creations else ()
        if found:
            raise _error(
                resources,
                errors.replicate.CASCADES_AWAY,
                tables=tables[number].full_name,
                reason=f"it would join the running task with the foreign key {', '.join(found)}",
            )


def _error(resources: RunResources, spec: ErrorSpec, **values: object) -> ShardmergeError:
    return spec(task=resources.config.task, source=resources.source_id, **values)
