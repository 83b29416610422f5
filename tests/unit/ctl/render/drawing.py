"""Renderables as plain text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def draw(renderable: RenderableType, *, width: int = 120, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="truecolor" if colour else None,
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
