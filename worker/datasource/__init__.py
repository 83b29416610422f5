"""Shard tables as a Spark DataFrame, in any Spark program: ``spark.read.format("mysql-shards")``.

``mysql_shards`` is the data source. At load(), ``planning`` makes the ``plan``: it fixes the position of each source.
``partition_reader`` plans the chunks with worker/snapshot. In the tasks ``shard_rows`` reads a chunk, ``state`` takes
back the changes since the position, and ``values`` makes the DataFrame's values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmerge.worker.datasource.mysql_shards import MySQLShards, positions, register

__all__ = ["MySQLShards", "positions", "register"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: Spark's tasks, which import this package, need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardmerge.worker.datasource import mysql_shards

    return getattr(mysql_shards, name)
