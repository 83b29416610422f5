"""Names of DDL events as event filters list them. Pure values; worker/ddl/sql/ddl_event_names.py determines those of
a statement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DdlEvents:
    """The events of a statement. ``parts``: the event names of each part of it, including those of the whole
    statement."""

    parts: tuple[frozenset[str], ...]

    @staticmethod
    def of(*names: str) -> DdlEvents:
        """The events of a statement with one part."""
        return DdlEvents((frozenset(names),))


INCOMPATIBLE = frozenset(
    {
        "value range decrease",
        "precision decrease",
        "modify column",
        "rename column",
        "rename index",
        "drop column",
        "drop primary key",
        "drop unique key",
        "modify default value",
        "modify constraint",
        "modify columns order",
        "modify charset",
        "modify collation",
        "remove auto increment",
        "modify storage engine",
        "reorganize table partition",
        "rebuild table partition",
        "coalesce table partition",
        "split table partition",
        "exchange table partition",
        "add foreign key",
        "drop foreign key",
        "drop database",
        "drop table",
        "drop index",
        "rename table",
        "truncate table",
        "drop table partition",
        "truncate table partition",
        "modify schema charset and collate",
        "modify table charset and collate",
        "modify table comment",
        "recover table",
        "alter table partitioning",
        "remove table partitioning",
        "add column",
        "set default value",
        "rebase auto id",
        "add primary key",
        "alter index visibility",
        "alter ttl info",
        "alter ttl remove",
        "multi schema change",
    }
)
"""The group ``incompatible ddl changes`` (tiflow pkg/binlog-filter/filter.go, ``ClassifyEvent``)."""

LOSING = (
    "truncate table",
    "drop table",
    "drop database",
    "rename table",
    "create table",
    "truncate table partition",
    "drop table partition",
    "exchange table partition",
)
"""Statements of these kinds remove a table or rows of it without row events (CREATE OR REPLACE TABLE too)."""

OF_TABLES = ("alter table", "create index", "drop index", *LOSING)
"""Statements on existing tables: each one has one of these events, whatever else it has."""

STRUCTURAL = frozenset(
    {
        "value range decrease",
        "precision decrease",
        "modify default value",
        "modify constraint",
        "modify charset",
        "modify collation",
        "remove auto increment",
        "drop unique key",
        "drop foreign key",
        "rename column",
    }
)
"""Events that only the structures before and after a statement show, not its text."""
