"""Compares the characters of every code of every character set with both servers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pytest

from shardmerge.worker.binlog.rows.characters.character_set import CharacterSet, NoCharacter, character_set
from tests.support.database import Database
from tests.support.pair import KINDS

pytestmark = pytest.mark.turns

NOT_COMPARED = frozenset({"binary", "utf8", "utf8mb3", "utf8mb4"})
"""They need no conversion."""

LONGER = {
    "ujis": "8F",
    "eucjpms": "8F",
    "utf16": "D83D",
    "utf16le": "3DD8",
    "utf32": "0001",
}
"""What comes before two bytes, also for what servers cannot read: half a surrogate pair."""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = KINDS[request.param](tmp_path_factory.mktemp("charsets") / "server", 101)
    try:
        made.start()
        made.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.numbers (n INT PRIMARY KEY)",
            "INSERT INTO d.numbers VALUES " + ",".join(f"({number})" for number in range(65536)),
        )
        yield made
    finally:
        made.stop()


def charsets(server: Database) -> dict[str, int]:
    """Return the most bytes of a character by name."""
    return {str(row[0]): int(str(row[3])) for row in server.query("SHOW CHARACTER SET") if row[0] not in NOT_COMPARED}


def shown(server: Database, charset: str, prefix: str, width: int) -> Iterator[tuple[bytes, str | None]]:
    """Yield each code of ``width`` bytes after ``prefix``, with the text that a client reads; None where the server
    shows a question mark, U+FFFD or nothing for it, or does not accept the bytes."""
    code = f"UNHEX(CONCAT('{prefix}', LPAD(HEX(n), {2 * width}, '0')))"
    text = f"CONVERT({code} USING {charset})"
    for number, accepted, size, found in server.query(
        f"SELECT n, {text} = BINARY {code}, CHAR_LENGTH({text}), HEX(CONVERT({text} USING utf8mb4)) "
        f"FROM d.numbers WHERE n < {256**width} ORDER BY n"
    ):
        data = bytes.fromhex(prefix) + int(str(number)).to_bytes(width, "big")
        if accepted and found is not None:
            yield data, readable(data, bytes.fromhex(str(found)), int(str(size)), charset)
        else:
            yield data, None


def readable(data: bytes, found: bytes, size: int, charset: str) -> str | None:
    """Return the text ``found``, in UTF-8; None if it is not the text of all of ``data``, ``size`` characters."""
    try:
        text = found.decode()
    except UnicodeDecodeError:
        return None  # MariaDB converts half a surrogate pair to three bytes
    if charset in ("ucs2", "utf16", "utf16le", "utf32"):
        replaced = text == "?" and data.strip(b"\0") != b"?"
    else:
        replaced = text.count("?") != data.count(b"?") or "\ufffd" in text
    # MySQL reads half a code of eucjpms as nothing.
    return None if replaced or len(text) != size else text


def decoded(one: CharacterSet, data: bytes) -> str | None:
    try:
        return one.decoded(data)
    except NoCharacter:
        return None


def test_every_code_has_the_characters_that_the_server_shows(server: Database) -> None:
    for name, most in charsets(server).items():
        one = character_set(name)
        assert one is not None, name
        asked: Sequence[tuple[str, int]] = [("", 1)]
        if most > 1:
            asked = [*asked, ("", 2)]
        if name in LONGER:
            asked = [*asked, (LONGER[name], 2)]
        count = 0
        for prefix, width in asked:
            for data, expected in shown(server, name, prefix, width):
                assert decoded(one, data) == expected, (name, data.hex())
                count += expected is not None
        assert count > 100, name


def test_every_code_of_four_bytes_has_the_character_that_mysql_shows(server: Database) -> None:
    if "gb18030" not in charsets(server):
        pytest.skip("this server lacks gb18030")
    one = character_set("gb18030")
    assert one is not None
    leads = [bytes((first, second)) for first in range(0x81, 0xFF) for second in range(0x30, 0x3A)]
    server.execute(
        "CREATE TABLE d.leads (n INT PRIMARY KEY, h CHAR(4))",
        "INSERT INTO d.leads VALUES " + ",".join(f"({at}, '{lead.hex()}')" for at, lead in enumerate(leads)),
    )
    text = "COALESCE(CONVERT(CONVERT(UNHEX(CONCAT(a.h, b.h)) USING gb18030) USING utf8mb4), '?')"
    # The sizes of the answers are those of 1,587,600 characters: hashes are compared.
    found = server.query(
        "SELECT /*+ SET_VAR(group_concat_max_len = 1048576) */ "
        f"a.n, SHA2(GROUP_CONCAT({text} ORDER BY b.n SEPARATOR ''), 256) FROM d.leads AS a "
        "JOIN d.leads AS b GROUP BY a.n ORDER BY a.n"
    )
    assert len(found) == len(leads)
    for (_, digest), first in zip(found, leads, strict=True):
        here = "".join(decoded(one, first + second) or "?" for second in leads)
        assert hashlib.sha256(here.encode()).hexdigest() == digest, first.hex()
