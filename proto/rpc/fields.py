"""Rules for each field of a request: a table, and the check that applies it to every request before its handler.

A field has the rule that the table lists for it, else that of its name, else the rule of its type: a string is a line
without control characters, a number is neither negative nor beyond what a sum of such numbers can hold, a float is
finite, an enum is a value that this version knows, a list is short. A test requires a decision on every string field of
every request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from shardmerge.proto import errors
from shardmerge.proto.binlog_place import parse_binlog_place
from shardmerge.proto.escaped_text import escaped, has_controls
from shardmerge.proto.name_rules import FILE_RULE, NAME_RULE, is_file_name, is_name

_SHOWN_CHARS = 100
_MIB = 1 << 20
_MAX_NUMBER = (1 << 53) - 1
"""Exact as a double too, and thousands of them can be added up in 64 bits."""
_MAX_SECONDS = 1e15
"""Larger than any real Unix time. A lane forwards a server's time unchanged, so unusual times must pass."""
_MAX_ITEMS = 10_000


@dataclass(frozen=True, slots=True)
class Rule:
    """``requirement``: the rule as a message shows it; ``holds``: whether a value meets it."""

    requirement: str
    holds: Callable[[Any], bool]


def _line(most: int) -> Rule:
    requirement = f"must be one line of at most {most} characters without control characters"
    return Rule(requirement, lambda text: len(text) <= most and (text.isprintable() or not has_controls(text)))


def _name(most: int) -> Rule:
    return Rule(f"{NAME_RULE}, and have at most {most} characters", lambda text: len(text) <= most and is_name(text))


def _text(most: int) -> Rule:
    """A text of several lines, such as a file or a statement. No server, file format or database accepts a NUL in
    it."""
    requirement = f"must have at most {most} characters and no NUL"
    return Rule(requirement, lambda text: len(text) <= most and "\0" not in text)


def _matching(pattern: str, most: int, requirement: str) -> Rule:
    compiled = re.compile(pattern)
    return Rule(requirement, lambda text: len(text) <= most and compiled.fullmatch(text) is not None)


_IDENTITY_SUFFIX = "/compare"


def _is_place(text: str) -> bool:
    found = parse_binlog_place(text)
    return found is not None and len(text) < 300 and is_file_name(found[0])


def _is_identity(text: str) -> bool:
    return len(text) <= 80 and is_name(text.removesuffix(_IDENTITY_SUFFIX))


LINE = _line(1024)
WORD = _line(128)
NAME = _name(64)
"""The name of a task or a source."""
MEMBER = _name(320)
"""The name of a daemon: host and port, unless it is configured."""
IDENTITY = Rule(f"{NAME_RULE}, except for the suffix of a comparison", _is_identity)
IDENTIFIER = _text(256)
"""The name of a schema, table or column in the database: any character except NUL."""
TABLE = _text(600)
"""schema.table, possibly quoted, with each quote doubled."""
FILE = Rule(FILE_RULE, lambda text: len(text) <= 255 and is_file_name(text))
PLACE = Rule("must be file:position, the file's name without /", _is_place)
GTIDS = _matching(r"[0-9A-Za-z_:,\-\s]*", 8 * _MIB, "must be a GTID set")
ID = _text(700)
"""The id of a lock: task and quoted target table."""
PATTERN = _text(64 << 10)
TEXT = _text(8 * _MIB)
VALUE = Rule("", lambda _: True)
"""Data of a row or a password, without a rule; the message's size limits it."""

NAMED: dict[str, Rule] = {
    "source": NAME,
    "source_id": NAME,
    "sources": NAME,
    "task": NAME,
    "task_sources": NAME,
    "database": IDENTIFIER,
    "target_schema": IDENTIFIER,
    "target_table": IDENTIFIER,
    "schema_pattern": PATTERN,
    "table_pattern": PATTERN,
    "filename": FILE,
    "sub_dir": FILE,
}
"""Name of a field to the rule of the string in every message that :data:`TEXTS` does not list with this field."""

TEXTS: dict[str, Rule] = {
    "ConfigFile.name": _line(4096),
    "ConfigFile.content": TEXT,
    "OperateSourceRequest.source_ids": NAME,
    "OperateSourceRequest.worker": MEMBER,
    "StartTaskRequest.start_time": _line(100),
    "StartTaskRequest.stop_at": TEXT,  # may be a GTID set
    "OperateTaskRequest.name": NAME,
    "QueryStatusRequest.name": NAME,
    "CheckTaskRequest.start_time": _line(100),
    "CheckTaskRequest.stop_at": TEXT,
    "ListMemberRequest.names": MEMBER,
    "HandleBinlogRequest.binlog_pos": PLACE,
    "HandleBinlogRequest.sqls": TEXT,
    "QuarantineRequest.table": TABLE,
    "QuarantineRequest.key": VALUE,
    "UnlockDDLLockRequest.id": ID,
    "UnlockDDLLockRequest.replace_owner": NAME,
    "UnlockDDLLockRequest.action": WORD,
    "UnlockDDLLockRequest.table": IDENTIFIER,
    "OfflineMemberRequest.type": WORD,
    "OfflineMemberRequest.name": MEMBER,
    "GetConfigRequest.names": MEMBER,
    "GetConfigRequest.compared.key": MEMBER,
    "GetConfigRequest.compared.value": TEXT,
    "ShardTableName.schema": IDENTIFIER,
    "ShardTableName.table": IDENTIFIER,
    "PreviewDDLRequest.statement": TEXT,
    "PreviewDDLRequest.tables": TABLE,
    "OperateSchemaRequest.table": IDENTIFIER,
    "OperateSchemaRequest.schema": TEXT,
    "TransferSourceRequest.worker": MEMBER,
    "HistoryRequest.kinds": WORD,
    "CompareRequest.tables": TABLE,
    "CompareRequest.left_out": TABLE,
    # configurations, which the master has read from files: a file has no limits for most of these
    "SourceConfig.flavor": WORD,
    "Endpoint.host": LINE,
    "Endpoint.user": VALUE,
    "Endpoint.password": VALUE,
    "Endpoint.session.key": LINE,
    "Endpoint.session.value": VALUE,
    "Tls.ca": _line(4096),
    "Tls.cert": _line(4096),
    "Tls.key": _line(4096),
    "Tls.allowed_cn": LINE,
    "Tls.ca_content": TEXT,
    "Tls.cert_content": TEXT,
    "Tls.key_content": TEXT,
    "SourcePosition.file": FILE,
    "SourcePosition.gtid_set": GTIDS,
    "SourcePosition.server": WORD,
    "EventFilter.name": PATTERN,
    "EventFilter.events": WORD,
    "EventFilter.sql_patterns": PATTERN,
    "SubTaskConfig.meta_schema": IDENTIFIER,
    "SubTaskConfig.ignore_checking_items": WORD,
    "BlockAllowList.name": PATTERN,
    "BlockAllowList.do_dbs": PATTERN,
    "BlockAllowList.ignore_dbs": PATTERN,
    "TableName.schema": PATTERN,
    "TableName.table": PATTERN,
    "RouteRule.name": PATTERN,
    "ExtractColumn.pattern": PATTERN,
    "ExtractColumn.target_column": IDENTIFIER,
    "ColumnMappingRule.name": PATTERN,
    "ColumnMappingRule.source_column": IDENTIFIER,
    "ColumnMappingRule.target_column": IDENTIFIER,
    "ColumnMappingRule.expression": WORD,
    "ColumnMappingRule.arguments": VALUE,
    "ReferenceRule.schema": IDENTIFIER,
    "ReferenceRule.table": IDENTIFIER,
    "ReferenceRule.column": IDENTIFIER,
    "ReferenceRule.to_schema": IDENTIFIER,
    "ReferenceRule.to_table": IDENTIFIER,
    "ReferenceRule.to_column": IDENTIFIER,
    "ReferenceRule.shard_schema": IDENTIFIER,
    "ReferenceRule.shard_table": IDENTIFIER,
    "SnapshotConfig.position": WORD,
    "StartAt.time": WORD,
    "StopAt.time": WORD,
    "OnlineDdl.shadow_tables": PATTERN,
    "OnlineDdl.trash_tables": PATTERN,
    "ExpressionFilter.name": PATTERN,
    "ExpressionFilter.schema": IDENTIFIER,
    "ExpressionFilter.table": IDENTIFIER,
    "ExpressionFilter.insert_value": TEXT,
    "ExpressionFilter.update_old_value": TEXT,
    "ExpressionFilter.update_new_value": TEXT,
    "ExpressionFilter.delete_value": TEXT,
    "Transform.name": PATTERN,
    "Transform.projection": TEXT,
    "Transform.filter": TEXT,
    "Transform.python": PATTERN,
    "Transform.columns": PATTERN,
    "TransformOutput.name": PATTERN,
    "TransformOutput.type": PATTERN,
    # master to worker
    "CheckSubTaskRequest.together": NAME,
    "CheckShardsRequest.checked": NAME,
    "ShardStructure.target": TABLE,
    "ShardStructure.structure": TEXT,
    "ShardStructure.required": IDENTIFIER,
    "ShardStructure.replaced.key": IDENTIFIER,
    "ShardStructure.replaced.value": IDENTIFIER,
    "KeyShard.schema": IDENTIFIER,
    "KeyShard.table": IDENTIFIER,
    "KeyShard.columns": IDENTIFIER,
    "KeyShard.form": LINE,
    "KeyShard.first": LINE,
    "KeyShard.last": LINE,
    "KeyShard.why": TEXT,
    "KeyShard.extracted": VALUE,
    "KeyValues.values": VALUE,
    "ReadKeysRequest.columns": IDENTIFIER,
    "WorkerPreviewDDLRequest.statement": TEXT,
    "WorkerPreviewDDLRequest.tables": TABLE,
    "WorkerSkippedRequest.file": FILE,
    "WorkerQuarantineRequest.table": TABLE,
    "WorkerQuarantineRequest.key": VALUE,
    "WorkerSchemaRequest.table": IDENTIFIER,
    "WorkerSchemaRequest.schema": TEXT,
    # Spark tasks to worker
    "TaskIdentity.task": IDENTITY,
    "TaskIdentity.run_secret": WORD,
    "LaneReport.phase": WORD,
    "HotKey.key": VALUE,
    "ErrorDetail.name": WORD,
    "ErrorDetail.error_class": WORD,
    "ErrorDetail.message": VALUE,
    "ErrorDetail.workaround": VALUE,
    "ErrorDetail.args.key": WORD,
    "ErrorDetail.args.value": VALUE,
    "ChunkSpec.source_schema": IDENTIFIER,
    "ChunkSpec.source_table": IDENTIFIER,
    "ChecksumSums.first": WORD,
    "ChecksumSums.second": WORD,
    "Multiset.form": VALUE,
    "Multiset.division": VALUE,
    "RowDifference.source_table": TABLE,
    "RowDifference.target_table": TABLE,
    "RowDifference.not_repaired": VALUE,
    "RowDifference.reference": VALUE,
    "ComparedValue.column": IDENTIFIER,
    "ComparedValue.source": VALUE,
    "ComparedValue.target": VALUE,
}
"""Message.field (of a map: .key and .value) to the rule of the string. For lists, of each item."""

LINES: frozenset[str] = frozenset({"HealthCheckRequest.service"})
"""String fields for which the rule of every other string, :data:`LINE`, was decided on."""

NUMBERS: dict[str, int] = {
    "Endpoint.port": 65_535,
    "CompareRequest.threads": 1_024,
    "CompareRequest.most_rows": 10_000_000,
    "TaskIdentity.index": 65_535,
    "LaneReport.barrier": (1 << 64) - 1,  # the number of a stream alignment has the highest bit set
}
"""The largest number that a field may hold, where it is not that of all fields."""

COUNTS: dict[str, int] = {
    "CheckSubTaskRequest.family": 4_096,
    "CheckShardsRequest.family": 4_096,
    "CheckSwitchRequest.subtasks": 4_096,
    "CheckKeysRequest.looked_for": 1_000_000,
    "KeyShard.samples": 10_000,
    "SubTaskConfig.routes": 100_000,
    "SubTaskConfig.column_mappings": 100_000,
    "SubTaskConfig.references": 100_000,
    "SubTaskConfig.event_filters": 100_000,
    "SubTaskConfig.expression_filters": 100_000,
    "SubTaskConfig.transforms": 100_000,
    "SubTaskConfig.source_filters": 100_000,
    "BlockAllowList.do_dbs": 100_000,
    "BlockAllowList.do_tables": 100_000,
    "BlockAllowList.ignore_dbs": 100_000,
    "BlockAllowList.ignore_tables": 100_000,
    "WorkerExplainRulesRequest.tables": 1_000_000,
    "ExplainRulesRequest.tables": 1_000_000,
    "ChunkSpec.lower": 64,
    "ChunkSpec.upper": 64,
    "CompareWork.lower": 64,
    "CompareWork.upper": 64,
    "RowDifference.key": 64,
    "RowDifference.columns": 4_096,
    "WorkReport.differences": 10_000_000,
    "ErrorDetail.args": 64,
    "Distribution.counts": 64,
    "Endpoint.session": 1_024,
}
"""How many items a list or map may have, where it is not 10,000."""

_FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)
_FINITE = Rule(
    f"must be a number from 0 to {_MAX_SECONDS:.0f}",
    lambda value: 0 <= value <= _MAX_SECONDS,  # no comparison holds for NaN
)


class _Broken(Exception):
    """``path``: of the field, grown on the way out; ``shown``: the value, or what of it counts."""

    def __init__(self, requirement: str, shown: object) -> None:
        super().__init__()
        self.requirement, self.shown, self.path = requirement, shown, ""


def check_fields(message: Message, method: str) -> None:
    """Raises ``errors.master.FIELD_REFUSED`` for the first field of ``message``, a request of ``method``, that breaks
    its rule."""
    try:
        _check(message)
    except _Broken as broken:
        shown = escaped(str(broken.shown), _SHOWN_CHARS)
        path = broken.path.lstrip(".")
        raise errors.master.FIELD_REFUSED(field=path, method=method, rule=broken.requirement, value=shown) from None


_Check = Callable[[Any], None]
"""Of a value. Raises _Broken."""
_compiled: dict[type[Message], tuple[tuple[str, bool, _Check], ...]] = {}
"""Of each kind of message: name of a field, whether it is one message (which may be absent), what checks it."""


def _check(message: Message) -> None:
    # Lanes report four times a second: what is right costs no more than a look at every field.
    kind = type(message)
    fields = _compiled.get(kind)
    if fields is None:
        descriptor = cast("Descriptor", message.DESCRIPTOR)  # the stubs name a private twin as well
        members = cast("list[FieldDescriptor]", descriptor.fields)
        found = [(field, _compile(descriptor, field)) for field in members]
        fields = tuple((field.name, _is_message(field), check) for field, check in found if check is not None)
        _compiled[kind] = fields
    name = ""
    try:
        for name, is_message, check in fields:
            if not is_message:
                value = getattr(message, name)
                if value:
                    check(value)
            elif message.HasField(name):
                check(getattr(message, name))
    except _Broken as broken:
        broken.path = f".{name}{broken.path}"
        raise


def _is_message(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.is_repeated


def _compile(owner: Descriptor, field: FieldDescriptor) -> _Check | None:
    name = f"{owner.name}.{field.name}"
    if not field.is_repeated:
        return _one(name, field)
    most = COUNTS.get(name, _MAX_ITEMS)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _of_map(name, entry, most)
    return _of_list(_one(name, field), most)


def _of_list(check: _Check | None, most: int) -> _Check:
    def run(values: Any) -> None:
        _check_count(values, most)
        if check is None:
            return
        done = 0
        try:
            for value in values:
                check(value)
                done += 1
        except _Broken as broken:
            broken.path = f"[{done}]{broken.path}"
            raise

    return run


def _of_map(name: str, entry: Descriptor, most: int) -> _Check:
    keys = _of_list(_one(f"{name}.key", entry.fields_by_name["key"]), most)
    values = _of_list(_one(f"{name}.value", entry.fields_by_name["value"]), most)

    def run(items: Any) -> None:
        _check_count(items, most)
        keys(list(items))
        values(list(items.values()))

    return run


def _check_count(values: Any, most: int) -> None:
    if len(values) > most:
        raise _Broken(f"must have at most {most} items", f"{len(values)} items")


def _one(name: str, field: FieldDescriptor) -> _Check | None:
    """Of a single value, or of one in a list; None: any value is right."""
    if field.message_type is not None:
        return _check
    rule = _rule(name, field)
    if rule is None or rule is VALUE:
        return None
    holds, requirement = rule.holds, rule.requirement

    def run(value: Any) -> None:
        if not holds(value):
            raise _Broken(requirement, value)

    return run


def _rule(name: str, field: FieldDescriptor) -> Rule | None:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return None if field.type == FieldDescriptor.TYPE_BYTES else TEXTS.get(name) or NAMED.get(field.name, LINE)
    if kind in _FLOATS:
        return _FINITE
    if kind in _INTEGERS:
        most = NUMBERS.get(name, _MAX_NUMBER)
        return Rule(f"must be a whole number from 0 to {most}", lambda value: 0 <= value <= most)
    if field.enum_type is not None:
        known = frozenset(field.enum_type.values_by_number)
        return Rule(f"must be a value that {field.enum_type.name} has", lambda value: value in known)
    return None
