"""Reads all values of one unique key of a source's shard tables in an order that all sources share.

A merge of such streams finds every key that exists twice. Keys that consist of numbers are read along their index, in
pages, mapped, as bytes that sort like the numbers. All others are read as the SHA-256 of what the target compares (a
text's weights by the target's collation), sorted by the server, on its disk if there are many. In both cases a worker
holds pages only. One source is read in one consistent snapshot.

Source of the weights: MySQL 8.4 Reference Manual, "String Functions", WEIGHT_STRING; MariaDB Knowledge Base,
"WEIGHT_STRING". Weights depend on the server's version: streams of different versions have different forms.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import pymysql
from pymysql.cursors import SSCursor

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    Session,
    Side,
    coded_errors,
    connect,
    rows,
    server_info,
    text_of,
)
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, PartitionId
from shardmerge.worker.snapshot.chunks import Bound
from shardmerge.worker.snapshot.key_order import above
from shardmerge.worker.target.tables.target_table import NO_SUCH_COLLATION
from shardmerge.worker.verify.precheck.keys.merged_keys import MergedKey, MergedKeyColumn

PAGE = 5000
"""Keys of one shard table that are read at a time."""

_ALL_PAGES = 200_000
_LEAST_PAGE = 100
_BATCH = 2000
_WIDTH = 9  # bytes: a mapped or unsigned BIGINT, and a sign
_ZERO = 1 << 63
_ANSWER_SECONDS = 3600.0  # the server sorts before it answers


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key. ``order``: equal for equal keys; ``table``: the number of its shard table."""

    order: bytes
    table: int
    shown: str


def number_order(values: Sequence[int]) -> bytes:
    """Bytes that sort like the numbers. Pure."""
    return b"".join((value + _ZERO).to_bytes(_WIDTH, "big") for value in values)


def merged(streams: Sequence[Iterator[KeyEntry]]) -> Iterator[KeyEntry]:
    """Merge ascending streams into one. Pure; holds one entry of each."""
    return heapq.merge(*streams, key=lambda entry: entry.order)


def batches(form: str, tables: Sequence[str], entries: Iterator[KeyEntry]) -> Iterator[pb.KeyBatch]:
    """Group entries into messages; the first message, which may have no keys, names the tables."""
    yield pb.KeyBatch(form=form, tables=tables)
    last = b""
    while some := list(islice(entries, _BATCH)):
        for entry in some:
            if entry.order < last:
                raise errors.worker.INTERNAL(kind="KeyOrder", where="the proof of keys", reason=entry.shown)
            last = entry.order
        yield pb.KeyBatch(
            orders=[entry.order for entry in some],
            shards=[entry.table for entry in some],
            shown=[entry.shown for entry in some],
        )


def read_sorted_keys(source: config.SourceConfig, keys: Sequence[MergedKey], *, digests: bool) -> Iterator[pb.KeyBatch]:
    """``keys``: one key of one target table, as each of the source's shard tables has it. ``digests``: use digests even
    for numbers, because a shard table of another source cannot be read along an index.

    Raises what connecting raises, KEYS_NOT_COMPARED, coded server errors.
    """
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        with session.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        tables = [f"{key.plan.table.schema}.{key.plan.table.name}" for key in keys]
        if not digests and all(key.along_index for key in keys):
            size = max(min(PAGE, _ALL_PAGES // max(len(keys), 1)), _LEAST_PAGE)
            streams = [_numbers(session, key, number, size) for number, key in enumerate(keys)]
            yield from batches("numbers", tables, merged(streams))
            return
        info = server_info(session)
        form = f"weights of {info.flavor} {'.'.join(map(str, info.version))}: {_one_form(keys)}"
        if not any(column.collation for key in keys for column in key.columns):
            form = f"texts: {_one_form(keys)}"
        yield from batches(form, tables, _digests(session, keys))


def _one_form(keys: Sequence[MergedKey]) -> str:
    """Raises KEYS_NOT_COMPARED."""
    forms = {key.form for key in keys}
    if len(forms) == 1 and "" not in forms:
        [form] = forms
        return form
    why = next((shard.why for shard in (key.to_proto() for key in keys) if shard.why), "")
    raise not_compared(
        keys[0].to_proto(), why or f"the shard tables' columns are of different types: {'; '.join(sorted(forms))}"
    )


def not_compared(shard: pb.KeyShard, reason: str) -> ShardmergeError:
    return errors.check_data.KEYS_NOT_COMPARED(
        target=f"{shard.target_schema}.{shard.target_table}",
        columns=", ".join(shard.columns),
        reason=reason,
        way_out="Nothing is lost by it: the task stops at the first key that exists twice.",
    )


def _numbers(session: Session, key: MergedKey, number: int, size: int) -> Iterator[KeyEntry]:
    """Read page after page, each after the last key of the previous one; ``size``: of a page."""
    names = [column.name for column in key.columns]
    listed = ", ".join(names)
    encoded = [name.encode() for name in names]
    last: Bound = ()
    while True:
        conditions = [part for part in (key.not_null, f"({above(encoded, last).decode()})" if last else "") if part]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        page = rows(session, f"SELECT {listed} FROM {key.full_name}{where} ORDER BY {listed} LIMIT {size}")
        for row in page:
            values = key.mapped(row)
            yield KeyEntry(number_order([int(value) for value in values]), number, key.shown(values))
        if len(page) < size:
            return
        last = tuple(b"%d" % int(value) for value in page[-1])


def _digests(session: Session, keys: Sequence[MergedKey]) -> Iterator[KeyEntry]:
    parts: list[str] = []
    spaces = _spaces(session, keys)
    for number, key in enumerate(keys):
        compared = ", ".join(_compared(column, spaces) for column in key.columns)
        listed = ", ".join(f"{column.read} AS k{place}" for place, column in enumerate(key.columns))
        where = f" WHERE {key.not_null}" if key.not_null else ""
        digest = f"SHA2(CONCAT_WS('|', {compared}), 256)"
        parts.append(f"(SELECT CAST({digest} AS BINARY(64)) AS d, {number} AS n, {listed} FROM {key.full_name}{where})")
    statement = f"{' UNION ALL '.join(parts)} ORDER BY d"
    with SSCursor(session) as cursor:
        cursor.execute(statement)
        while page := cursor.fetchmany(_BATCH):
            for digest, number, *values in page:
                key = keys[int(number)]
                yield KeyEntry(bytes(digest), int(number), key.shown(key.mapped(text_of(value) for value in values)))


def _spaces(session: Session, keys: Sequence[MergedKey]) -> dict[str, str]:
    """By collation: the hex of a space's weight if trailing spaces are ignored, else "".

    Raises KEYS_NOT_COMPARED when the source lacks a collation of the target.
    """
    found: dict[str, str] = {}
    for key in keys:
        for column in key.columns:
            collation = column.collation
            if not collation or collation in found:
                continue
            charset = collation.partition("_")[0]
            try:
                [(weight, pads)] = rows(
                    session,
                    f"SELECT HEX(WEIGHT_STRING(CONVERT(' ' USING {charset}) COLLATE {collation})), "
                    f"CONVERT('a' USING {charset}) COLLATE {collation} = CONVERT('a ' USING {charset})",
                )
            except pymysql.MySQLError as error:
                if errno_of(error) not in NO_SUCH_COLLATION:
                    raise
                raise not_compared(
                    key.to_proto(), f"a source does not know the target's collation {collation}"
                ) from error
            found[collation] = text_of(weight) if pads else ""
    return found


def _compared(column: MergedKeyColumn, spaces: dict[str, str]) -> str:
    """An expression whose values are equal exactly if the keys are equal at the target."""
    if not column.collation:
        match column.item.mapping:
            case None:
                return column.read
            case PartitionId(prefix=prefix):
                return f"CAST({column.name} + {prefix} AS CHAR)"
            case _:
                return _affixed(column, column.read)
    charset = column.collation.partition("_")[0]
    text = _affixed(column, f"CONVERT({column.name} USING utf8mb4)")
    weights = f"HEX(WEIGHT_STRING(CONVERT({text} USING {charset}) COLLATE {column.collation}))"
    space = spaces[column.collation]
    return f"TRIM(TRAILING '{space}' FROM {weights})" if space else weights


def _affixed(column: MergedKeyColumn, text: str) -> str:
    match column.item.mapping:
        case AddPrefix(text=affix):
            return f"CONCAT(CONVERT(X'{affix.encode().hex()}' USING utf8mb4), {text})"
        case AddSuffix(text=affix):
            return f"CONCAT({text}, CONVERT(X'{affix.encode().hex()}' USING utf8mb4))"
        case _:
            return text
