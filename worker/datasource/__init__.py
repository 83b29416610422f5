"""Shard tables in any Spark program: their rows with ``spark.read.format("mysql-shards")``, their changes with
``spark.readStream.format("mysql-cdc")``.

``mysql_shards`` is the data source. At load(), ``planning`` makes the ``plan``: it fixes the position of each source.
``partition_reader`` plans the chunks with worker/snapshot. In the tasks ``shard_rows`` reads a chunk, ``state`` takes
back the changes since the position, and ``values`` makes the DataFrame's values. ``mysql_cdc`` is the data source of
the changes; ``stream`` has the rest of it. ``registration`` has what differs in a session of Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmerge.worker.datasource.mysql_cdc import MySQLChanges
    from shardmerge.worker.datasource.mysql_shards import MySQLShards, load_fixed, positions
    from shardmerge.worker.datasource.registration import register

__all__ = ["MySQLChanges", "MySQLShards", "load_fixed", "positions", "register"]

_MODULES = {"MySQLChanges": "mysql_cdc", "register": "registration"}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: Spark's tasks, which import this package, need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'mysql_shards')}")
    return getattr(module, name)
