"""Names of the events that a DDL statement is, as event filters list them. Pure values; worker/ddl/events.py finds
them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DdlEvents:
    """``parts``: the names that each part of a statement goes by, those of the whole statement among them."""

    parts: tuple[frozenset[str], ...]

    @staticmethod
    def of(*names: str) -> DdlEvents:
        """Of a statement of one part."""
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
"""By statements of these kinds a table or rows of it go without row events (CREATE OR REPLACE TABLE too)."""

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
"""What a statement's words alone do not tell: the structures before and behind it do."""
