"""The reference page of dmctl is the one that its commands generate."""

from __future__ import annotations

from pathlib import Path

from shardmerge.ctl.main import dmctl
from shardmerge.ctl.reference import PAGE, page, walk

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"


def test_the_page_in_docs_is_current() -> None:
    same = (DOCS / PAGE).read_text(encoding="utf-8") == page()
    assert same, f"docs/reference/{PAGE} is outdated: run python -m shardmerge.ctl.reference"


def test_every_command_has_a_section_with_its_options() -> None:
    sections = {part.partition("\n")[0]: part for part in page().split("\n### ")}
    for path, command in walk(dmctl, "dmctl"):
        for param in command.params:
            if param.name != "source" and param.opts[0].startswith("-") and not getattr(param, "hidden", False):
                assert param.opts[-1] in sections[path], (path, param.opts)


def test_hidden_commands_are_under_the_older_names() -> None:
    visible, _, older = page().partition("\n## Older names\n")
    assert "### dmctl handle-error\n" in older
    assert "### dmctl handle-error\n" not in visible
    assert "### dmctl start-task\n" in visible
