"""Reads the single actions of an ALTER TABLE. Pure.

A clause may have several: ``ADD (a INT, KEY (a))``, and a column's definition with UNIQUE or PRIMARY KEY.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.core.sql.table_text import element_kind
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader, keywords
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements
from shardmerge.worker.ddl.sql.statement import AlterTable

PRIMARY = "primary"
"""The name of the primary key."""


class ActionKind(enum.Enum):
    """In the order in which single actions have the result of the whole."""

    DROP_INDEX = enum.auto()
    RENAME_INDEX = enum.auto()
    ALTER_INDEX = enum.auto()
    DROP_COLUMN = enum.auto()
    TABLE = enum.auto()  # the table's options
    SET_DEFAULT = enum.auto()
    CHANGE_COLUMN = enum.auto()  # another definition, name or both
    ADD_COLUMN = enum.auto()
    ADD_INDEX = enum.auto()
    CHECK = enum.auto()


@dataclass(frozen=True, slots=True)
class Action:
    """``text``: as a clause. ``old``, ``new``: the column's name before and after, "" for none. ``definition``: the
    column's new definition without its place, "" for none. ``after``: the column after which it is placed, "" for
    FIRST, None for no place. ``index``, ``new_index``: as ``old``, ``new``; an index without a name has ``unnamed``,
    the name from which the server makes one. ``uses``: lower-case names in the parentheses of an index or of a
    definition: columns among them must exist. ``charset``: it may change the character set of columns.
    ``conditional``: with IF [NOT] EXISTS."""

    kind: ActionKind
    text: str
    old: str = ""
    new: str = ""
    definition: str = ""
    after: str | None = None
    index: str = ""
    new_index: str = ""
    unnamed: str = ""
    uses: frozenset[str] = frozenset()
    charset: bool = False
    conditional: bool = False

    @property
    def old_key(self) -> str:
        return self.old.lower()

    @property
    def new_key(self) -> str:
        return self.new.lower()

    @property
    def renames(self) -> bool:
        """Whether an existing column gets another name."""
        return bool(self.old and self.new) and self.old_key != self.new_key


def read_actions(text: str, ddl: AlterTable) -> tuple[Action, ...] | None:
    """The actions of ``text``, from which ``ddl`` was parsed, in its order; None when one of them is unknown."""
    found = tokens(text, ddl.sql_mode)
    try:
        return tuple(
            action
            for clause in ddl.clauses
            for action in _Clause(text, [token for token in found if clause.start <= token.start < clause.end]).read(
                clause
            )
        )
    except NotUnderstoodError:
        return None


_DROPS_INDEX = frozenset({ClauseKind.DROP_INDEX, ClauseKind.DROP_PRIMARY_KEY})
_ADDS_INDEX = frozenset({ClauseKind.ADD_INDEX, ClauseKind.ADD_UNIQUE, ClauseKind.ADD_PRIMARY_KEY})
_OF_CHARSET = ("CHARSET", "CHARACTER", "COLLATE", "CONVERT")
_BEFORE_INDEX = keywords("UNIQUE PRIMARY FULLTEXT SPATIAL VECTOR")


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    own: Sequence[Token]

    def read(self, clause: Clause) -> Iterator[Action]:
        """Raises :class:`NotUnderstoodError`."""
        text, own, kind = self.text[clause.start : clause.end], self.own, clause.kind
        conditional = any(token.is_word("IF") and after.is_word("NOT", "EXISTS") for token, after in _pairs(own))
        match kind:
            case ClauseKind.ADD_COLUMN:
                yield from self._added(own, conditional=conditional)
            case _ if kind in _ADDS_INDEX:
                yield self._index(own[1:], text, conditional=conditional)
            case _ if kind in _DROPS_INDEX:
                name = PRIMARY if kind is ClauseKind.DROP_PRIMARY_KEY else clause.name
                yield Action(ActionKind.DROP_INDEX, text, index=name, conditional=conditional)
            case ClauseKind.RENAME_INDEX:
                yield Action(ActionKind.RENAME_INDEX, text, index=clause.name, new_index=clause.new_name)
            case ClauseKind.ALTER_INDEX:
                yield Action(ActionKind.ALTER_INDEX, text, index=clause.name)
            case ClauseKind.DROP_COLUMN:
                yield Action(ActionKind.DROP_COLUMN, text, old=clause.columns[0], conditional=conditional)
            case ClauseKind.RENAME_COLUMN:
                [old] = clause.columns
                yield Action(ActionKind.CHANGE_COLUMN, text, old=old, new=clause.new_name, conditional=conditional)
            case ClauseKind.MODIFY_COLUMN | ClauseKind.CHANGE_COLUMN:
                yield from self._changed(clause, conditional=conditional)
            case ClauseKind.SET_DEFAULT | ClauseKind.DROP_DEFAULT:
                [column] = clause.columns
                yield Action(ActionKind.SET_DEFAULT, text, old=column, new=column, conditional=conditional)
            case ClauseKind.OPTION | ClauseKind.CONVERT_CHARSET:
                charset = any(token.is_word(*_OF_CHARSET) for token in own)
                yield Action(ActionKind.TABLE, text, charset=charset)
            case ClauseKind.ADD_CHECK:
                yield Action(ActionKind.CHECK, text)
            case _:
                raise NotUnderstoodError

    def _added(self, own: Sequence[Token], *, conditional: bool) -> Iterator[Action]:
        parts = add_list_elements(own)
        if not parts:
            words = TokenReader(own[1:], "")
            words.take("COLUMN")
            words.exists()
            yield from self._column(own[: words.at + 1], words.rest(), conditional=conditional)
        for part in parts:
            kind = element_kind(part)
            whole = f"ADD {self._slice(part)}"
            if kind is ClauseKind.ADD_COLUMN:
                yield from self._column((), part, conditional=conditional)
            elif kind in _ADDS_INDEX:
                yield self._index(part, whole, conditional=conditional)
            elif kind is ClauseKind.ADD_CHECK:
                yield Action(ActionKind.CHECK, whole)
            else:
                raise NotUnderstoodError

    def _column(self, head: Sequence[Token], part: Sequence[Token], *, conditional: bool) -> Iterator[Action]:
        """``head``: the words before the column's name; ``part``: from there on."""
        words = TokenReader(part, "")
        name = words.name()
        read = self._definition(words.rest())
        start = self._slice(head) if head else "ADD COLUMN"
        parts = (start, self._slice(part[:1]), read.text, read.place)
        yield Action(
            ActionKind.ADD_COLUMN,
            " ".join(filter(None, parts)),
            new=name,
            definition=read.text,
            after=read.after,
            uses=read.uses,
            conditional=conditional,
        )
        yield from read.keys(name)

    def _changed(self, clause: Clause, *, conditional: bool) -> Iterator[Action]:
        words = TokenReader(self.own[1:], "")
        words.take("COLUMN")
        words.exists()
        old = words.name()
        new = words.name() if clause.kind is ClauseKind.CHANGE_COLUMN else old
        read = self._definition(words.rest())
        head = self._slice(self.own[: words.at + 1])
        yield Action(
            ActionKind.CHANGE_COLUMN,
            " ".join(filter(None, (head, read.text, read.place))),
            old=old,
            new=new,
            definition=read.text,
            after=read.after,
            uses=read.uses,
            conditional=conditional,
        )
        yield from read.keys(new)

    def _definition(self, part: Sequence[Token]) -> _Definition:
        if not part:
            raise NotUnderstoodError
        after: str | None = None
        end = len(part)
        if end > 1 and part[-1].is_word("FIRST"):
            after, end = "", end - 1
        elif end > 2 and part[-2].is_word("AFTER") and part[-1].is_name:
            after, end = part[-1].text, end - 2
        kept: list[str] = []
        unique = primary = False
        first = at = depth = 0
        while at < end:
            token = part[at]
            depth += token.is_symbol("(") - token.is_symbol(")")
            words = TokenReader(part[at:end], "")
            is_unique = depth == 0 and words.take("UNIQUE")
            if is_unique:
                words.take("KEY")
            is_primary = depth == 0 and not is_unique and (words.take_all("PRIMARY", "KEY") or words.take("KEY"))
            if is_unique or is_primary:
                unique, primary = unique or is_unique, primary or is_primary
                kept.append(self._slice(part[first:at]))
                first = at + words.at
            at += max(words.at, 1)
        kept.append(self._slice(part[first:end]))
        text = " ".join(filter(None, kept))
        if not text or ((unique or primary) and any(token.is_word("AUTO_INCREMENT") for token in part)):
            raise NotUnderstoodError
        return _Definition(text, after, self._slice(part[end:]), _names_within(part[:end]), unique, primary)

    def _index(self, part: Sequence[Token], text: str, *, conditional: bool) -> Action:
        """``part``: the index after ADD."""
        words = TokenReader(part, "")
        name = ""
        if words.take("CONSTRAINT"):
            words.exists()
            if words.word() not in _BEFORE_INDEX:
                name = words.name()
        is_primary = words.take_all("PRIMARY", "KEY")
        if not is_primary:
            words.take(*_BEFORE_INDEX)
            words.take("INDEX", "KEY")
        words.exists()
        token = words.next
        if token is not None and token.is_name and words.word() not in ("USING", "TYPE"):
            name = words.name()
        if words.take("USING", "TYPE"):
            words.advance()
        listed = words.rest()
        if not words.group():
            raise NotUnderstoodError
        listed = listed[: len(listed) - len(words.rest())]
        base = "" if name or is_primary or not listed[1].is_name else listed[1].text.lower()
        if not name and not base and not is_primary:
            raise NotUnderstoodError  # an index on an expression: the server makes the name
        return Action(
            ActionKind.ADD_INDEX,
            text,
            index=PRIMARY if is_primary else name,
            unnamed=base,
            uses=_names_within(listed),
            conditional=conditional,
        )

    def _slice(self, part: Sequence[Token]) -> str:
        return self.text[part[0].start : part[-1].end] if part else ""


@dataclass(frozen=True, slots=True)
class _Definition:
    """A column's definition without its ``place`` and its keys."""

    text: str
    after: str | None
    place: str
    uses: frozenset[str]
    unique: bool
    primary: bool

    def keys(self, column: str) -> Iterator[Action]:
        """The keys that the definition adds."""
        quoted, uses = quote_name(column), frozenset({column.lower()})
        if self.primary:
            yield Action(ActionKind.ADD_INDEX, f"ADD PRIMARY KEY ({quoted})", index=PRIMARY, uses=uses)
        if self.unique:
            yield Action(ActionKind.ADD_INDEX, f"ADD UNIQUE KEY ({quoted})", unnamed=column.lower(), uses=uses)


def _names_within(part: Sequence[Token]) -> frozenset[str]:
    """Lower-case words and names in parentheses."""
    depth = 0
    found: set[str] = set()
    for token in part:
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth and token.is_name:
            found.add(token.text.lower())
    return frozenset(found)


def _pairs(own: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    return itertools.pairwise(own)
