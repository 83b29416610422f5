"""check-config: which kind a file is, and everything that is wrong with it at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from shardmerge.ctl.main import run
from shardmerge.proto import errors
from shardmerge.proto.config.check import MODELS, FileKind, check_text
from shardmerge.proto.config.docs.samples import sample_of
from tests.unit.proto.config.samples import SOURCE, TASK


@pytest.mark.parametrize("kind", list(FileKind))
def test_kinds_are_distinguished_by_keys(kind: FileKind) -> None:
    text = sample_of(MODELS[kind])
    checked = check_text(text, "f")
    assert (checked.kind, checked.findings) == (kind, ())


@pytest.mark.parametrize(
    ("text", "kind"),
    [("task-mod: all\nnam: x\n", FileKind.TASK), ("sourceid: x\n", FileKind.SOURCE), ("name: x\n", None), ("", None),
     ('worker-addr = ":8262"\njoin = "a:1"\n', FileKind.WORKER),
     ('name = "m"\nmaster-addr = ":8261"\n', FileKind.MASTER)],
)  # fmt: skip
def test_kinds_of_broken_files(text: str, kind: FileKind | None) -> None:
    checked = check_text(text, "f")
    assert checked.kind is kind
    if kind is None:
        assert "give --kind" in str(checked.findings[0])
        assert check_text(text, "f", FileKind.TASK).findings[0].key


def test_all_findings_at_once_also_those_after_a_misspelt_key() -> None:
    text = TASK.replace("    route-rules: [r1, r2]", "    rout-rules: [r1, r2, r4]").replace("threads: 8", "threds: 8")
    text = text.replace("name: merge", "name: merge\ntimezone: Asia/Shangai\nfoo: 1")
    lines = [str(found) for found in check_text(text, "t.yaml").findings]
    keys = [
        "timezone",
        "foo",
        "mysql-instances[0].route-rules",
        "mysql-instances[0].rout-rules",
        "mydumpers.global.threds",
    ]
    assert [line.split(": ")[1] for line in lines] == keys
    assert "there is no r4 in routes" in lines[2]


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        # What a wrong value leaves open is not judged, all else is.
        ("name: merge", "name: a/b\nstrict-optimistic-shard-mode: true", ["name", "strict-optimistic-shard-mode"]),
        ("name: merge", "name: merge\nshard-mode: x\nstrict-optimistic-shard-mode: true", ["shard-mode"]),
        ("name: merge\n", "ignore-checking-items: [vers]\n", ["ignore-checking-items[0]", "name"]),
        ("[r1, r2]", "r1", ["mysql-instances[0].route-rules"]),
        ("[r1, r2]", "[r1]\n    meta: {binlog-pos: x}", ["mysql-instances[0].meta.binlog-pos", "routes.r2"]),
        ("[r1, r2]", "[r1, r2, r9]\n    meta: {}", ["mysql-instances[0].route-rules[2]", "mysql-instances[0].meta"]),
        ("- source-id: mysql-01", "- source-id: a/b", ["mysql-instances[0].source-id"]),
        ("routes:\n", "routes:\n  r3: {schema-pattern: a}\n", ["routes.r3", "routes.r3.target-schema"]),
        ("shards:\n", "shards:\n    ignore-tables: x\n", ["block-allow-list.shards.ignore-tables"]),
        ("do-dbs: [s_*]", "do-db: [s_*", ["not-yaml"]),
        ("  host: 10.0.0.9", "  hots: 10.0.0.9", ["target-database.hots", "target-database.host"]),
        ("  user: root", "  user: ''\n  security: {ssl-cert: /c}", ["target-database.user"]),
    ],
)  # fmt: skip
def test_errors_of_a_combination_are_reported_with_those_of_one_value(old: str, new: str, keys: list[str]) -> None:
    text = TASK.replace(old, new, 1)
    found = check_text(text, "t.yaml", FileKind.TASK).findings
    assert sorted(one.key or one.spec.name for one in found) == sorted(keys), [str(one) for one in found]


def test_an_expression_is_judged_without_a_server() -> None:
    text = TASK.replace("    route-rules: [r1, r2]", "    route-rules: [r1, r2]\n    expression-filters: [f]")
    rule = "expression-filter:\n  f:\n    schema: s\n    table: t\n    insert-value-expr: {}\n"
    for given, said in {
        "id = = 1": "= cannot follow what is before it",
        "'id > 1; id > 2'": "it holds ';'",
        "SELECT id > 1": "SELECT is no part of an expression over one row",
        "at < NOW()": "the function NOW changes from call to call",
        "LENTH(name) > 1": "the function LENTH is not known to depend only on the row; did you mean LENGTH?",
    }.items():
        [found] = check_text(text + rule.format(given), "t.yaml").findings
        line = (text + rule).count("\n")
        assert str(found) == f"t.yaml:{line}:24: expression-filter.f.insert-value-expr: cannot be used: {said}"


def test_a_rule_of_two_kinds_of_change_is_to_be_two_rules() -> None:
    """The message must not read as if one key of updates needed the other one."""
    text = TASK.replace("    route-rules: [r1, r2]", "    route-rules: [r1, r2]\n    expression-filters: [f]")
    rule = 'expression-filter:\n  f: {schema: s, table: t, update-new-value-expr: "id > 1"'
    assert not check_text(text + rule + "}\n", "t.yaml").findings
    [found] = check_text(text + rule + ', insert-value-expr: "id > 1"}\n', "t.yaml").findings
    assert str(found).endswith("write a rule for each kind")


def test_a_transform_is_judged_without_spark() -> None:
    text = TASK.replace("    route-rules: [r1, r2]", "    route-rules: [r1, r2]\n    transform-rules: [t]")
    rule = "transforms:\n  t:\n    schema-pattern: s\n    {}: {}\n"
    for key, given, said in (
        ("projection", "id, rand() AS r", "the function RAND changes from call to call"),
        ("projection", "id, DATE 'today' AS d", "DATE 'today' is no literal time"),
        ("projection", "id, a AS b, c AS B", "two columns are named B"),
        ("filter", "deleted = 0; DROP TABLE t", "it holds ';'"),
        ("filter", "id > > 1", "> cannot follow what is before it"),
        ("filter", "at < current_timestamp", "CURRENT_TIMESTAMP is no part of an expression over one row"),
    ):
        [found] = check_text(text + rule.format(key, given), "t.yaml").findings
        line, column = (text + rule).count("\n"), len(f"    {key}: ") + 1
        assert str(found) == f"t.yaml:{line}:{column}: transforms.t.{key}: cannot be used: {said}"


def test_thousands_of_wrong_names_are_reported_soon() -> None:
    names = ", ".join(f"rule-{number}x" for number in range(1500))
    rules = "".join(f"  rule-{number}: {{schema-pattern: a, target-schema: b}}\n" for number in range(1500))
    text = TASK.replace("[r1, r2]", f"[{names}]").replace("routes:\n", f"routes:\n{rules}")
    begun = time.process_time()
    assert len(check_text(text, "t.yaml").findings) > 3000
    assert time.process_time() - begun < 6


def test_notes_of_a_file_with_dangling_names() -> None:
    checked = check_text(TASK.replace("[m1]", "[m2]"), "t.yaml")
    assert any("there is no m2 in column-mappings" in str(found) for found in checked.findings)
    assert checked.notes


def test_notes_name_their_lines() -> None:
    checked = check_text(TASK + "timezone: UTC\n", "t.yaml")
    assert [str(note).split(": no effect")[0] for note in checked.notes][-1] == "t.yaml:47: note: timezone"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(SOURCE)
    bad.write_text(SOURCE.replace("flavor", "flavr"))
    assert run(["check-config", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: a source file without findings\n"
    assert run(["check-config", str(tmp_path / "*.yaml")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{bad}:2:1: flavr: unknown key; did you mean flavor?",
        f"{good}: a source file without findings",
    ]
    assert run(["check-config", str(bad), str(tmp_path), str(tmp_path / "none"), "--output", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["result"] is False
    one, two, three = answer["files"]
    assert one["findings"] == [
        {"line": 2, "column": 1, "key": "flavr", "message": "unknown key", "suggestion": "flavor",
         "code": errors.config.INVALID.code, "name": "invalid-configuration"}
    ]  # fmt: skip
    assert "is a directory" in two["findings"][0]["message"]
    assert three["findings"][0]["name"] == "file-not-found"
    assert run(["check-config"]) == 2


def test_the_samples_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, model in MODELS.items():
        assert run(["check-config", "--sample", kind.value]) == 0
        assert capsys.readouterr().out == sample_of(model)


def test_the_schema_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", "--json-schema", "source"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["source-id", "from"]


def test_a_huge_file_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 2**30)
    assert run(["check-config", str(path)]) == 1
    assert "more than any file of dmctl may have" in capsys.readouterr().out
    [found] = check_text("a: b\n" * 300_000, "f", FileKind.TASK).findings
    assert found.spec is errors.config.TOO_LARGE


_NESTED = "(" * 5000 + ".*" + ")" * 5000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    schema-pattern: s_*\n    table-pattern: t_*\n    target-schema: s\n", "    schema-pattern: '~{}'\n"),
        ("    do-dbs: [s_*]\n", "    do-dbs: ['~{}']\n"),
        ("    do-dbs: [s_*]\n", "    do-tables: [{{db-name: s, tbl-name: '~{}'}}]\n"),
        ("name: merge\n", "name: merge\nshadow-table-rules: ['{}']\n"),
        ("name: merge\n", "name: merge\ntrash-table-rules: ['{}']\n"),
        ("name: merge\n", "name: merge\nfilters:\n  f: {{schema-pattern: s, sql-pattern: ['{}'], action: Ignore}}\n"),
        (
            "    target-schema: s\n    target-table: t\n",
            "    target-schema: s\n    target-table: t\n    extract-table: {{table-regexp: '{}', target-column: c}}\n",
        ),
    ],
)
def test_an_expression_that_is_too_complex_is_reported_soon(before: str, after: str) -> None:
    """Matching one name took seconds."""
    assert before in TASK
    text = TASK.replace(before, after.format(_NESTED), 1)
    began = time.process_time()
    found = check_text(text, "t.yaml").findings
    assert time.process_time() - began < 1.5
    assert [each for each in found if "parentheses nested" in each.message]
    assert all(_NESTED[:200] not in each.message for each in found)
