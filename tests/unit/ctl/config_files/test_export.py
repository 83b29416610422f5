"""The directory of `config export` and `config import`, and what an import has to do."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shardmerge.ctl.config_files import export
from shardmerge.ctl.config_files.export import ExportedSubTask, file_name
from shardmerge.ctl.config_files.importing import plan
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ErrorSpec, ShardmergeError

NAMES = ["mysql-01", "sträße-例 1"]


def source_text(name: str) -> str:
    return f'source-id: "{name}" # ours\nfrom: {{host: h, port: 3306, user: dm, password: "pä$$ wörd"}}\n'


def task_text(name: str = "merge", *sources: str) -> str:
    instances = ", ".join(f'{{source-id: "{source}"}}' for source in sources or NAMES)
    return (
        f'name: {name}\ntask-mode: all\ntarget-database: {{host: h, port: 4000, user: u, password: "${{DM_TARGET}}"}}\n'
        f"mysql-instances: [{instances}]\n"
    )


SOURCES = [pb.StoredConfig(name=name, cfg=source_text(name)) for name in NAMES]
SUBTASKS = [
    pb.StoredSubTask(source=NAMES[0], expected=common_pb2.STAGE_RUNNING),
    pb.StoredSubTask(source=NAMES[1], expected=common_pb2.STAGE_PAUSED, stop_at="mysql-bin.000003:4711"),
]
TASK = pb.StoredConfig(name="merge", cfg=task_text(), subtasks=SUBTASKS)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(spec: ErrorSpec, call: object, *arguments: object) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        call(*arguments)  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
    assert caught.value.spec is spec, caught.value
    return caught.value


def test_what_is_written_is_read_and_only_the_owner_can(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "configs"
    export.write(str(folder), SOURCES, [TASK])
    assert set(contents(folder)) == {
        "sources/mysql-01.yaml", "sources/sträße-例 1.yaml", "tasks/merge.yaml", "subtasks.json",
    }  # fmt: skip
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert [path.name for path in folder.parent.iterdir()] == ["configs"]
    read = export.read(str(folder))
    assert [(one.source, one.text) for one in read.sources] == [(one.name, one.cfg) for one in SOURCES]
    [task] = read.tasks
    assert (task.name, task.text) == ("merge", TASK.cfg)
    paused = ExportedSubTask.model_validate({"stage": "Paused", "stop-at": "mysql-bin.000003:4711"})
    assert task.subtasks == {NAMES[0]: ExportedSubTask(), NAMES[1]: paused}
    export.write(str(tmp_path / "again"), SOURCES, [TASK])
    assert contents(tmp_path / "again") == contents(folder)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export.write(str(tmp_path / "empty"), SOURCES, [])
    before = contents(tmp_path / "empty")
    error = refused(errors.ctl.EXPORT_INTO, export.write, str(tmp_path / "empty"), [], [TASK])
    assert "something is there already" in error.message
    assert contents(tmp_path / "empty") == before
    (tmp_path / "file").write_text("x")
    refused(errors.ctl.EXPORT_INTO, export.write, str(tmp_path / "file"), [], [])
    refused(errors.ctl.EXPORT_INTO, export.write, str(tmp_path / "file" / "below"), [], [])


def test_long_names_keep_apart() -> None:
    first, second = file_name("例" * 63 + "a"), file_name("例" * 84 + "b")
    other = file_name("例" * 84 + "c")
    assert first == "例" * 63 + "a.yaml"
    assert second != other
    assert max(len(name.encode()) for name in (first, second, other)) <= 255
    assert second.endswith(".yaml")


def test_a_directory_of_dm_has_no_index(tmp_path: Path) -> None:
    export.write(str(tmp_path / "c"), SOURCES, [TASK])
    (tmp_path / "c" / "subtasks.json").unlink()
    (tmp_path / "c" / "relay_workers.json").write_text('{"mysql-01": ["worker-1"]}')
    [task] = export.read(str(tmp_path / "c")).tasks
    assert task.subtasks == {name: ExportedSubTask() for name in NAMES}


@pytest.mark.parametrize(
    ("file", "text", "spec", "says"),
    [
        ("sources/two.yaml", source_text("mysql-01"), errors.ctl.IMPORT_FILE, "source mysql-01 is in"),
        ("tasks/two.yaml", task_text(), errors.ctl.IMPORT_FILE, "task merge is in"),
        ("tasks/other.yaml", task_text("other"), errors.ctl.IMPORT_FILE, "there is no entry for task other"),
        ("tasks/merge.yaml.bak", "", errors.ctl.IMPORT_FILE, "not a .yaml file"),
        ("subtasks.json", "{", errors.ctl.IMPORT_FILE, "Invalid JSON"),
        ("subtasks.json", '{"format": 2, "tasks": {}}', errors.ctl.IMPORT_FILE, "format"),
        ("subtasks.json", '{"format": 1, "tasks": {}}', errors.ctl.IMPORT_FILE, "there is no entry for task merge"),
        ("subtasks.json", '{"tasks": {"merge": {"x": {}}}}', errors.ctl.IMPORT_FILE, "does not name source x"),
        ("subtasks.json", '{"tasks": {"merge": {"mysql-01": {"stage": "New"}}}}', errors.ctl.IMPORT_FILE, "stage"),
        ("sources/bad.yaml", "source-id: [", errors.config.NOT_YAML, "bad.yaml"),
        ("tasks/merge.yaml", "name: merge\nnope: 1\n", errors.config.INVALID, "merge.yaml:2"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named(tmp_path: Path, file: str, text: str, spec: ErrorSpec, says: str) -> None:
    export.write(str(tmp_path / "c"), SOURCES, [TASK])
    (tmp_path / "c" / file).write_text(text)
    assert says in refused(spec, export.read, str(tmp_path / "c")).message


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    refused(errors.ctl.FILE_NOT_FOUND, export.read, str(tmp_path / "nope"))
    refused(errors.ctl.IMPORT_FILE, export.read, str(tmp_path))


# --- what is left to do


def _directory(tmp_path: Path) -> export.Directory:
    export.write(str(tmp_path / "c"), SOURCES, [TASK])
    return export.read(str(tmp_path / "c"))


def test_sources_that_begin_otherwise_are_started_apart(tmp_path: Path) -> None:
    wanted = plan(_directory(tmp_path), [], [])
    assert [one.source for one in wanted.sources] == NAMES
    assert [one.sources for one in wanted.starts] == [(NAMES[0],), (NAMES[1],)]
    second = wanted.starts[1].request(check_only=False)
    assert (second.paused, second.stop_at, second.start_time) == (True, "mysql-bin.000003:4711", "")
    assert not wanted.existing


def test_what_is_there_is_passed_over_or_refused(tmp_path: Path) -> None:
    directory = _directory(tmp_path)
    half = pb.StoredConfig(name="merge", same=True, subtasks=SUBTASKS[:1])
    there = [pb.StoredConfig(name=source.name, same=True) for source in SOURCES]
    whole = pb.StoredConfig(name="merge", same=True, subtasks=TASK.subtasks)
    wanted = plan(directory, [there[0], pb.StoredConfig(name="further")], [half])
    assert [one.source for one in wanted.sources] == NAMES[1:]
    assert [one.sources for one in wanted.starts] == [(NAMES[1],)]
    assert len(wanted.existing) == 2
    assert plan(directory, there, [whole]).starts == ()
    other = pb.StoredConfig(name=NAMES[0])
    error = refused(errors.ctl.IMPORT_DIFFERS, plan, directory, [other], [])
    assert "source mysql-01" in error.message
    refused(errors.ctl.IMPORT_DIFFERS, plan, directory, [], [pb.StoredConfig(name="merge")])
    moved = pb.StoredConfig(name="merge", same=True, subtasks=[pb.StoredSubTask(source=NAMES[0], stop_at="a.1:4")])
    refused(errors.ctl.IMPORT_DIFFERS, plan, directory, there, [moved])


def test_a_task_needs_its_sources(tmp_path: Path) -> None:
    export.write(str(tmp_path / "c"), SOURCES[:1], [TASK])
    directory = export.read(str(tmp_path / "c"))
    assert NAMES[1] in refused(errors.ctl.IMPORT_FILE, plan, directory, [], []).message
    assert plan(directory, [pb.StoredConfig(name=NAMES[1])], []).starts
