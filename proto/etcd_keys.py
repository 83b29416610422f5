"""The records' keys in etcd, and their values as text. master/RECORDS.md documents each record.

Names are percent-encoded in keys (RFC 3986), so a "/" in a task's name cannot reach into another record.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar, cast
from urllib.parse import quote, unquote

from google.protobuf import json_format
from google.protobuf.message import Message

from shardmerge.proto import errors

PREFIX = "/shardmerge/v1/"
LEADER = PREFIX + "leader"
SECRET_KEY = PREFIX + "secret-key"
EPOCH_BASE = PREFIX + "epoch-base"
"""EpochBaseRecord: what is added to a revision to make an epoch."""
MASTERS = PREFIX + "master/"
WORKERS = PREFIX + "worker/"
STARTING = PREFIX + "starting/"
SOURCES = PREFIX + "source/"
BOUNDS = PREFIX + "bound/"
TASKS = PREFIX + "task/"
SUBTASKS = PREFIX + "subtask/"
EPOCHS = PREFIX + "epoch/"
SERVER_IDS = PREFIX + "server-id/"
SHARDS = PREFIX + "shard/"
LOCKS = PREFIX + "ddl-lock/"
OPERATIONS = PREFIX + "operation/"

HISTORY = "/shardmerge/history/v1/"
"""The history of tasks. Not below PREFIX: all masters and workers read everything there after each change."""
HISTORY_ENTRIES = HISTORY + "entry/"
HISTORY_SAMPLES = HISTORY + "sample/"

M = TypeVar("M", bound=Message)

_MOST_PARSED = 4096


def master(name: str) -> str:
    """MasterRecord: one per live master, under its lease."""
    return MASTERS + _encode(name)


def worker(name: str) -> str:
    """WorkerRecord, under the worker's lease."""
    return WORKERS + _encode(name)


def starting(name: str) -> str:
    """WorkerRecord of a worker whose Spark starts, under the worker's lease."""
    return STARTING + _encode(name)


def source(source_id: str) -> str:
    """SourceRecord."""
    return SOURCES + _encode(source_id)


def bound(source_id: str) -> str:
    """BindingRecord: which worker holds the source."""
    return BOUNDS + _encode(source_id)


def task(name: str) -> str:
    """TaskRecord."""
    return TASKS + _encode(name)


def operation(task_name: str) -> str:
    """OperationRecord: the last command that changed the task's records."""
    return OPERATIONS + _encode(task_name)


def subtask(task_name: str, source_id: str) -> str:
    """SubTaskRecord."""
    return subtasks(task_name) + _encode(source_id)


def subtasks(task_name: str) -> str:
    """The prefix of a task's SubTaskRecords."""
    return f"{SUBTASKS}{_encode(task_name)}/"


def epoch(task_name: str, source_id: str) -> str:
    """EpochRecord: the fencing token is this record's mod revision."""
    return epochs(task_name) + _encode(source_id)


def epochs(task_name: str) -> str:
    """The prefix of a task's EpochRecords."""
    return f"{EPOCHS}{_encode(task_name)}/"


def shard(task_name: str, source_id: str) -> str:
    """ShardRecord."""
    return shards(task_name) + _encode(source_id)


def shards(task_name: str) -> str:
    """The prefix of a task's ShardRecords."""
    return f"{SHARDS}{_encode(task_name)}/"


def locks(task_name: str) -> str:
    """The prefix of a task's LockRecords."""
    return f"{LOCKS}{_encode(task_name)}/"


def lock(task_name: str, target_schema: str, target_table: str) -> str:
    """LockRecord: one at a time for each target table."""
    return f"{locks(task_name)}{_encode(target_schema)}/{_encode(target_table)}"


def history_entry(task_name: str, kind: str, name: str) -> str:
    """HistoryRecord: ``name`` begins with the time of the first event, in milliseconds."""
    return f"{history_entries(task_name)}{kind}/{name}"


def history_entries(task_name: str) -> str:
    """The prefix of a task's HistoryRecords."""
    return f"{HISTORY_ENTRIES}{_encode(task_name)}/"


def history_block(task_name: str, block: str) -> str:
    """HistorySamplesRecord: ``block`` is the time of its begin, in seconds, and its length."""
    return f"{history_blocks(task_name)}{block}"


def history_blocks(task_name: str) -> str:
    """The prefix of a task's HistorySamplesRecords."""
    return f"{HISTORY_SAMPLES}{_encode(task_name)}/"


def server_id(server: str, number: int) -> str:
    """ServerIdRecord, under the worker's lease: whose relay connects to database server ``server`` with that id.

    ``server`` is the database server's own identity, not a source's name: two sources may point to one server.
    """
    return f"{SERVER_IDS}{_encode(server)}/{number}"


def names(key: str, folder: str) -> tuple[str, ...]:
    """The names in a key of ``folder``: one for most records, (task, source) for subtask, epoch and shard,
    (server, server id) for server ids, (task, schema, table) for locks, (task, kind, name) for entries of the history.

    >>> names("/shardmerge/v1/subtask/a%2Fb/mysql-01", SUBTASKS)
    ('a/b', 'mysql-01')
    """
    if not key.startswith(folder):
        raise ValueError(f"{key} is not in {folder}")
    return tuple(unquote(part) for part in key[len(folder) :].split("/"))


def encode(message: Message) -> bytes:
    """A record's value: protobuf JSON, one line, fields with default values left out."""
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def decode(kind: type[M], value: bytes, key: str) -> M:
    """Read a record's value.

    Raises ``errors.master.BAD_RECORD``, for an unknown field too: a record of a newer version may ask for something
    that this program does not know, and half an instruction must not be applied.
    """
    message = kind()
    try:
        message.CopyFrom(cast("M", _parsed(kind, value)))
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise errors.master.BAD_RECORD(key=key, reason=str(error)) from error
    return message


@lru_cache(maxsize=_MOST_PARSED)
def _parsed(kind: type[Message], value: bytes) -> Message:
    # A worker reads all records again at each change of one of them. Parsing them took a quarter of its time.
    return json_format.Parse(value, kind())


def _encode(name: str) -> str:
    return quote(name, safe="")
