"""Pre-checks: what must hold before a task starts, each finding with its way out."""

from worker.check.around import SparkRoom, WorkerView
from worker.check.keys import check_keys, read_keys
from worker.check.run import Question, check_source, check_subtask, question_of

__all__ = [
    "Question",
    "SparkRoom",
    "WorkerView",
    "check_keys",
    "check_source",
    "check_subtask",
    "question_of",
    "read_keys",
]
