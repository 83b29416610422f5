"""Changes of JSON values: applied as the server applies them, refused where they do not fit."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.json.binary import BadJson
from shardmerge.worker.binlog.json.partial_update import apply_diffs, parse_path, partial_head
from tests.support.binary_json import INSERT, REMOVE, REPLACE, Json, change, encode, size_of, text_of

BEFORE: Json = {"a": 1, "bb": [1, 2.5, {"x": None}], "c d": {"e": "f"}}


def after(*changes: bytes, before: Json = BEFORE, large: bool = False) -> str:
    return apply_diffs(encode(before, large), b"".join(changes)).decode()


CHANGES: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([], '{"a": 1, "bb": [1, 2.5, {"x": null}], "c d": {"e": "f"}}'),
    "replace": ([change(REPLACE, "$.a", "new")], '{"a": "new", "bb": [1, 2.5, {"x": null}], "c d": {"e": "f"}}'),
    "replace inside": ([change(REPLACE, "$.bb[2].x", [1])],
                       '{"a": 1, "bb": [1, 2.5, {"x": [1]}], "c d": {"e": "f"}}'),
    "insert a member": ([change(INSERT, "$.b", 7)], '{"a": 1, "b": 7, "bb": [1, 2.5, {"x": null}], "c d": {"e": "f"}}'),
    "insert a quoted member": ([change(INSERT, '$."c d"."\\"\\u0001é"', 7)],
                               '{"a": 1, "bb": [1, 2.5, {"x": null}], "c d": {"e": "f", "\\"\\u0001é": 7}}'),
    "insert an element": ([change(INSERT, "$.bb[1]", 9)],
                          '{"a": 1, "bb": [1, 9, 2.5, {"x": null}], "c d": {"e": "f"}}'),
    "append an element": ([change(INSERT, "$.bb[99]", 9)],
                          '{"a": 1, "bb": [1, 2.5, {"x": null}, 9], "c d": {"e": "f"}}'),
    "remove": ([change(REMOVE, "$.bb")], '{"a": 1, "c d": {"e": "f"}}'),
    "remove an element": ([change(REMOVE, "$.bb[0]")], '{"a": 1, "bb": [2.5, {"x": null}], "c d": {"e": "f"}}'),
    "from the end": ([change(REPLACE, "$.bb[last]", 0), change(REMOVE, "$.bb[last-1]"),
                      change(INSERT, "$.bb[last]", 5), change(INSERT, "$.bb[last-9]", 6)],
                     '{"a": 1, "bb": [6, 1, 5, 0], "c d": {"e": "f"}}'),
    "one after the other": ([change(REPLACE, "$.a", {"z": []}), change(INSERT, "$.a.z[0]", "s"),
                              change(INSERT, "$.a.y", True), change(REMOVE, '$."c d".e')],
                             '{"a": {"y": true, "z": ["s"]}, "bb": [1, 2.5, {"x": null}], "c d": {}}'),
}  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("changes", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_changes(changes: list[bytes], expected: str, large: bool) -> None:
    assert after(*changes, large=large) == expected


REFUSED = {
    "replace what is not there": change(REPLACE, "$.z", 1),
    "replace an element that is not there": change(REPLACE, "$.bb[3]", 1),
    "insert what is there": change(INSERT, "$.a", 1),
    "remove what is not there": change(REMOVE, "$.z"),
    "remove an element that is not there": change(REMOVE, "$.bb[last-3]"),
    "a member of an array": change(REPLACE, "$.bb.a", 1),
    "an element of an object": change(INSERT, "$[0]", 1),
    "inside a scalar": change(INSERT, "$.a.b", 1),
    "through what is not there": change(INSERT, "$.z.b", 1),
    "the whole value": change(REPLACE, "$", 1),
    "no path": change(REPLACE, "", 1),
    "a wildcard": change(REMOVE, "$.*"),
    "a range": change(REMOVE, "$.bb[0 to 1]"),
    "an open key": change(REMOVE, '$."a'),
    "a bad escape": change(REMOVE, '$."\\q"'),
    "half a surrogate pair": change(REMOVE, '$."\\ud800"'),
    "an unknown operation": b"\3\3$.a",
    "no more than an operation": b"\2",
    "a path cut off": b"\2\4$.a",
    "a value cut off": change(REPLACE, "$.a", "long")[:-1],
    "a length that is none": b"\2\xff$.a",
    "a length cut off": b"\2\xfc\1",
    "a malformed value": b"\0\3$.a\2\4\7",
}


@pytest.mark.parametrize("diffs", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(diffs: bytes) -> None:
    with pytest.raises(BadJson):
        after(diffs)


def test_paths_into_what_shares_bytes_are_refused_before_they_fill_the_memory() -> None:
    inner = struct.pack("<II", 20_000, 8 + 100_000) + b"\4\0\0\0\0" * 20_000
    head = 8 + 5 * 60
    before = b"\3" + struct.pack("<II", 60, head + len(inner)) + (b"\3" + struct.pack("<I", head)) * 60 + inner
    tracemalloc.start()
    try:
        with pytest.raises(BadJson, match="share bytes"):
            apply_diffs(before, b"".join(change(REMOVE, f"$[{number}][0]") for number in range(60)))
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_depth_counts_from_the_top() -> None:
    deep: Json = []
    for _ in range(97):
        deep = [deep]
    assert after(change(INSERT, "$.z[0]", deep), before={"z": []}).count("[") == 99
    with pytest.raises(BadJson, match="levels"):
        after(change(INSERT, "$.z[0]", [deep]), before={"z": []})


keys = st.text(max_size=3)
members = st.dictionaries(keys, st.integers(-9, 9), max_size=6)


@given(members, st.lists(st.tuples(keys, st.integers(10, 99) | st.none()), max_size=8))
def test_members_like_a_dict(before: dict[str, int], writes: list[tuple[str, int | None]]) -> None:
    """Sequences of changes, against Python's own dict."""
    model: dict[str, Json] = dict(before)
    changes: list[bytes] = []
    for key, value in writes:
        path = "$." + json.dumps(key, ensure_ascii=False)
        if value is None:
            if key in model:
                changes.append(change(REMOVE, path))
                del model[key]
        else:
            changes.append(change(REPLACE if key in model else INSERT, path, value))
            model[key] = value
    assert after(*changes, before=dict(before)) == text_of(model)


def test_paths() -> None:
    assert parse_path(b"$") == []
    assert parse_path(b'$.abc."d e"[0][last][last-2]._x$') == [b"abc", b"d e", 0, ~0, ~2, b"_x$"]
    assert parse_path(" $ . é [ 12 ] ".encode()) == ["é".encode(), 12]


def test_the_head_of_a_partial_row() -> None:
    assert partial_head(b"\0rest", 0, 5, 3) == (0, 1)
    assert partial_head(b"\1\5rest", 0, 6, 3) == (0b101, 2)
    assert partial_head(b"\1\1\2", 0, 3, 9) == (0x201 & 0x1FF, 3)
    assert partial_head(b"xx\1\xff\x01", 2, 5, 9) == (0x1FF, 5)
    for malformed in (b"", b"\1", b"\2\0", b"\xfb", b"\xfc\1"):
        with pytest.raises(BadJson):
            partial_head(malformed, 0, len(malformed), 3)


def test_a_long_path_and_value() -> None:
    key = "k" * 300
    assert after(change(INSERT, f"$.{key}", "v" * 70000), before={}) == f'{{"{key}": "{"v" * 70000}"}}'
    assert size_of(300) == b"\xfc\x2c\1"
