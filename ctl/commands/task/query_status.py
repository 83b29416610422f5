"""`dmctl query-status`: shows the state of tasks, once or live."""

from __future__ import annotations

import click

from shardmerge.ctl import as_json, render
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import SecondsRange, shared
from shardmerge.ctl.render.progress import Until
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("query-status")
@click.argument("task", metavar="[TASK|FILE]", required=False)
@click.option("--more", is_flag=True, help="positions, relay, tables and lanes too")
@click.option("--watch", "watching", is_flag=True, help="refresh until Ctrl-C or until the task has finished")
@click.option(
    "--until",
    type=click.Choice([goal.value for goal in Until]),
    help="wait; exit with 0 once every subtask has reached this, with 1 once one cannot; synced: has applied all that "
    "its source had committed when the command began",
)
@click.option(
    "--interval",
    type=SecondsRange(0.05, 3600),
    default=1.0,
    metavar="SECONDS",
    help="time between refreshes  [1]",
)
@shared()
def query_status(task: str | None, until: str | None, interval: float, *, more: bool, watching: bool) -> int:
    """Show a line per task, or the subtasks of one task (or of the sources of -s).

    \b
    Example:
        dmctl query-status merge --watch --until synced
    """
    session = Session.current()
    query = Query(session, task_name(task) if task is not None else "", more=more)
    if watching or until is not None:
        from shardmerge.ctl.watch import watch

        goal = Until(until) if until is not None else None
        if goal is not None and not query.detail:
            raise click.UsageError("--until needs a task, or -s")
        return watch.run(
            session,
            query.ask,
            detail=query.detail,
            more=more,
            until=goal,
            interval=interval,
            title=query.title,
            only_last=not watching,
        )
    answer = query.ask(None)
    return session.show(
        "query-status",
        answer,
        lambda: render.status_table.detail(answer, more=more) if query.detail else render.tables.task_list(answer),
        lambda: as_json.query_status(answer, detail=query.detail),
    )


class Query:
    """A status query, sent once or repeatedly."""

    def __init__(self, session: Session, name: str, *, more: bool) -> None:
        self._session = session
        self._name = name
        self.detail = bool(name or session.settings.sources or more)

    @property
    def title(self) -> str:
        if self._name:
            return f"task {self._name}"
        sources = self._session.settings.sources
        return f"tasks of {', '.join(sources)}" if sources else "all tasks"

    def ask(self, timeout: float | None) -> pb.QueryStatusResponse:
        """The answer; with --more and neither task nor source, the details of every task."""
        sources = self._session.settings.sources
        answer = self._ask(self._name, sources, timeout)
        if self.detail and not self._name and not sources and answer.result and not answer.sources:
            named = dict.fromkeys(source for task in answer.tasks for source in task.sources)
            if named:
                return self._ask("", tuple(named), timeout)
        return answer

    def _ask(self, name: str, sources: tuple[str, ...], timeout: float | None) -> pb.QueryStatusResponse:
        request = pb.QueryStatusRequest(name=name, sources=sources)
        return self._session.call("query-status", lambda master: master.QueryStatus, request, timeout=timeout)
