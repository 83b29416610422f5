"""The style that all tables share: colours of stages and results, cells, errors. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shardmerge.ctl.error_report import ErrorReport, flat
from shardmerge.proto.worker_pb2 import StatusWarning

_STAGE_STYLES = {
    "Running": "green",
    "Paused": "yellow",
    "Finished": "cyan",
    "Stopped": "dim",
    "New": "dim",
}


__all__ = ["Rows", "cell", "flat", "heading", "outcome", "problem", "stage", "table", "warning"]


def cell(text: str, style: str = "") -> Text:
    """A cell without markup: names and messages may hold brackets or control characters."""
    return Text(flat(text), style=style)


def stage(word: str, *, failed: bool = False) -> Text:
    """A stage or a task's status with its dot: ``● Running``; red if it has an error."""
    style = "bold red" if failed or word.startswith("Error") else _STAGE_STYLES.get(word, "magenta")
    return Text.assemble(("● ", style), (flat(word), style))


def outcome(*, result: bool) -> Text:
    """``✓ done`` or ``✗ failed``."""
    return Text("✓ done", style="green") if result else Text("✗ failed", style="bold red")


class Rows(Table):
    """A table whose cells may be plain texts."""

    def add(self, *cells: RenderableType) -> None:
        """Add a row. Texts become cells without markup, the first one in bold."""
        texts = (cell(one, "" if at else "bold") if isinstance(one, str) else one for at, one in enumerate(cells))
        self.add_row(*texts)


def table(*columns: str, right: Sequence[str] = ()) -> Rows:
    """An empty table with these headers; those in ``right`` hold numbers."""
    made = Rows(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def problem(report: ErrorReport, where: str = "") -> RenderableType:
    """One error under a table: what happened in red, what to do below it."""
    return _notice("✗", "red", f"{report.code} {report.name}", report.message, report.workaround, where)


def warning(found: StatusWarning, where: str = "") -> RenderableType:
    """One warning under a table: what happens in yellow, what to do below it."""
    return _notice("!", "yellow", found.name, found.message, found.workaround, where)


def _notice(mark: str, colour: str, name: str, message: str, workaround: str, where: str) -> RenderableType:
    head = Text.assemble(
        (f"{mark} ", f"bold {colour}"),
        (f"{flat(where)}  " if where else "", "bold"),
        (f"[{flat(name)}] ", colour),
        flat(message),
    )
    todo = Text.assemble(("what to do: ", "bold"), flat(workaround))
    return Group(Padding(head, (1, 0, 0, 0)), Padding(todo, (0, 0, 0, 2)))


def heading(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))
