"""Answers for target tables of a test that has no task: no row was merged into any of them."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.table_plan import TablePlan


class Unmerged:
    """Implements shardmerge.worker.target.tables.target_table.MergedRows."""

    def check_missing(self, target: Session, plan: TablePlan) -> None:
        """Let each missing table be created."""

    def record_created(self, target: Session, plans: Sequence[TablePlan]) -> None:
        """Record nothing: there is no meta schema."""

    def check_existing(self, target: Session, plans: Sequence[TablePlan], place: str) -> None:
        """Let each table be used."""
