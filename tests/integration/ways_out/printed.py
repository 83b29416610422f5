"""Reads the commands that an error's way out prints, and runs them as they are printed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import cast

from tests.support.cluster import Answer, Cluster, Json
from tests.support.wait import until

_COMMAND = re.compile(r"`dmctl ((?:'[^']*'|[^`'])+)`")  # an id in quotes has backquotes


def errors_of(subtask: Json) -> list[Json]:
    """Return the errors of a subtask in query-status, those of interrupted copies included."""
    result = cast("Json", subtask.get("result") or {})
    copies = cast("list[Json]", subtask.get("copies") or [])
    found = [*cast("list[Json]", result.get("errors") or []), *(cast("Json", one.get("error") or {}) for one in copies)]
    return [error for error in found if error]


@dataclass(frozen=True, slots=True)
class Printed:
    """An error as an operator sees it. ``code``, ``message``, ``way_out``: as in the answer of dmctl."""

    code: int
    message: str
    way_out: str

    @staticmethod
    def of(detail: Json) -> Printed:
        """Return an error of query-status, or a failed check of start-task."""
        return Printed(
            int(detail["code"]),
            str(detail.get("message") or detail.get("errorMsg")),
            str(detail.get("workaround") or detail.get("instruction")),
        )

    def commands(self) -> list[str]:
        """Return the commands in the order in which they are printed, without "dmctl"."""
        return _COMMAND.findall(self.way_out)

    def command(self, begin: str, place: int = 0) -> str:
        """Return a printed command that begins with these words; ``place``: among several ones."""
        found = [one for one in self.commands() if one == begin or one.startswith(f"{begin} ")]
        assert len(found) > place, f"no `dmctl {begin} …` in: {self.way_out}"
        return found[place]


@dataclass(frozen=True, slots=True)
class Operator:
    """Does what an error prints. ``file``: the path of the task file, which replaces `<file>`."""

    cluster: Cluster
    task: str
    file: str

    def runs(
        self,
        printed: Printed,
        begin: str,
        place: int = 0,
        *,
        source_file: str = "",
        source_name: str = "",
        statement: str = "",
        position: str = "",
        check: bool = True,
        typed: str = "",
    ) -> Answer:
        """Run a printed command: nothing of it changes but `<file>`, `<source-file>`, `<source>`, `<statement>`,
        `<position>` and `<task>`. Only the report of a comparison goes to the cluster's directory instead of the
        current one.
        ``typed``: what the operator types."""
        command = printed.command(begin, place).replace("<source-file>", source_file)
        command = command.replace("<source>", source_name)
        command = command.replace("<statement>", statement)
        command = command.replace("<position>", shlex.quote(position))
        command = command.replace("<file>", self.file).replace("<task>", self.task)
        assert "{" not in command and "<" not in command, f"an operator does not know what to fill in: {command}"
        words = shlex.split(command)
        if words[0] == "compare":
            words += ["--report", str(self.cluster.directory / "way_out.jsonl")]
        return self.cluster.dmctl(*words, check=check, typed=typed)

    def stopped(self, code: int, source: str = "", *, or_code: int = 0) -> Printed:
        """Wait until a subtask is paused by an error of this code, or of ``or_code``; ``source``: only there."""

        def found() -> Printed | None:
            for one, subtask in self.cluster.subtasks(self.task).items():
                if source in ("", one) and subtask.stage == "Paused":
                    for detail in errors_of(subtask.raw):
                        if int(detail["code"]) in (code, or_code):
                            return Printed.of(detail)
            return None

        return until(found, f"task {self.task} is paused by error {code}", 300)

    def refused(self, code: int, *words: str) -> Printed:
        """Run a command, which must fail with a check of this code."""
        answer = self.cluster.dmctl(*words, check=False)
        assert answer.code != 0, answer.text
        for check in answer.json.get("checkResult", []):
            if int(check.get("code", 0)) == code:
                return Printed.of(check)
        raise AssertionError(answer.text)
