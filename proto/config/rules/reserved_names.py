"""Names of schemas and session variables that have a meaning of their own."""

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

PINNED_VARIABLES = frozenset(
    {
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "collation_connection",
        "foreign_key_checks",
        "max_join_size",
        "sql_big_selects",
        "sql_mode",
        "sql_safe_updates",
        "sql_select_limit",
        "time_zone",
        "transaction_isolation",
        "tx_isolation",
        "unique_checks",
    }
)
"""Session variables that the copied values depend on: set by worker/core/mysql/connection.py, whatever the
configuration says."""
