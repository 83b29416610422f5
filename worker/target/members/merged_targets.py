"""Decides whether a missing target table may be created: not after rows of the task were merged into it.

What proves merged rows, by shard table of the target, at all of the task's sources (worker/target/RECORDS.md):

- while its history is copied: a chunk with rows (``snapshot_chunk``);
- afterwards its lanes may have written rows at any time, so it counts, unless it is known to have no row there
  (``rowless_table``).

Shard tables that were taken out of the task do not count: their rows at the target are the operator's. Another task's
rows do not count either: its records stay when it is stopped for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name, rows, text_of
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.members.member_cache import MemberCache, TaskMembers
from shardmerge.worker.target.records import checkpoint, ddl_progress
from shardmerge.worker.target.records.history import rowless_tables
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.subtask_record import Phase, meta_token_of
from shardmerge.worker.target.tables.target_table import missing_error, names_of

log = get_logger()

_SHOWN_TABLES = 3
_ABSENT = (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR)


@dataclass(frozen=True, slots=True)
class MergedTargets:
    """What a subtask's run knows of the rows that its task has merged; implements
    :class:`shardmerge.worker.target.tables.target_table.MergedRows`.

    ``members``: of the task. ``found``: where a missing table is noticed, for the error. ``leaving``: numbers of the
    subtask's shard tables that do not count: the statement that is executed removes or replaces them. ``looks``: look
    for a row in existing tables.
    """

    who: SubtaskKey
    epoch: int
    members: MemberCache
    found: str = "at the start"
    leaving: frozenset[int] = frozenset()
    looks: bool = False

    def check_missing(self, target: Session, plan: TablePlan) -> None:
        """Check that the plan's target, which does not exist, may be created. ``target``: in no transaction. Raises
        MERGED_TABLE_MISSING, the rules' errors and ``pymysql.MySQLError``."""
        with self.members.reading(target) as members:
            merged = [shard.table.dotted for shard in self._merged(target, plan, members)]
        if merged:
            raise missing_error(plan, self.who.task, self.found, listed(sorted(set(merged)), _SHOWN_TABLES))

    def record_created(self, target: Session, plans: Sequence[TablePlan]) -> None:
        """The target of ``plans`` was just created: none of them has a row there. Raises ``pymysql.MySQLError``."""
        rowless_tables.write(target, self.who, (plan.shard for plan in plans), self.epoch)

    def check_existing(self, target: Session, plans: Sequence[TablePlan], place: str) -> None:
        """Check that the table ``place`` (quoted), the target of ``plans``, has a row if one was merged. Raises
        MERGED_TABLE_EMPTY where its rows are known to be missing, else the log has a warning; and
        ``pymysql.MySQLError``."""
        if not self.looks or rows(target, f"SELECT 1 FROM {place} LIMIT 1"):
            return
        schema, task, source = self.who
        [(phase,)] = rows(
            target,
            f"SELECT `phase` FROM {quote_name(schema)}.`subtask` WHERE `task` = %s AND `source` = %s",
            self.who[1:],
        )
        copied = _copied(target, self.who, {plan.shard for plan in plans})
        count = sum(copied.values())
        if Phase(text_of(phase)) is Phase.SNAPSHOT:
            if count:
                names = (plan.table.dotted for plan in plans if copied.get(plan.shard))
                raise errors.replicate.MERGED_TABLE_EMPTY(
                    source=source,
                    task=task,
                    count=count,
                    tables=listed(list(names), _SHOWN_TABLES),
                    **names_of(plans[0]),
                )
            return
        known = rowless_tables.read(target, self.who)
        if count or any(plan.shard not in known for plan in plans):
            log.warning(
                "a target table has no row, though the task has merged rows into it; if they were not all deleted at "
                "the sources, another writer has emptied it: compare it with dmctl compare --table",
                task=task,
                source=source,
                table=place,
            )

    def _merged(self, target: Session, plan: TablePlan, members: TaskMembers) -> Iterator[TablePlan]:
        schema, task, own = self.who
        place = _case(target)
        wanted = place(plan)
        recorded = {
            text_of(source): (Phase(text_of(phase)), meta_token_of(text_of(token)))
            for source, phase, token in rows(
                target,
                f"SELECT `source`, `phase`, `meta_token` FROM {quote_name(schema)}.`subtask` WHERE `task` = %s",
                (task,),
            )
        }
        own_phase, own_token = recorded.get(own, (Phase.NEW, ""))
        for source, its in members.sources.items():
            phase, token = recorded[source]
            here = {
                number: each
                for number, each in its.plans.items()
                if place(each) == wanted and not (source == own and number in self.leaving)
            }
            if not here:
                continue
            who = SubtaskKey(schema, task, source)
            if source != own:
                if own_phase in (Phase.NEW, Phase.SNAPSHOT) and token != own_token:
                    continue  # start-task --remove-meta: its records are of an earlier run, or the pre-check found rows
                if ddl_progress.has_begun_statement(target, who):
                    continue  # it may drop or rename the table now, and checks it afterwards
            copying = frozenset(its.plans) if phase is Phase.SNAPSHOT else _copying(target, who, its.joining)
            known = copying | rowless_tables.read(target, who)
            copied = _copied(target, who, here)
            yield from (each for number, each in here.items() if number not in known or copied.get(number))


def _case(target: Session) -> Callable[[TablePlan], tuple[str, str]]:
    """The place of a plan's target as the server compares names."""
    if text_of(rows(target, "SELECT @@GLOBAL.lower_case_table_names")[0][0]) == "0":
        return lambda plan: (plan.target_schema, plan.target_table)
    return lambda plan: (plan.target_schema.lower(), plan.target_table.lower())


def _copying(target: Session, who: SubtaskKey, joining: Joining | None) -> frozenset[int]:
    """The joining tables whose history is copied: their lanes have not begun."""
    if joining is None or joining.replays or checkpoint.read_all(target, who, Stream.JOIN):
        return frozenset()
    return joining.numbers


def _copied(target: Session, who: SubtaskKey, numbers: Collection[int]) -> Mapping[int, int]:
    """How many rows were copied of each of these shard tables, by number."""
    schema, task, source = who
    try:
        found = rows(
            target,
            f"SELECT `shard`, SUM(`row_count`) FROM {quote_name(schema)}.`snapshot_chunk` "
            "WHERE `task` = %s AND `source` = %s AND `shard` IN %s GROUP BY `shard`",
            (task, source, tuple(numbers)),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) not in _ABSENT:  # no task has copied a history
            raise
        return {}
    return {int(shard): int(count) for shard, count in found}
