"""Measures when the first row is committed at the target."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pymysql
from pymysql.constants import ER

from tests.benchmarks.task import MERGED
from tests.support.database import Database

_EVERY_SECONDS = 0.02
_NOT_YET = (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR)


class FirstRow:
    """Polls for the first row while the ``with`` block runs."""

    def __init__(self, target: Database) -> None:
        self._target = target
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="first-row", daemon=True)
        self.seen_at = float("inf")
        """Monotonic seconds; infinite until the row is found."""

    def __enter__(self) -> FirstRow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        with closing(self._target.connect()) as connection, connection.cursor() as cursor:
            while not self._stop.wait(_EVERY_SECONDS):
                try:
                    found = cursor.execute(f"SELECT 1 FROM {MERGED} LIMIT 1")
                except pymysql.MySQLError as error:
                    if error.args[0] not in _NOT_YET:
                        raise
                    continue
                if found:
                    self.seen_at = time.monotonic()
                    return
