"""Files that are right; tests change one thing of them."""

from __future__ import annotations

SOURCE = """\
source-id: mysql-01
flavor: mariadb
from:
  host: 10.0.0.5
  port: 3306
  user: dm
  password: 007
  session: {max_statement_time: ON}
purge:
  expires: 24
"""

TASK = """\
name: merge
task-mode: all
target-database:
  host: 10.0.0.9
  port: 4000
  user: root
  password: "p: w"
mysql-instances:
  - source-id: mysql-01
    block-allow-list: shards
    route-rules: [r1, r2]
    column-mapping-rules: [m1]
    mydumper-config-name: global
    syncer-config-name: global
  - source-id: mysql-02
    block-allow-list: shards
    route-rules:
      - r1
block-allow-list:
  shards:
    do-dbs: [s_*]
routes:
  r1:
    schema-pattern: s_*
    table-pattern: t_*
    target-schema: s
    target-table: t
  r2:
    schema-pattern: s_*
    target-schema: s
column-mappings:
  m1:
    schema-pattern: s_*
    table-pattern: t_*
    source-column: id
    target-column: id
    expression: partition id
    arguments: ["1", "s", "t", "_"]
mydumpers:
  global:
    threads: 8
    rows: 1000
syncers:
  global:
    worker-count: 16
    batch: 500
"""
