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
        "allow_auto_random_explicit_insert",
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "collation_connection",
        "completion_type",
        "explicit_defaults_for_timestamp",
        "foreign_key_checks",
        "max_join_size",
        "show_gipk_in_create_table_and_information_schema",
        "sql_big_selects",
        "sql_mode",
        "sql_safe_updates",
        "sql_select_limit",
        "tidb_batch_delete",
        "tidb_batch_insert",
        "tidb_constraint_check_in_place_pessimistic",
        "tidb_dml_batch_size",
        "tidb_dml_type",
        "tidb_low_resolution_tso",
        "tidb_opt_write_row_id",
        "tidb_read_staleness",
        "tidb_skip_utf8_check",
        "tidb_snapshot",
        "tidb_txn_mode",
        "time_zone",
        "transaction_isolation",
        "tx_isolation",
        "unique_checks",
    }
)
"""Session variables that the copied values depend on: set by worker/core/mysql/connection.py, whatever the
configuration has."""
