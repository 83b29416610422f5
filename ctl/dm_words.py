"""The words that users read for enum values: TiDB DM's words where DM has one."""

from __future__ import annotations

from shardmerge.proto import common_pb2, worker_pb2

_STAGES = {
    common_pb2.STAGE_UNSPECIFIED: "InvalidStage",
    common_pb2.STAGE_NEW: "New",
    common_pb2.STAGE_RUNNING: "Running",
    common_pb2.STAGE_PAUSED: "Paused",
    common_pb2.STAGE_STOPPED: "Stopped",
    common_pb2.STAGE_FINISHED: "Finished",
}
_UNITS = {
    common_pb2.UNIT_UNSPECIFIED: "InvalidUnit",
    common_pb2.UNIT_SNAPSHOT: "Load",
    common_pb2.UNIT_REPLICATE: "Sync",
}
_SCOPES = {
    common_pb2.ERROR_SCOPE_UNSPECIFIED: "not-set",
    common_pb2.ERROR_SCOPE_SOURCE: "source",
    common_pb2.ERROR_SCOPE_TARGET: "target",
    common_pb2.ERROR_SCOPE_INTERNAL: "internal",
    common_pb2.ERROR_SCOPE_CONFIG: "config",
}
_LEVELS = {
    common_pb2.ERROR_LEVEL_UNSPECIFIED: "not-set",
    common_pb2.ERROR_LEVEL_LOW: "low",
    common_pb2.ERROR_LEVEL_MEDIUM: "medium",
    common_pb2.ERROR_LEVEL_HIGH: "high",
}
_CHECKS = {
    worker_pb2.CHECK_STATE_UNSPECIFIED: "not-set",
    worker_pb2.CHECK_STATE_PASS: "success",
    worker_pb2.CHECK_STATE_WARN: "warn",
    worker_pb2.CHECK_STATE_FAIL: "fail",
}

_CHANGES = {
    worker_pb2.TableChange.KIND_UNSPECIFIED: "not-set",
    worker_pb2.TableChange.JOINS: "joins",
    worker_pb2.TableChange.LEAVES: "leaves",
    worker_pb2.TableChange.MOVES: "moves",
    worker_pb2.TableChange.REMAPS: "refused",
}

_BY_ENUM: dict[str, dict[int, str]] = {
    "shardmerge.v1.Stage": {int(number): word for number, word in _STAGES.items()},
    "shardmerge.v1.Unit": {int(number): word for number, word in _UNITS.items()},
    "shardmerge.v1.ErrorScope": {int(number): word for number, word in _SCOPES.items()},
    "shardmerge.v1.ErrorLevel": {int(number): word for number, word in _LEVELS.items()},
    "shardmerge.v1.CheckState": {int(number): word for number, word in _CHECKS.items()},
    "shardmerge.v1.TableChange.Kind": {int(number): word for number, word in _CHANGES.items()},
}


def enum_word(enum: str, number: int) -> str:
    """The word for value ``number`` of the enum with full protobuf name ``enum``.

    A number that only a newer master knows becomes ``"unknown (7)"``: shown, never an error.
    """
    return _BY_ENUM.get(enum, {}).get(number, f"unknown ({number})")


def stage_word(stage: int) -> str:
    """``"Running"``, ``"Paused"`` …"""
    return enum_word("shardmerge.v1.Stage", stage)


def unit_word(unit: int) -> str:
    """``"Load"`` for the snapshot unit, ``"Sync"`` for the replicate unit."""
    return enum_word("shardmerge.v1.Unit", unit)


def check_word(state: int) -> str:
    """``"success"``, ``"warn"`` or ``"fail"``."""
    return enum_word("shardmerge.v1.CheckState", state)


def change_word(kind: int) -> str:
    """The effect of an update on a table: ``"joins"``, ``"leaves"``, ``"moves"`` or ``"refused"``."""
    return enum_word("shardmerge.v1.TableChange.Kind", kind)
