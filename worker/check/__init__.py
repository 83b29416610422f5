"""Pre-checks: what must hold before a task starts, each finding with its way out."""

from worker.check.run import check_source, check_subtask

__all__ = ["check_source", "check_subtask"]
