"""How long a change takes from its commit at a source until it is visible at the target."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from deploy.demo.scenario import TARGET_SCHEMA, TARGET_TABLE
from tests.support.judge import Shard
from tests.support.mariadb import MariaDB

_GIVE_UP_SECONDS = 60.0
_LOOK_EVERY_SECONDS = 0.0005
_BETWEEN_PROBES_SECONDS = 0.05


def measure(shards: Sequence[Shard], target: MariaDB, seconds: float) -> list[float]:
    """Insert ordinary rows in turn into ``shards`` for ``seconds``; the lag of each in milliseconds.

    Raises TimeoutError when a row is not there after a minute.
    """
    lags: list[float] = []
    sources = [(shard, shard.connect()) for shard in shards]
    reader = target.connect()
    try:
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            shard, connection = sources[number % len(sources)]
            number += 1
            with connection.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO `{shard.schema}`.`{shard.table}` "
                    "(customer, amount, state, note, token, created) "
                    f"VALUES ('lag probe', {number}, 'new', NULL, '', NOW(3))"
                )
                committed = time.monotonic()
                original = int(cursor.lastrowid)
            merged = shard.ids(original) if shard.ids is not None else original
            with reader.cursor() as cursor:
                while not cursor.execute(f"SELECT 1 FROM `{TARGET_SCHEMA}`.`{TARGET_TABLE}` WHERE id = %s", (merged,)):
                    if time.monotonic() - committed > _GIVE_UP_SECONDS:
                        raise TimeoutError(f"row {original} of {shard.schema}.{shard.table} did not arrive")
                    time.sleep(_LOOK_EVERY_SECONDS)
            lags.append((time.monotonic() - committed) * 1000)
            time.sleep(_BETWEEN_PROBES_SECONDS)
    finally:
        reader.close()
        for _, connection in sources:
            connection.close()
    return lags


def percentile(lags: Sequence[float], share: int) -> float:
    """The ``share``-th percentile (1 … 99)."""
    return statistics.quantiles(lags, n=100, method="inclusive")[share - 1]
