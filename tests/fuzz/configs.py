"""Damaged configuration files, each the same again for its number.

What must become of any of them is a model or a coded error, within a deadline, and the same verdict by the daemons'
parsers and by check-config."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

from shardmerge.proto.config.check import MODELS, FileKind, check_text
from shardmerge.proto.config.daemon.daemon_file import parse_master, parse_worker
from shardmerge.proto.config.docs.samples import sample_of
from shardmerge.proto.config.source import parse_source_file
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.rules import Rules
from tests.unit.proto.config.samples import SOURCE, TASK

DEADLINE_SECONDS = 10.0
"""For one file; the largest that is made here takes a second on a busy machine."""

_ROOT = Path(__file__).parents[2]
_ENVIRON = {"DM_TARGET_PASSWORD": "t", "DM_SOURCE_PASSWORD": "s", "DM_PASSWORD": "d"}
_TOKENS = (
    *("", "~", "null", "*", "*a", "&a x", "<<", "<<: *a", "!!python/object:os.system x", "!x y", "? ", "- ", ": ", "#"),
    *(
        "{",
        "}",
        "[",
        "]",
        "{}",
        "[]",
        "|",
        ">",
        "%YAML 1.1",
        "---",
        "...",
        "@",
        "`",
        "'",
        '"',
        "\\",
        "\t",
        "\x00",
        "\x85",
    ),
    *(
        "0",
        "-1",
        "1e999",
        "0x10",
        "0o7",
        ".nan",
        "1_000",
        "9" * 5000,
        "4294967296",
        "65536",
        "true",
        "yes",
        "2026-01-02",
    ),
    *(
        "${A}",
        "${",
        "enc:v1:",
        "enc:v1:AAAA",
        "enc:v2:AAAA",
        "enc:v2:x",
        "~(a+)+$",
        "~(",
        "~(?=a)",
        "~" + "(" * 500,
        "[z-a]",
        "*x*",
        "[!]",
    ),
    *(
        "a" * 20_000,
        "ä",
        "漢字",
        "\U0001f600",
        '"\\ud800"',
        '"\\U00110000"',
        "\u2028",
        "\ufeff",
        "\u202e",
        "30s",
        "-5m",
        "1h" * 30,
    ),
    *(
        "full",
        "all",
        "pessimistic",
        "s_*",
        "r1",
        "partition id",
        '["1", "s", "t", "_"]',
        "mysql-bin.000001:4",
        "Asia/Nowhere",
    ),
)


@cache
def _samples() -> tuple[tuple[FileKind, str], ...]:
    examples = _ROOT / "deploy" / "examples"
    found = [(kind, sample_of(MODELS[kind])) for kind in FileKind]
    found += [(kind, (examples / f"{kind.value}.yaml").read_text(encoding="utf-8")) for kind in FileKind]
    found += [(FileKind.TASK, TASK), (FileKind.SOURCE, SOURCE)]
    for path in sorted((_ROOT / "tests" / "unit" / "proto" / "config" / "dm").glob("*.*ml")):
        kind = next(kind for kind in FileKind if kind.value in path.name)
        found.append((kind, path.read_text(encoding="utf-8")))
    return tuple(found)


def damaged(seed: int, number: int) -> tuple[FileKind, str, bytes]:
    """The file of a number: its kind, its name and what it holds."""
    dice = random.Random(f"{seed} {number}")
    samples = _samples()
    kind, text = dice.choice(samples)
    for _ in range(dice.choice((1, 1, 1, 1, 2, 2, 3, 8))):
        text = dice.choice(_DAMAGES)(dice, text, samples)
    content = text.encode("utf-8", "surrogatepass")
    if dice.random() < 0.08:
        content = _bytes(dice, content)
    name = "f.toml" if dice.random() < 0.1 else "f.yaml"
    return kind, name, content


def _bytes(dice: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(changed) + 1)
        changed[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
    return bytes(changed)


_Damage = Callable[[random.Random, str, tuple[tuple[FileKind, str], ...]], str]


def _character(dice: random.Random, text: str, _: object) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(":-[]{}&*!|>'\"#%@`,?\\ \n\t~<=0\r\u2028") + text[at + dice.randint(0, 2) :]


def _cut(dice: random.Random, text: str, _: object) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + text[at + dice.randint(1, 200) :]


def _line(dice: random.Random, text: str, _: object) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = " " * dice.randint(1, 4) + lines[at]
        case 4:
            lines[at] = lines[at].lstrip()
        case _:
            lines[at] = lines[at].replace(" ", "\t", 1)
    return "".join(lines)


def _token(dice: random.Random, text: str, _: object) -> str:
    words = text.split(" ")
    at = dice.randrange(len(words))
    end = "\n" if words[at].endswith("\n") else ""
    words[at] = dice.choice(_TOKENS) + end
    return " ".join(words)


def _value(dice: random.Random, text: str, _: object) -> str:
    lines = text.splitlines()
    keyed = [at for at, line in enumerate(lines) if ": " in line]
    if not keyed:
        return text
    at = dice.choice(keyed)
    lines[at] = f"{lines[at].partition(': ')[0]}: {dice.choice(_TOKENS)}"
    return "\n".join(lines) + "\n"


def _key(dice: random.Random, text: str, _: object) -> str:
    lines = text.splitlines()
    keyed = [at for at, line in enumerate(lines) if ":" in line]
    if not keyed:
        return text
    at = dice.choice(keyed)
    key, colon, rest = lines[at].partition(":")
    where = dice.randrange(len(key) + 1)
    lines[at] = key[:where] + dice.choice(("", "x", "-", "_", "s")) + key[where + 1 :] + colon + rest
    return "\n".join(lines) + "\n"


def _splice(dice: random.Random, text: str, samples: tuple[tuple[FileKind, str], ...]) -> str:
    other = dice.choice(samples)[1].splitlines(keepends=True)
    begin = dice.randrange(len(other))
    lines = text.splitlines(keepends=True)
    at = dice.randrange(len(lines) + 1)
    return "".join([*lines[:at], *other[begin : begin + dice.randint(1, 12)], *lines[at:]])


def _many(dice: random.Random, text: str, _: object) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = dice.randrange(len(lines))
    times = dice.choice((2, 20, 300))
    match dice.randrange(3):
        case 0:
            return "".join([*lines[:at], *(lines[at : at + 3] * times), *lines[at + 3 :]])
        case 1:
            return text + "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" for n in range(1, 9))
        case _:
            return text + "x: " + dice.choice("[{") * times * 3


_DAMAGES: tuple[_Damage, ...] = (_character, _cut, _line, _token, _value, _value, _key, _splice, _many)


@dataclass(slots=True)
class Report:
    """``outcomes``: how many files became a model, or which error. ``fault``: the first that became neither."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    slowest: float = 0.0
    fault: str = ""


class _TooLate(BaseException):
    """No `except Exception` of the code that is tried may swallow it."""


@contextmanager
def _deadline() -> Generator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(kind: FileKind, name: str, content: bytes) -> str:
    """What becomes of a file: "a model", or the error's name. Raises for anything else."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    if kind in (FileKind.TASK, FileKind.SOURCE):
        name = "f.yaml"
    told = ""
    try:
        match kind:
            case FileKind.TASK:
                for subtask in parse_task(text, name, _ENVIRON).to_subtasks():
                    Rules.from_config(subtask)
            case FileKind.SOURCE:
                parse_source_file(text, name, _ENVIRON)
            case FileKind.MASTER:
                parse_master(text, name)
            case FileKind.WORKER:
                parse_worker(text, name)
    except ShardmergeError as error:
        if error.spec.error_class != "config" or not error.spec.placeholders() <= error.values.keys():
            raise
        told = error.spec.name
    checked = check_text(text, name, kind, _ENVIRON)
    if bool(told) != bool(checked.findings):
        raise AssertionError(f"refused as {told or 'nothing'}, but check-config finds {checked.findings[:1]}")
    for line in (*checked.findings, *checked.notes):
        str(line).encode()
    return told or "a model"


def run(seed: int, first: int, count: int) -> Report:
    """Try the files ``first`` to ``first + count - 1``; ends at the first fault."""
    report = Report()
    for number in range(first, first + count):
        begun = time.monotonic()
        try:
            with _deadline():
                report.outcomes[outcome(*damaged(seed, number))] += 1
        except (Exception, _TooLate) as error:  # noqa: BLE001 - any of them is the fault that is looked for
            kind, name, content = damaged(seed, number)
            said = "".join(traceback.format_exception(error))
            report.fault = f"{said}file {number} of seed {seed}, a {kind.value} file {name}:\n{content[:3000]!r}"
            return report
        report.slowest = max(report.slowest, time.monotonic() - begun)
    return report
