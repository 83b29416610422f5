"""What start-task starts."""

from __future__ import annotations

import pytest

from shardmerge.master.commands.task.operate import notes_for, select
from shardmerge.proto import errors
from shardmerge.proto.config.check import check_text
from shardmerge.proto.config.task.task_file import TaskFile, parse_task, with_ends
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.unit.master.records import state

TASK = """
name: merge
task-mode: all
target-database: {{host: 127.0.0.1, port: 4000, user: dm, password: "{password}"}}
mysql-instances:
  - source-id: s1
  - source-id: s2
"""
BINDINGS = {"s1": "w1", "s2": "w2"}


def _file(password: str = "p") -> TaskFile:
    return parse_task(TASK.format(password=password), "merge.yaml")


def _refused(spec: ErrorSpec, *, wanted: tuple[str, ...] = (), running: tuple[str, ...] = (), **given: str) -> None:
    subtasks = tuple(one for one in _file(**given).to_subtasks() if one.source_id in running)
    with pytest.raises(ShardmergeError) as caught:
        select(_file(), wanted, state(bindings=BINDINGS, subtasks=subtasks))
    assert caught.value.spec is spec


def test_all_or_the_named_sources() -> None:
    assert [one.source_id for one in select(_file(), (), state(bindings=BINDINGS)).new] == ["s1", "s2"]
    assert [one.source_id for one in select(_file(), ("s2",), state(bindings=BINDINGS)).new] == ["s2"]


def test_what_runs_is_left_alone_and_the_rest_started() -> None:
    running = (_file().to_subtasks()[0],)
    selection = select(_file(), (), state(bindings=BINDINGS, subtasks=running))
    assert [one.source_id for one in selection.new] == ["s2"]
    assert selection.running == ("s1",)


def test_refusals() -> None:
    _refused(errors.master.SOURCE_NOT_IN_TASK, wanted=("s3",))
    _refused(errors.master.TASK_EXISTS, running=("s1", "s2"))
    _refused(errors.master.TASK_EXISTS, running=("s1",), wanted=("s1",))
    _refused(errors.master.TASK_DIFFERS, running=("s1",), password="other")
    with pytest.raises(ShardmergeError) as caught:
        select(_file(), (), state(bindings={"s1": "w1"}))
    assert caught.value.spec is errors.master.SOURCE_UNKNOWN


def test_every_source_has_its_own_end() -> None:
    running = (with_ends(_file(), "", "mysql-bin.000001:4").to_subtasks()[0],)
    there = state(bindings=BINDINGS, subtasks=running)
    selection = select(with_ends(_file(), "", "mysql-bin.000007:99"), ("s2",), there)
    assert [one.stop_at.position.pos for one in selection.new] == [99]
    with pytest.raises(ShardmergeError) as caught:
        select(with_ends(_file(), "", "mysql-bin.000007:99"), (), there)
    assert caught.value.spec is errors.master.TASK_DIFFERS


def test_a_note_about_the_first_start_is_only_where_it_concerns() -> None:
    """Not at a source that runs, nor with a start time; and no other command has it."""
    text = TASK.format(password="p").replace("task-mode: all", "task-mode: incremental")
    file = parse_task(text, "merge.yaml")
    assert not file.notes
    [(source, note), (_, other)] = file.start_notes
    assert source == "s1" and "without a checkpoint it starts at its newest position" in note
    assert notes_for(file, ["s2"]) == (other,)
    assert notes_for(with_ends(file, "2024-01-01T00:00:00", ""), ["s1", "s2"]) == ()
    checked = [one.text for one in check_text(text, "merge.yaml").notes]
    assert len([one for one in checked if "without a checkpoint it starts at its newest position" in one]) == 2
