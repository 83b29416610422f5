"""A running task of one source with a replica, and an operator who copies its history again."""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.replicated_rig import SOURCE, Replicated
from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import Answer, source_yaml
from tests.support.database import Database
from tests.support.world import Family


@dataclass(frozen=True, slots=True)
class Running:
    """A running task of ``source``."""

    rig: Replicated
    family: Family
    operator: Operator
    source: str = SOURCE

    @property
    def name(self) -> str:
        return self.family.name

    def file_of(self, server: Database, user: str | None = None) -> str:
        """Write the source's file, with the address of ``server``; return its path."""
        return self.rig.cluster.write("source.yaml", source_yaml(self.source, server, user))

    def insert(self, server: Database, customer: str) -> None:
        server.execute(
            f"INSERT INTO {self.name}_01.order_01 (customer, amount, state, token, created) "
            f"VALUES ('{customer}', 1, 'new', '', '2024-01-01')"
        )

    def family_at(self, server: Database) -> Family:
        """Return the same shard tables at another server of the source."""
        return Family(self.name, ((self.source, server),), self.rig.target)

    def judge(self, server: Database) -> None:
        """Check that the target has the rows of ``server``; all writers must have stopped."""
        self.rig.cluster.wait_caught_up(self.name, {self.source: server})
        verdict = self.family_at(server).verdict()
        assert verdict.differences == 0, verdict

    def copied_again(self, printed: Printed, server: Database, *, source_file: str = "") -> None:
        """Run the printed commands that copy the history again; ``source_file``: of another server."""
        self.operator.runs(printed, "query-status")
        self.operator.runs(printed, "stop-task")
        if source_file:
            self.operator.runs(printed, "operate-source update", source_file=source_file)
        self.operator.runs(printed, "start-task")
        self.rig.cluster.wait_replicating(self.name)
        self.insert(server, "after")
        self.judge(server)
        self.rig.cluster.dmctl("stop-task", self.name)


def started(
    rig: Replicated, name: str, server: Database | None = None, *, hold: str = "", source: str = SOURCE, rows: int = 200
) -> Running:
    """Start a task of ``server``. ``hold``: a moment at which its copy is held; ``rows``: 0: its tables are there."""
    server = server or rig.old
    family = Family(name, ((source, server),), rig.target)
    if rows:
        family.create(rows)
    if hold:
        rig.cluster.hooks.hold(hold)
    rig.cluster.start_task(family.task())
    if hold:
        rig.cluster.hooks.reached(hold)
    else:
        rig.cluster.wait_replicating(name)
        rig.cluster.wait_caught_up(name, {source: server})
    operator = Operator(rig.cluster, name, str(rig.cluster.directory / f"{name}.task.yaml"))
    return Running(rig, family, operator, source)


def refused(answer: Answer, code: int) -> Printed:
    """Return the error of a command on a source, which must have this code."""
    assert answer.code != 0, answer.text
    [one] = answer.json["sources"]
    assert int(one["error"]["code"]) == code, answer.text
    return Printed.of(one["error"])
