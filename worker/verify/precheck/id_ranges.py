"""Checks ids: whether they fit their mapping, how many are left, whether counters will collide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import quote_name, rows, text_of
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, TablePlan
from shardmerge.worker.target.tables.extracted_keys import created_keys
from shardmerge.worker.target.tables.row_ownership import ExtractedTexts, owned_rows
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource
from shardmerge.worker.verify.precheck.tables import table_name

NEAR_PERCENT = 90
"""The used part of a column's possible ids from which on a counter is reported."""

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def check_ids(checklist: Checklist, view: ConnectedSource, plans: Sequence[TablePlan]) -> None:
    checklist.run("auto_increment_ID", lambda: _ids(view, plans))


def _ids(view: ConnectedSource, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
    for plan in plans:
        for column in plan.columns:
            if isinstance(column.mapping, PartitionId):
                yield from _id_range(view, plan, column, column.mapping)
    by_target: dict[str, list[TablePlan]] = {}
    for plan in plans:
        by_target.setdefault(plan.target_name, []).append(plan)
    yield from _near_limit(view, plans)
    for target, merged in by_target.items():
        risky = [table_name(plan.table) for plan in merged if _counts_by_itself(plan)]
        if len(risky) > 1 and not _kept_apart(merged):
            yield warned(
                "auto_increment_ID",
                view.source_id,
                errors.check.ID_COLLISION_RISK(
                    source=view.source_id, count=len(risky), target=target, tables=abbreviated(risky)
                ),
            )


def _kept_apart(merged: Sequence[TablePlan]) -> bool:
    """Whether equal ids of the shard tables are different keys by the extracted columns in the target's keys; item
    extracted_columns checks an existing target."""
    return all(created_keys(plan).columns for plan in merged) and isinstance(
        owned_rows(merged[0], merged), ExtractedTexts
    )


def _counts_by_itself(plan: TablePlan) -> bool:
    """Whether the key is a counter of its own table that goes to the target as it is."""
    key: Sequence[ColumnPlan] = [plan.columns[index] for index in plan.source_key]
    return len(key) == 1 and key[0].column.auto_increment and key[0].mapping is None


def _id_range(
    view: ConnectedSource, plan: TablePlan, column: ColumnPlan, mapping: PartitionId
) -> Iterator[pb.CheckResult]:
    table, name = plan.table, column.column.name
    leading = {unique[0] for unique in table.unique_keys}
    if name not in leading:
        return  # it would take a full scan; the copy checks every value anyway
    [(low, high)] = rows(
        view.session,
        f"SELECT MIN({quote_name(name)}), MAX({quote_name(name)}) "
        f"FROM {quote_name(table.schema)}.{quote_name(table.name)}",
    )
    if low is None:
        return
    highest = (1 << mapping.bits) - 1
    if int(low) < 0 or int(high) > highest:
        yield failed(
            "auto_increment_ID",
            view.source_id,
            errors.check.ID_RANGE(
                source=view.source_id,
                bits=mapping.bits,
                schema=table.schema,
                table=table.name,
                column=name,
                highest=highest,
                low=low,
                high=high,
            ),
        )


def _near_limit(view: ConnectedSource, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
    counting = {(plan.table.schema, plan.table.name): found for plan in plans if (found := _counter(plan)) is not None}
    if not counting:
        return
    counters = rows(
        view.session,
        "SELECT TABLE_SCHEMA, TABLE_NAME, AUTO_INCREMENT FROM information_schema.TABLES "
        "WHERE AUTO_INCREMENT IS NOT NULL AND TABLE_SCHEMA IN %s",
        (sorted({schema for schema, _ in counting}),),
    )
    near: list[str] = []
    for schema, name, counter in counters:
        column = counting.get((text_of(schema), text_of(name)))
        if column is None:
            continue
        highest = highest_id(column)
        if highest and int(counter) * 100 >= highest * NEAR_PERCENT:
            near.append(f"{text_of(schema)}.{text_of(name)}.{column.column.name} at {counter} of {highest}")
    if near:
        found = errors.check_data.ID_NEAR_LIMIT(source=view.source_id, percent=NEAR_PERCENT, tables=abbreviated(near))
        yield warned("auto_increment_ID", view.source_id, found)


def _counter(plan: TablePlan) -> ColumnPlan | None:
    return next((column for column in plan.columns if column.column.auto_increment), None)


def highest_id(plan: ColumnPlan) -> int:
    """The highest id that fits the column, and its mapping; 0: not known (a counter may be a float). Pure."""
    word = plan.column.type_text.partition("(")[0].partition(" ")[0].lower()
    bits = _BITS.get(word, 0)
    if not bits:
        return 0
    highest = (1 << (bits if plan.column.unsigned else bits - 1)) - 1
    mapping = plan.mapping
    return min(highest, (1 << mapping.bits) - 1) if isinstance(mapping, PartitionId) else highest
