"""Pre-checks: what must hold before a task starts; each finding comes with its way out.

``precheck`` runs all checks of a source or a subtask and reports them through ``findings``. ``source`` checks the
source server and ``tables``, ``id_ranges``, ``filters`` and ``start_and_stop`` what the task reads there; ``target``
checks the target; ``server_differences``, ``server_capacity`` and ``worker_capacity`` (with ``estimates``) check
whether both servers understand the same and have room. ``keys`` looks for equal keys in several shard tables,
``check_shards`` (with ``shard_structures``) for structures that contradict each other; ``recorded`` has those with
which a subtask continues.
"""

from shardmerge.worker.verify.precheck.check_shards import check_shards
from shardmerge.worker.verify.precheck.keys.answers import check_keys, read_keys
from shardmerge.worker.verify.precheck.precheck import CheckRequest, check_source, check_subtask, from_request
from shardmerge.worker.verify.precheck.worker_capacity import SparkSlots, WorkerView

__all__ = [
    "CheckRequest",
    "SparkSlots",
    "WorkerView",
    "check_keys",
    "check_shards",
    "check_source",
    "check_subtask",
    "from_request",
    "read_keys",
]
