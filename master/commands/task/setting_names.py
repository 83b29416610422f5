"""Names settings as the task file does. Pure.

A subtask's configuration has fields of its own, several of which come from one key or from one of several blocks.
"""

from __future__ import annotations

import re

_KEYS = {
    "eventFilters": "filters",
    "expressionFilters": "expression-filter",
    "sourceFilters": "filters (of the source's file)",
    "onlineDdl.shadowTables": "shadow-table-rules",
    "onlineDdl.trashTables": "trash-table-rules",
    "mode": "task-mode",
    "deriveCascades": "cascades",
    "start": "meta",
    "startAt": "start-time",
    "replicate.quarantine": "replicate.on-row-error",
    "replicate.lanes": "replicate.lanes",
    "replicate.safeMode": "syncers.safe-mode",
    "target.tls.ca": "target-database.security.ssl-ca",
    "target.tls.cert": "target-database.security.ssl-cert",
    "target.tls.key": "target-database.security.ssl-key",
    "target.tls.caContent": "target-database.security.ssl-ca-bytes",
    "target.tls.certContent": "target-database.security.ssl-cert-bytes",
    "target.tls.keyContent": "target-database.security.ssl-key-bytes",
    "target.tls.allowedCn": "target-database.security.cert-allowed-cn",
    "target.allowPublicKeyRetrieval": "target-database.security.allow-public-key-retrieval",
}
_VALUES = {
    "replicate.quarantine": {"": "pause", "False": "pause", "True": "quarantine"},
    "deriveCascades": {"": "refuse", "False": "refuse", "True": "derive"},
}
_ENUM = re.compile(r"(?:SHARD_MODE|TASK_MODE|AUTO_INCREMENT|EXTRACT_IN_KEY|PARTITIONS)_([A-Z_]+)")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def file_key(path: str) -> str:
    """The key of the task file for the field at ``path`` of a subtask's configuration as JSON, ``snapshot.threads``."""
    known = _KEYS.get(path)
    if known is not None:
        return known
    if path.startswith("target."):
        path = f"target-database.{path.removeprefix('target.')}"
    return _HUMP.sub("-", path).lower()


def file_value(path: str, text: str) -> str:
    """The value of the field as the task file writes it."""
    values = _VALUES.get(path)
    if values is not None:
        return values.get(text, text)
    found = _ENUM.fullmatch(text)
    if found is not None:
        return "" if found[1] == "UNSPECIFIED" else found[1].lower().replace("_", "-")
    return {"True": "true", "False": "false"}.get(text, text)
