"""Text in every character set; tests/integration/test_character_sets.py compares every code with the servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.characters.character_set import CharacterSet, NoCharacter, character_set
from shardmerge.worker.binlog.rows.characters.multi_byte import MULTI_BYTE
from shardmerge.worker.binlog.rows.characters.single_byte import SINGLE_BYTE

UNICODE = ("utf8", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32")
EVERY = sorted({*SINGLE_BYTE, *MULTI_BYTE, *UNICODE})


def known(name: str) -> CharacterSet:
    found = character_set(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("latin1", b"\x80\x81\xdf", "€\x81ß"),
        ("swe7", b"[\\]", "ÄÖÅ"),
        ("greek", b"\xa1\xe1", "ʽα"),
        ("sjis", b"\x81\x5f\x5c", "\\\\"),
        ("sjis", b"\x83\x5c\xb1", "ソｱ"),
        ("cp932", b"\x87\x9c\xfa\x54", "∪￢"),
        ("ujis", b"a\xa1\xc0\x8e\xb1\x8f\xa2\xb7\xf5\xa1\x8f\xf5\xa1", "a\\ｱ~\ue000\ue3ac"),
        ("eucjpms", b"\xa1\xc1\xad\xa1\x8f\xf3\xf3\x8f\xf4\xfe\xf5\xa1", "～①ⅰ黑\ue000"),
        ("big5", b"\xf9\xd6", "碁"),
        ("euckr", b"\x81\x41", "갂"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37\x94\x39\xda\x33\xd6\xd0", "ḿ\ue7c7💩中"),
        ("ucs2", b"\x4e\x2d", "中"),
        ("utf16", b"\xd8\x3d\xde\x00", "😀"),
        ("utf16le", b"\x3d\xd8\x00\xde", "😀"),
        ("utf32", b"\x00\x01\xf6\x00", "😀"),
    ],
)
def test_characters_of_a_code(name: str, data: bytes, text: str) -> None:
    assert known(name).decoded(data) == text


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("ascii", b"a\x80", b"\x80"),
        ("cp1250", b"ab\x81", b"\x81"),
        ("tis620", b"\xa1\xa0", b"\xa0"),
        ("swe7", b"\x7f", b"\x7f"),
        ("swe7", b"a\xe4", b"\xe4"),
        ("big5", b"a\xa1\x5a", b"\xa1\x5a"),
        ("gbk", b"a\x81", b"\x81"),
        ("gbk", b"\xff", b"\xff"),
        ("cp932", b"\x80", b"\x80"),
        ("ujis", b"\x8f\xa1", b"\x8f"),
        ("gb18030", b"\xe3\x32\x9a\x36", b"\xe3\x32\x9a\x36"),
        ("ucs2", b"\xd8\x3d\xde\x00", b"\xd8\x3d\xde\x00"),
        ("ucs2", b"\x00a\xd8\x3d", b"\xd8\x3d"),
        ("utf16", b"\xde\x00", b"\xde\x00"),
        ("utf32", b"\x00\x00\xd8\x00", b"\x00\x00\xd8\x00"),
        ("utf32", b"\x00\x11\x00\x00", b"\x00\x11\x00\x00"),
        ("utf8mb3", b"a\xf0\x9f\x98\x80", b"\xf0\x9f\x98\x80"),
        ("utf8mb4", b"a\xff", b"\xff"),
    ],
)
def test_bytes_without_a_character_are_refused(name: str, data: bytes, code: bytes) -> None:
    with pytest.raises(NoCharacter) as caught:
        known(name).decoded(data)
    assert caught.value.code == code


@pytest.mark.parametrize("name", EVERY)
def test_what_is_written_reads_the_same(name: str) -> None:
    one = known(name)

    @given(st.text())
    def check(text: str) -> None:
        data = one.encoded(text)
        if data is not None:
            assert one.decoded(data) == text

    check()


@pytest.mark.parametrize("name", EVERY)
def test_any_bytes_are_text_that_can_be_written_or_refused(name: str) -> None:
    one = known(name)

    @given(st.binary(max_size=12))
    def check(data: bytes) -> None:
        try:
            text = one.decoded(data)
        except NoCharacter as wrong:
            assert wrong.code
            assert wrong.code in data
            return
        written = one.encoded(text)
        assert written is not None
        assert written == data or not one.is_injective
        assert one.decoded(written) == text

    check()


@pytest.mark.parametrize("name", EVERY)
def test_seven_bit_text_is_ascii_where_it_is_declared(name: str) -> None:
    one = known(name)
    ascii_text = bytes(range(128))
    try:
        assert (one.decoded(ascii_text) == ascii_text.decode("ascii")) == one.extends_ascii
    except NoCharacter:
        assert not one.extends_ascii


def test_which_character_sets_have_two_codes_of_one_character() -> None:
    assert {name for name in EVERY if not known(name).is_injective} == {
        "armscii8",
        "cp932",
        "eucjpms",
        "sjis",
        "ujis",
    }


def test_of_two_codes_the_common_one_is_written() -> None:
    assert known("cp932").encoded("∪￢\\") == b"\x81\xbe\x81\xca\\"
    assert known("sjis").encoded("\\") == b"\\"


def test_another_name_is_unknown() -> None:
    assert character_set("binary") is None
    assert character_set("") is None
