"""A task by name or by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.ctl.files import config_file, is_file_argument, task_name
from shardmerge.proto import errors
from shardmerge.proto.config.check import FileKind, check_text
from shardmerge.proto.errors import ErrorSpec, ShardmergeError


def test_a_name_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merge").mkdir()
    assert task_name("merge") == "merge"
    assert not is_file_argument("merge")


def test_a_file_gives_its_name(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("---\n# comment\nname: merge_orders\ntask-mode: all\nx: [*]\n".replace("x: [*]\n", ""))
    assert task_name(str(file)) == "merge_orders"
    file.write_text("\ufeffname: 2024\n")
    assert task_name(str(file)) == "2024"


@pytest.mark.parametrize(
    ("text", "line"), [("a: [1\nb: 2", 2), ("- x", 1), ("other: 1", 1), ("name:", 1), ("name: {a: 1}", 1), ("", 1)]
)
def test_a_file_without_a_name(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(text)
    with pytest.raises(ShardmergeError) as caught:
        task_name(str(file))
    assert caught.value.spec is errors.ctl.NO_TASK_NAME
    assert f"{file}:{line}: " in caught.value.message


def test_a_file_of_another_kind_with_the_name_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merge").write_bytes(b"\xff\x00 not yaml: [")
    assert task_name("merge") == "merge"
    (tmp_path / "merge").write_text("name: other")
    assert task_name("merge") == "other"


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        ("absent", errors.ctl.FILE_NOT_FOUND),
        ("latin", errors.ctl.FILE_UNREADABLE),
        ("folder", errors.ctl.FILE_UNREADABLE),
    ],
)
def test_unreadable(tmp_path: Path, make: str, spec: ErrorSpec) -> None:
    file = tmp_path / "x.yaml"
    if make == "latin":
        file.write_bytes("name: Zürich".encode("latin-1"))
    if make == "folder":
        file.mkdir()
    for read in (config_file, task_name):
        with pytest.raises(ShardmergeError) as caught:
            read(str(file))
        assert caught.value.spec is spec
        assert str(file) in caught.value.message


def test_the_file_is_sent_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("password: ${DM_PASSWORD}\n")
    assert config_file(str(file)).content == "password: ${DM_PASSWORD}\n"
    assert config_file(str(file)).name == str(file)


def test_the_sample_is_a_source_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardmerge.proto.config.docs.samples import sample_of
    from shardmerge.proto.config.source import SourceModel, parse_source

    monkeypatch.setenv("DM_PASSWORD", "secret")
    source = parse_source(sample_of(SourceModel), "sample.yaml")
    assert source.source_id == "mysql-01"


_WRITTEN = (
    *("*Geheim", "&Geheim", "!Geheim x", "!!int Geheim", "!!binary Geheim", "{Geheim: Geheim}", "[Geheim]", '"Geheim'),
    *("{Geheim", "%Geheim", "|Geheim", "Geheim: Geheim", '"Geheim\\q"', "!<Geheim> x", "Geheim\n  password: Geheim"),
)


@pytest.mark.parametrize("written", _WRITTEN)
def test_what_is_wrong_with_a_file_is_reported_without_its_password(written: str, tmp_path: Path) -> None:
    text = f"name: t\ntask-mode: all\ntarget-database:\n  user: u\n  password: {written}\n"
    file = tmp_path / "t.yaml"
    file.write_text(text)
    said = [str(one) for kind in (FileKind.TASK, FileKind.SOURCE) for one in check_text(text, "f", kind).findings]
    try:
        task_name(str(file))
    except ShardmergeError as error:
        said.append(str(error))
    assert said and "Geheim" not in "".join(said)
