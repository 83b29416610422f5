"""Provides hand-written plans for tests of the pure modules."""

from __future__ import annotations

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Mapping, TablePlan


def integer(name: str = "id") -> Column:
    return Column(name, ValueKind.INTEGER, "bigint(20)", nullable=False)


def text(name: str, collation: str = "utf8mb4_general_ci") -> Column:
    return Column(name, ValueKind.STRING, "varchar(50)", nullable=True, charset="utf8mb4", collation=collation)


def table_plan(
    columns: tuple[Column, ...],
    key: tuple[int, ...],
    *,
    shard: int = 0,
    schema: str = "shop_01",
    name: str = "order_01",
    one_lane: bool = False,
    mapping: Mapping | None = None,
    unique_keys: tuple[tuple[str, ...], ...] = (),
) -> TablePlan:
    """Return a plan: shard ``schema.name`` is merged into shop.orders; ``mapping`` is that of the first column."""
    table = Table(schema, name, columns, key, "PRIMARY" if key else "", unique_keys, False, "InnoDB")
    return TablePlan(
        shard=shard,
        source="mysql-01",
        table=table,
        target_schema="shop",
        target_table="orders",
        columns=tuple(
            ColumnPlan(at, column, column.name, mapping if at == 0 else None) for at, column in enumerate(columns)
        ),
        key=key,
        one_lane=one_lane,
    )
