"""Runs the leader's work whenever the records change, while this master leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardmerge.master.store import Leadership
from shardmerge.proto import etcd_keys
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LoopThread

# Also the delay after which a master that has just become the leader works for the first time.
_RESYNC_SECONDS = 1.0


def _nothing() -> None:
    pass


class LeaderLoop:
    """A thread that calls ``reconcile`` after each change and each second while this master leads, and ``follows``
    while another one leads. ``topic``: the message under which its failures are logged, and its name in ``loops``."""

    def __init__(
        self,
        topic: str,
        etcd: Etcd,
        leadership: Leadership,
        reconcile: Callable[[], None],
        follows: Callable[[], None] = _nothing,
        loops: LoopAges | None = None,
    ) -> None:
        self._topic = topic
        self._loops = loops if loops is not None else LoopAges()
        self._etcd = etcd
        self._leadership = leadership
        self._reconcile = reconcile
        self._follows = follows
        self._thread = LoopThread(topic.replace(" ", "-"), self._run)
        self.start, self.end = self._thread.start, self._thread.end

    def _run(self, stop: threading.Event) -> None:
        for _ in self._etcd.watch(etcd_keys.PREFIX, 0, stop, _RESYNC_SECONDS):
            self._loops.begins(self._topic)
            if not self._leadership.leads:
                self._follows()
                continue
            try:
                self._reconcile()
            except ShardmergeError as error:
                # The next change or tick tries again: nothing was half done.
                get_logger().warning(self._topic, error=str(error))
        self._loops.ended(self._topic)
