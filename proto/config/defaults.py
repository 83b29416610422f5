"""Every default of a configuration file that is more than "off" or "empty": for models, code, samples and docs."""

from __future__ import annotations

# --- task: our own blocks
CHUNK_ROWS = 8096
LANES = 2
MAX_LANES_FROM_SYNCER = 4
"""A lane applies thousands of rows per transaction and holds a Spark slot for as long as the task runs; a DM worker
applies a hundred rows and costs almost nothing. DM's usual 16 workers are not 16 lanes."""
BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024

# --- task: DM's
META_SCHEMA = "dm_meta"
READERS = 4
SHADOW_TABLES = ("^_(.+)_(?:new|gho)$",)
TRASH_TABLES = ("^_(.+)_(?:ghc|del|old)$",)
"""DM's (docs: "Migrate from Databases that Use GH-ost/PT-osc")."""

# --- source
PURGE_INTERVAL_SECONDS = 3600
PURGE_EXPIRES_HOURS = 0
PURGE_REMAIN_SPACE_GIB = 15

# --- daemons
ENV_PREFIXES = ("SHARDMERGE_", "DM_")
ETCD = ("127.0.0.1:2379",)
MASTER_ADDR = "127.0.0.1:8261"
WORKER_ADDR = "127.0.0.1:8262"
WORKER_TTL_SECONDS = 5
RPC_TIMEOUT_SECONDS = 60
LOCK_ALERT_SECONDS = 300
HISTORY_DAYS = 30
HISTORY_SAMPLE_SECONDS = 600
KEEPALIVE_TTL_SECONDS = 10
DRAIN_SECONDS = 10
MAX_INFLATED_EVENT_MIB = 256
RELAY_DIR = "relay-dir"
SPARK_MASTER = "local[64]"
