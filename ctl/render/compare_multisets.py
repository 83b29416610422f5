"""Judges tables without a key: adds up the sums of all sources and compares them with the target's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.proto import compare_pb2 as pb


def judge_multisets(tables: Sequence[pb.ComparedTable]) -> None:
    """Set the counts, ``remark`` and ``not_compared`` of the tables with sums, which have the results of all sources.

    The sums of every source are of one state of its shard tables and of the target. If all of them saw the same target,
    its rows are those of all shard tables together. Sources of MariaDB and MySQL may read values in other forms (JSON):
    if the same rows of the target have the same sums in each form, the forms give the same checksums. Only the numbers
    of rows show how many rows are missing or extra.
    """
    by_target: dict[str, list[pb.ComparedTable]] = {}
    for table in tables:
        if table.HasField("multiset"):
            by_target.setdefault(table.target_table, []).append(table)
    for group in by_target.values():
        _judge(group)


def _judge(group: Sequence[pb.ComparedTable]) -> None:
    sums = [table.multiset for table in group]
    compared, wanted = sum(item.compared for item in sums), max(item.shard_tables for item in sums)
    why = ""
    if compared != wanted:
        why = f"it has no key: {compared} of the target's {wanted} shard tables were read, and all are needed"
    elif any(item.source.without_checksum or item.target.without_checksum for item in sums):
        why = "it has no key, and a row is too long for a checksum"
    elif any(item.target != sums[0].target for item in sums):
        differ = len({item.form for item in sums}) > 1
        reason = (
            "its columns differ between the sources"
            if differ
            else "the target changed between the reads of two sources"
        )
        why = f"it has no key, and {reason}"
    for table in group:
        table.not_compared = why
    if not why:
        _compare(group[0], group)


def _compare(first: pb.ComparedTable, group: Sequence[pb.ComparedTable]) -> None:
    target = first.multiset.target
    rows = sum(table.multiset.source.rows for table in group)
    equal = rows == target.rows and all(
        sum(int(getattr(table.multiset.source, name)) for table in group) == int(getattr(target, name))
        for name in ("first", "second")
    )
    first.missing = max(0, rows - target.rows)
    first.extra = max(0, target.rows - rows)
    first.different = int(not equal and rows == target.rows)
    first.unnamed = first.missing + first.extra + first.different
    text = f"no key, compared as a whole: {rows} rows in the shard tables, {target.rows} at the target"
    for table in group:
        table.remark = text if equal else f"{text}; rows differ, at least as many as are counted"
