"""Schema names that have a meaning of their own."""

from __future__ import annotations

SYSTEM_SCHEMAS = frozenset(
    {
        "mysql",
        "information_schema",
        "performance_schema",
        "sys",
        "metrics_schema",
        "inspection_schema",
        "dm_heartbeat",
    }
)
"""Lower-case names of schemas that belong to the server (MySQL, MariaDB, TiDB) or to DM's heartbeat:
never merged, never a target."""
