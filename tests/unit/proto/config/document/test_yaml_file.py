"""YAML with positions: where keys stand, what is refused, and that nothing gives a traceback."""

from __future__ import annotations

import time
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.daemon_file import parse_master, parse_worker
from shardmerge.proto.config.document.toml_file import compose_toml
from shardmerge.proto.config.document.yaml_file import Document, YamlPlace, compose, read
from shardmerge.proto.config.source import parse_source
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from tests.support.examples import examples
from tests.unit.proto.config.samples import SOURCE, TASK


def refused(text: str) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        read(text, "f.yaml")
    return caught.value


def test_scalars_stay_as_written_and_places_are_known() -> None:
    document = read("a: 007\nb:\n  - on\n  - ~\n  - '~'\nc: {d: 1e3}\n", "f.yaml")
    assert document.root == {"a": "007", "b": ["on", None, "~"], "c": {"d": "1e3"}}
    assert document.keys[("b",)] == YamlPlace(2, 1)
    assert document.values[("b", 1)] == YamlPlace(4, 5)
    assert document.values[("c", "d")] == YamlPlace(6, 8)


def test_merge_keys_and_aliases() -> None:
    document = read("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nlist: [*b]\n", "f.yaml")
    assert document.root["use"] == {"y": "3", "x": "1"}
    assert document.root["list"] == [{"x": "1", "y": "2"}]
    assert document.keys[("use", "y")] == YamlPlace(4, 3)
    assert document.keys[("use", "x")] == YamlPlace(1, 11)


def test_duplicate_key_names_both_lines() -> None:
    error = refused("a: 1\nb: 2\na: 3\n")
    assert error.spec is errors.config.INVALID
    assert "f.yaml:3:1: a: the key is given twice, first in line 1" in error.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1", "f.yaml:2:1: not YAML"),
        ("a: 1\n---\nb: 2", "single document"),
        ("\x00", "does not allow"),
        ('a: "\\U99999999"', "does not allow"),
        ("[" * 3000, "nested too deeply"),
        ("[{" * 300 + "}]" * 300, "nested too deeply"),
        ("- " * 3000, "nested too deeply"),
        ("? " * 3000, "nested too deeply"),
        ("".join(f"{' ' * n}a:\n" for n in range(300)), "nested too deeply"),
        ("a:\n" + "- b\n" * 40_000, "more than 30000 keys and values"),
        ("a: " + "b" * 2**20, "characters are more than a configuration file may have"),
        ("a:\n\t- b", "not YAML"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ('"\\ud800": a', "a key must be text"),
        ("- a\n- b", "must be a mapping"),
        ("just text", "must be a mapping"),
        ("a: !!python/object:os.system x", "tags are not supported"),
        ("a: &x [*x]", "f.yaml:1:4: a[0]: the alias contains itself"),
        ("a: &x\n  <<: *x", "<< needs the alias of another mapping"),
        ("? {q: 1}\n: z", "a key must be text"),
    ],
)
def test_refused(text: str, says: str) -> None:
    assert says in refused(text + "\n").message


@pytest.mark.filterwarnings("error")
def test_what_editors_put_into_files() -> None:
    assert read("\ufeffa: 1\r\nb: 2\r\n", "f.yaml").root == {"a": "1", "b": "2"}
    assert read("\ufeff", "f.yaml").root == {}
    assert read("---\na: ä漢\U0001f600\n...\n", "f.yaml").root == {"a": "ä漢\U0001f600"}
    document = read("a: &x 1\nb: &x 2\nc: *x\n", "f.yaml")
    assert document.root["c"] == "2"


@pytest.mark.parametrize(
    "text",
    [
        "a: [" + "a, " * 340_000 + "]",
        "".join(f"k{n}: {n}\n" for n in range(60_000)),
        'a: "' + "x\\n" * 340_000 + '"',
        "#x\n" * 340_000,
        "[" * 1_000_000,
        "&a " * 300_000,
        "a: " * 300_000,
    ],
)
def test_the_largest_files_are_answered_soon(text: str) -> None:
    begun = time.monotonic()
    compose(text, "f.yaml")
    compose_toml(text, "f.toml")
    assert time.monotonic() - begun < 60


def test_alias_bomb_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "keys and values after aliases are expanded" in refused("\n".join(lines)).message


def test_messages_do_not_quote_what_may_be_a_password() -> None:
    assert "s3cret" not in refused("password: *s3cret\n").message
    assert "s3cret" not in refused("password: 's3cret\n").message


def test_places_of_the_command_line() -> None:
    document = Document("f", {"a": "1"}, {("a",): YamlPlace(0, 0)}, {("a",): YamlPlace(0, 0)})
    assert str(document.finding(("a",), "is wrong")) == "command line: a: is wrong"


PARSERS = (parse_task, parse_source, parse_master, parse_worker)


def only_coded(text: str) -> None:
    for parse in PARSERS:
        try:
            parse(text, "f.yaml")
        except ShardmergeError as error:
            assert error.spec.placeholders() <= error.values.keys()
            assert error.spec.error_class == "config"


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_a_model_or_a_coded_error(text: str) -> None:
    only_coded(text)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\\ \n\t~<=0\r\u2028U", max_size=60))
def test_any_punctuation_gives_a_model_or_a_coded_error(text: str) -> None:
    only_coded(text)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([TASK, SOURCE]),
    st.integers(0, 5000),
    st.integers(0, 12),
    st.text(alphabet="ab:-[]{}&*!|>'\"#~,?\\ \n\t190", max_size=8),
)
def test_a_damaged_file_gives_a_model_or_a_coded_error(good: str, at: int, cut: int, put: str) -> None:
    at %= len(good)
    only_coded(good[:at] + put + good[at + cut :])


_TREES = st.recursive(
    st.none() | st.sampled_from(["", "1", "-5", "true", "x", "~^(", "t_*", "9" * 5000, "${A}", "0s"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "task-mode", "source-id", "meta", "routes", "syncers", "port", "arguments", "x", "from"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
_TOP = ["name", "task-mode", "target-database", "mysql-instances", "routes", "column-mappings", "syncers"]


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from([*_TOP, "from", "purge", "spark", "etcd", "filters"]), _TREES))
def test_any_shape_gives_a_model_or_a_coded_error(tree: dict[str, object]) -> None:
    only_coded(flow(tree))


def flow(value: object) -> str:
    """``value`` as YAML in flow style."""
    if isinstance(value, dict):
        value = cast("dict[str, object]", value)
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        value = cast("list[object]", value)
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return "~" if value is None else f"'{value}'"


_MANY_KEYS = "".join(f"  k{number}: 1\n" for number in range(400))

BOMBS = {
    "aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "just too many values": f"a: &a [{','.join('1' * 190)}]\nb: [{','.join(['*a'] * 190)}]\n",
    "a merge key in each of many lines": "a: &a {x: 1}\nb:\n" + "  <<: *a\n" * 60_000,
    "a list of merges": "a: &a {x: 1}\nb:\n  <<: [" + "*a, " * 60_000 + "]\n",
    "merges without an alias": "b:\n" + "  <<: {x: 1}\n" * 50_000,
    "merges of merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]\n  k{n}: 1\n" for n in range(1, 60)),
    "a long chain": "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 20_000)),
    "a merge of many keys, many times": f"a: &a\n{_MANY_KEYS}" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(200)),
    "cycles": "a: &a [" + ", ".join(f"&n{n} [*a{''.join(f', *n{m}' for m in range(n))}]" for n in range(40)) + "]\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_what_becomes_too_much_is_refused_before_it_is_expanded(text: str) -> None:
    began = time.process_time()
    document, findings = compose(text, "f.yaml")
    taken = time.process_time() - began
    assert document is None
    [finding] = findings
    assert finding.spec in (errors.config.INVALID, errors.config.TOO_LARGE)
    assert taken < 1.5, "a third of it on a machine with nothing else to do"


def test_a_merge_of_a_large_mapping_takes_linear_time() -> None:
    """It took the square of its keys."""
    keys = "".join(f"  k{number}: {{v: 1}}\n" for number in range(2500))
    began = time.process_time()
    document = read(f"a: &a\n{keys}b:\n  <<: *a\n  k7: own\n", "f.yaml")
    taken = time.process_time() - began
    merged = document.root["b"]
    assert isinstance(merged, dict)
    assert (len(merged), merged["k7"], merged["k8"]) == (2500, "own", {"v": "1"})
    assert document.line(("b", "k8")) == 10
    assert document.values["b", "k8", "v"] == YamlPlace(10, 11)
    assert taken < 4


def test_merges_of_merges_keep_the_nearest_value() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2, z: 2}\nc: {<<: [*b, {x: 3, w: 3}], z: 4}\n"
    document = read(text, "f.yaml")
    assert document.root["c"] == {"z": "4", "y": "2", "x": "1", "w": "3"}
    assert document.line(("c", "x")) == 1
    assert document.line(("c", "w")) == 3
    assert document.spans["c", "y"] == document.spans["b", "y"]


def test_hundreds_of_aliases_are_no_bomb() -> None:
    lines = "".join(f"  - {{<<: *global, source-id: s{number}}}\n" for number in range(450))
    document = read(f"global: &global {{threads: 4, rows: 5}}\nlist:\n{lines}", "f.yaml")
    assert document.root["list"][449] == {"source-id": "s449", "threads": "4", "rows": "5"}  # type: ignore[index]
