"""The characters of the servers' East Asian character sets, whose characters have one to four bytes.

Python's codecs have nearly all of them; the differences are listed here. Sources: strings/ctype-big5.c, ctype-cp932.c,
ctype-eucjpms.c, ctype-euc_kr.c, ctype-gb18030.c, ctype-gb2312.c, ctype-gbk.c, ctype-sjis.c, ctype-ujis.c of MariaDB
10.11 and MySQL 9, which are the same (gb18030: MySQL alone). Codes that the servers read as U+FFFD have no character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SPLIT = {
    "big5": rb"[\xA1-\xF9][\x40-\x7E\xA1-\xFE]",
    "gbk": rb"[\x81-\xFE][\x40-\x7E\x80-\xFE]",
    "gb2312": rb"[\xA1-\xF7][\xA1-\xFE]",
    "gb18030": rb"[\x81-\xFE][\x40-\x7E\x80-\xFE]|[\x81-\xFE][\x30-\x39][\x81-\xFE][\x30-\x39]",
    "euckr": rb"[\x81-\xFE][\x41-\x5A\x61-\x7A\x81-\xFE]",
    "sjis": rb"[\x81-\x9F\xE0-\xFC][\x40-\x7E\x80-\xFC]",
    "cp932": rb"[\x81-\x9F\xE0-\xFC][\x40-\x7E\x80-\xFC]",
    "ujis": rb"\x8E[\xA1-\xDF]|\x8F[\xA1-\xFE][\xA1-\xFE]|[\xA1-\xFE][\xA1-\xFE]",
    "eucjpms": rb"\x8E[\xA1-\xDF]|\x8F[\xA1-\xFE][\xA1-\xFE]|[\xA1-\xFE][\xA1-\xFE]",
}
"""Patterns of the codes with more than one byte."""

_CODECS = {
    "big5": "big5",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "euckr": "cp949",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
}

_DIFFERENCES: dict[str, dict[bytes, str]] = {
    "big5": {
        **dict.fromkeys(
            (b"\xa1\x5a", b"\xa1\xc3", b"\xa1\xc5", b"\xa1\xfe", b"\xa2\x40", b"\xa2\xcc", b"\xa2\xce"), ""
        ),
        # The extension of ETEN.
        b"\xf9\xd6": "碁",
        b"\xf9\xd7": "銹",
        b"\xf9\xd8": "裏",
        b"\xf9\xd9": "墻",
        b"\xf9\xda": "恒",
        b"\xf9\xdb": "粧",
        b"\xf9\xdc": "嫺",
    },
    # GB 18030-2005; Python has the standard of 2000.
    "gb18030": {b"\xa8\xbc": "\u1e3f", b"\x81\x35\xf4\x37": "\ue7c7"},
    "sjis": {b"\x81\x5f": "\\"},
    "cp932": dict.fromkeys((b"\x80", b"\xa0", b"\xfd", b"\xfe", b"\xff"), ""),
    "ujis": {b"\xa1\xc0": "\\"},
    "eucjpms": {b"\x8f\xa2\xb7": "\uff5e", b"\x8f\xa2\xc3": "\uffe4"},
}
"""By code; "" for a code without a character."""

_IBM = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼"
    "館馞髙魲鶴黑"
)
"""IBM's characters that JIS X 0208 and JIS X 0212 lack: eucjpms has them from 8F F3 F3 to 8F F4 FE."""

MULTI_BYTE = frozenset(_CODECS)


@dataclass(frozen=True, slots=True)
class MultiByteTable:
    """``split``: a pattern that matches one code, or one byte that begins none. ``characters``: by code. ``preferred``:
    the code in which a character with several codes is written."""

    split: re.Pattern[bytes]
    characters: dict[bytes, str]
    preferred: dict[str, bytes]


class _WithFourBytes(dict[bytes, str]):
    """gb18030 has 1.1 million codes of four bytes, which Python computes."""

    def __missing__(self, code: bytes) -> str:
        if len(code) != 4:
            raise KeyError(code)
        try:
            return code.decode("gb18030")
        except UnicodeDecodeError:
            raise KeyError(code) from None


def multi_byte_table(charset: str) -> MultiByteTable:
    """The table of a character set; takes some 20 ms. KeyError for another character set."""
    codec = _CODECS[charset]
    split = re.compile(rb"[\x00-\x7F]|" + _SPLIT[charset] + rb"|[\x80-\xFF]", re.DOTALL)
    of = _BY_RULE.get(charset)
    characters: dict[bytes, str] = _WithFourBytes() if charset == "gb18030" else {}
    for code in _codes(split):
        character = of(code) if of else _decoded(code, codec)
        if character:
            characters[code] = character
    for code, character in _DIFFERENCES.get(charset, {}).items():
        if character:
            characters[code] = character
        else:
            characters.pop(code, None)
    return MultiByteTable(split, characters, _preferred(characters, codec))


def _codes(split: re.Pattern[bytes]) -> Iterator[bytes]:
    """Every code of one to three bytes."""
    yield from (bytes([byte]) for byte in range(256))
    for first in range(0x80, 0x100):
        for second in range(0x40, 0x100):
            code = bytes([first, second])
            if split.fullmatch(code):
                yield code
            elif first == 0x8F and split.fullmatch(code + b"\xa1"):
                yield from (code + bytes([third]) for third in range(0xA1, 0xFF))


def _decoded(code: bytes, codec: str) -> str:
    """The character of a code, "" if it has none."""
    try:
        found = code.decode(codec)
    except UnicodeDecodeError:
        return ""
    return found if len(found) == 1 else ""


def _ujis(code: bytes) -> str:
    """JIS X 0208, JIS X 0212, and 1880 characters for private use in the rows that both leave free."""
    if len(code) > 1 and code[-2] >= 0xF5:
        return chr((0xE000 if len(code) == 2 else 0xE3AC) + (code[-2] - 0xF5) * 94 + code[-1] - 0xA1)
    return _decoded(code, "euc_jp")


def _eucjpms(code: bytes) -> str:
    """As ujis, but JIS X 0208 with the extensions of NEC and the characters of Microsoft, as in cp932."""
    if len(code) == 2 and 0xA1 <= code[0] < 0xF5:
        row, cell = code[0] - 0xA1, code[1] - 0xA1
        lead = (row >> 1) + (0x81 if row < 62 else 0xC1)
        trail = cell + 0x9F if row & 1 else cell + (0x40 if cell < 63 else 0x41)
        return _decoded(bytes([lead, trail]), "cp932")
    if b"\x8f\xf3\xf3" <= code <= b"\x8f\xf4\xfe" and len(code) == 3:
        return _IBM[(code[1] - 0xF3) * 94 + code[2] - 0xF3]
    return _ujis(code)


_BY_RULE: dict[str, Callable[[bytes], str]] = {"ujis": _ujis, "eucjpms": _eucjpms}


def _preferred(characters: dict[bytes, str], codec: str) -> dict[str, bytes]:
    """Of several codes of a character, that of Python's codec, else the first one."""
    found: dict[str, bytes] = {}
    several: set[str] = set()
    for code, character in characters.items():
        if found.setdefault(character, code) != code:
            several.add(character)
    for character in several:
        try:
            code = character.encode(codec)
        except UnicodeEncodeError:
            continue
        if characters.get(code) == character:
            found[character] = code
    return found
