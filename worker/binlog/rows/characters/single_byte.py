"""The characters of the servers' single-byte character sets.

Python's codecs have most of them; the differences and the other character sets are listed here. Sources: the tables
to_uni_* in strings/ctype-extra.c of MariaDB 10.11 and MySQL 9 (generated from their sql/share/charsets/*.xml), which
are the same; strings/ctype-latin1.c, strings/ctype-tis620.c. Bytes that the servers read as U+FFFD have no character.
"""

from __future__ import annotations

UNDEFINED = "\ufffe"
"""Marks a byte without a character; also for ``codecs.charmap_decode``."""

_CODECS = {
    "ascii": "ascii",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "swe7": "ascii",
    "tis620": "tis_620",
}

_DIFFERENCES = {
    # The servers' latin1 is cp1252, where the bytes that cp1252 lacks are the control characters of that number.
    "latin1": {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f", 0x90: "\x90", 0x9D: "\x9d"},
    # Microsoft added these characters later.
    "cp1256": dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), UNDEFINED),
    "cp866": {0xFC: "ⁿ", 0xFD: "²"},
    # ISO 8859-7 of 1987.
    "greek": {0xA1: "ʽ", 0xA2: "ʼ", 0xA4: UNDEFINED, 0xA5: UNDEFINED, 0xAA: UNDEFINED},
    "hebrew": {0xAF: "‾"},
    "koi8u": {0x95: "•"},
    "swe7": {
        0x40: "É",
        0x5B: "Ä",
        0x5C: "Ö",
        0x5D: "Å",
        0x5E: "Ü",
        0x60: "é",
        0x7B: "ä",
        0x7C: "ö",
        0x7D: "å",
        0x7E: "ü",
        0x7F: UNDEFINED,
    },
}

_ASCII = "".join(map(chr, range(0x80)))
_CONTROLS = "".join(map(chr, range(0x80, 0xA0)))

_UPPER = {
    "armscii8": _CONTROLS
    + ("\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"),
    "dec8": _CONTROLS
    + (
        "\xa0¡¢£\ufffe¥\ufffe§¤©ª«\ufffe\ufffe\ufffe\ufffe°±²³\ufffeµ¶·\ufffe¹º»¼½\ufffe¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ"
        "\ufffeÑÒÓÔÕÖŒØÙÚÛÜŸ\ufffeßàáâãäåæçèéêëìíîï\ufffeñòóôõöœøùúûüÿ\ufffe\ufffe"
    ),
    "geostd8": (
        "€\ufffe‚\ufffe„…†‡\ufffe‰\ufffe‹\ufffe\ufffe\ufffe\ufffe\ufffe‘’“”•–—\ufffe\ufffe\ufffe›\ufffe\ufffe"
        "\ufffe\ufffe\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ\ufffe\ufffe"
        "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
        "\ufffe\ufffe\ufffe\ufffe\ufffe№\ufffe\ufffe"
    ),
    "hp8": _CONTROLS
    + ("\xa0ÀÂÈÊËÎÏ´ˋˆ¨˜ÙÛ₤¯Ýý°ÇçÑñ¡¿¤£¥§ƒ¢âêôûáéóúàèòùäëöüÅîØÆåíøæÄìÖÜÉïßÔÁÃãÐðÍÌÓÒÕõŠšÚŸÿÞþ·µ¶¾—¼½ªº«■»±\ufffe"),
    "keybcs2": (
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπ"
        "ΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
    ),
}
"""The characters of the bytes from 0x80; those below are ASCII."""

SINGLE_BYTE = frozenset(_CODECS) | frozenset(_UPPER)


def single_byte_table(charset: str) -> str:
    """The characters of the 256 bytes; UNDEFINED for bytes without one. KeyError for another character set."""
    if charset in _UPPER:
        return _ASCII + _UPPER[charset]
    table = [_decoded(byte, _CODECS[charset]) for byte in range(256)]
    for byte, character in _DIFFERENCES.get(charset, {}).items():
        table[byte] = character
    return "".join(table)


def _decoded(byte: int, codec: str) -> str:
    try:
        return bytes([byte]).decode(codec)
    except UnicodeDecodeError:
        return UNDEFINED
