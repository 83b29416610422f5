"""Parses the command line of the benchmark."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PARTS = (
    "start",
    "full",
    "ceiling-load",
    "drain",
    "drain-uniform",
    "ceiling-apply",
    "lag",
    "lag1k",
    "lag-locked",
    "floor",
    "relay",
    "decode",
    "verify",
    "memory",
    "rules",
    "pre-created",
    "shard-ddl",
    "shard-ddl-latency",
    "shard-tables",
    "scale",
    "scraping",
    "composite-keys",
)
"""The parts in the order in which they run."""

_CHANGING = frozenset({"full", "drain", "drain-uniform", "lag", "lag1k"})
"""Parts after which the merged table is compared."""

_ASKED_FOR = frozenset(
    {
        "start",
        "rules",
        "pre-created",
        "shard-ddl",
        "shard-ddl-latency",
        "shard-tables",
        "scale",
        "scraping",
        "composite-keys",
    }
)
"""Parts that run only on request."""

SOURCES = 2
APPLY_ROWS = 8_000
"""Rows of one transaction of the apply ceiling."""
LOAD_ROWS = 8_096
"""Rows of one chunk of the load ceiling; the program's default chunk."""


class Shards(NamedTuple):
    """The shard tables of one source: how many, and the rows of each."""

    tables: int
    rows: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run. ``tables``: of each source. ``rows``: per shard table. ``writing``: row changes per
    second, all sources together, while the history is copied. ``changes``: row changes of a backlog, all sources
    together. ``probes``: inserts of one lag measurement. ``locked_seconds``: how long a sharding DDL is held open.
    ``big_bytes``: binlog bytes of the large transaction. ``profile``: the folder of the profiles. ``directory``: for
    servers and logs; removed at the end unless ``keep``. ``shard_tables``: per source, one run of the sharding DDL
    each. ``shard_locks``: how many locks the latency of sharding DDLs is measured with. ``auto_increment``: whether the
    merged table, and those of the ceilings, have AUTO_INCREMENT as the sources' tables have."""

    parts: tuple[str, ...]
    directory: Path
    source: str
    target: str
    tables: int
    rows: int
    writing: int
    changes: int
    probes: int
    locked_seconds: float
    big_bytes: int
    lanes: int
    threads: int
    quick: bool
    target_binlog: bool
    profile: Path | None
    native: bool
    keep: bool
    shard_tables: tuple[int, ...]
    shard_locks: int
    auto_increment: bool

    @property
    def all_rows(self) -> int:
        return SOURCES * self.tables * self.rows

    @property
    def shards(self) -> Shards:
        return Shards(self.tables, self.rows)


def parse(arguments: list[str], directory: Path) -> Settings:
    """Parse the arguments; exit with a message when they are invalid."""
    parser = argparse.ArgumentParser(
        prog="tests/benchmarks/run.sh",
        description="Measure a full merge, drains, lags, decoder, relay, memory.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, no large transaction; under 3 minutes")
    parser.add_argument("--only", metavar="PARTS", help=f"comma separated, of: {', '.join(PARTS)}")
    parser.add_argument("--with-rules", action="store_true", help="what rules cost too: a task with and one without")
    parser.add_argument("--source", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument("--target", choices=("mariadb", "mysql", "tidb"), default="mariadb")
    parser.add_argument("--rows", type=int, metavar="N", help="rows per shard table (250,000)")
    parser.add_argument("--tables", type=int, default=4, metavar="N", help="shard tables per source (4)")
    parser.add_argument(
        "--writing", type=int, default=0, metavar="N", help="row changes/s while the history is copied (none)"
    )
    parser.add_argument("--changes", type=int, metavar="N", help="row changes of a backlog (600,000)")
    parser.add_argument("--probes", type=int, metavar="N", help="inserts of one lag measurement (500)")
    parser.add_argument("--big-mib", type=int, default=2048, metavar="N", help="size of the large transaction (2048)")
    parser.add_argument("--lanes", type=int, default=2, metavar="N", help="lanes per source (2)")
    parser.add_argument("--threads", type=int, default=4, metavar="N", help="chunk readers per source (4)")
    parser.add_argument("--target-binlog", action="store_true", help="the target writes a binlog too, sync_binlog=1")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="py-spy and perf during the drains")
    parser.add_argument("--native", action="store_true", help="py-spy shows C frames too (slower)")
    parser.add_argument(
        "--shard-tables", default="64,512", metavar="N,…", help="shard tables per source of the sharding DDLs (64,512)"
    )
    parser.add_argument(
        "--shard-locks", type=int, default=50, metavar="N", help="locks for the latency of sharding DDLs (50)"
    )
    parser.add_argument(
        "--auto-increment", action="store_true", help="the merged table and the ceilings' have AUTO_INCREMENT (not)"
    )
    parser.add_argument("--keep", action="store_true", help="leave logs and data for a look; says where")
    found = parser.parse_args(arguments)
    chosen = tuple(PARTS) if found.only is None else tuple(found.only.split(","))
    unknown = set(chosen) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if found.only is None:
        chosen = tuple(part for part in chosen if part not in _ASKED_FOR)
    if found.with_rules:
        chosen = (*chosen, "rules")
    if found.quick and found.only is None:
        chosen = tuple(part for part in chosen if part != "memory")
    if _CHANGING & set(chosen):
        chosen = (*chosen, "verify")
    return Settings(
        parts=tuple(part for part in PARTS if part in chosen),
        directory=directory,
        source=found.source,
        target=found.target,
        tables=found.tables,
        writing=found.writing,
        rows=found.rows or (25_000 if found.quick else 250_000),
        changes=found.changes or (120_000 if found.quick else 600_000),
        probes=found.probes or (150 if found.quick else 500),
        locked_seconds=10 if found.quick else 60,
        big_bytes=found.big_mib << 20,
        lanes=found.lanes,
        threads=found.threads,
        quick=found.quick,
        target_binlog=found.target_binlog,
        profile=found.profile,
        native=found.native,
        keep=found.keep,
        shard_tables=tuple(int(number) for number in found.shard_tables.split(",")),
        shard_locks=found.shard_locks,
        auto_increment=found.auto_increment,
    )
