"""Explains the words of `why` to a reader who never saw the project. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TERMS = (
    (
        "lane",
        r"\b[Ll]anes?\b",
        "one of the parallel writers of a task at one source; a row is always written by the same",
    ),
    ("relay log", r"\brelay log\b", "the copy of the source's binlog on the worker's disk, from which lanes read"),
    ("relay", r"\brelay\b(?! log)", "what fetches the source's binlog to the worker"),
    ("shard table", r"\bshard tables?\b|shard table\(s\)", "a table of a source whose rows go to a merged table"),
    ("DDL lock", r"\bDDL locks?\b", "the wait of shard tables for each other before a statement runs at the target"),
    ("unlock", r"\bunlock\b", "decides that a statement runs, or is left out, without waiting any longer"),
    ("chunk", r"\bchunks?\b", "the part of a table that is copied by one SELECT"),
    ("reader", r"\breaders?\b", "one of the parallel connections that copy the history"),
    ("history", r"\bhistory\b", "the rows that the tables had when the task began; changes are applied after them"),
    ("round trip", r"\bround trip\b", "the time from a short statement to its answer: the network"),
    ("commit", r"\bcommits?\b", "one transaction of a lane at the target, with up to some thousand rows"),
    ("lag", r"\blags?\b", "how old the newest change is that the target has, compared with the source"),
    ("checkpoint", r"\bcheckpoints?\b", "the place in the source's binlog up to which a lane has written everything"),
    ("quarantine", r"\bquarantine\b", "a table at the target that keeps changes which the target refused"),
    ("Spark slot", r"\bSpark slots?\b", "room for one lane or reader; the worker's configuration limits them"),
    ("executor", r"\bexecutors?\b", "a process in which lanes run, on the worker or on other machines"),
)
"""The word, where it is used, and its meaning."""

_CAUSES = {
    "idle": "everything is applied",
    "read": "waits for the relay log; while the history is copied: reads the source",
    "decode": "decodes rows and applies the rules: processors of the worker",
    "target": "transactions at the target",
    "gather": "collects rows for as long as the last commit took",
    "retry": "repeats what the target refused for a temporary reason",
    "barrier": "waits for a statement that all lanes must reach",
    "start": "connects, and reads its checkpoint",
    "write": "writes the target",
    "throttle": "waits because of a limit in the task file",
    "wait": "waits until chunks are planned",
}
"""What time is spent on."""


def explained(texts: list[str], causes: set[str]) -> Iterator[str]:
    """A line for each term that ``texts`` use, and one for the ``causes`` of the table of times."""
    whole = "\n".join(texts)
    for term, pattern, meaning in _TERMS:
        if re.search(pattern, whole):
            yield f"{term}: {meaning}"
    known = [f"{cause}: {_CAUSES[cause]}" for cause in _CAUSES if cause in causes]
    if known:
        yield "time of lanes and readers: " + "; ".join(known)
