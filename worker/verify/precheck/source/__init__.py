"""Pre-checks of the source server: ``server`` (with ``grants``), ``binlog_retention``, ``table_locks``."""
