"""Block-allow list: each row is a sentence of TiDB DM's documentation or of its code, which it names; ``differs`` says
where this program decides otherwise on purpose.

DM's documentation is its pages "TiDB Data Migration Block and Allow Lists" and "Table Selector"; its code is tidb's
pkg/util/filter/filter.go over pkg/util/table-rule-selector/trie_selector.go.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config.rules.block_allow import BlockAllowRules
from shardmerge.proto.errors import ShardmergeError

DOCS = 'docs "Block and Allow Lists", Filtering process'
EXAMPLE = 'docs "Block and Allow Lists", Usage examples'
PARAMETERS = 'docs "Block and Allow Lists", Parameter descriptions'
SELECTOR_PAGE = 'docs "Table Selector", Wildcard character'
FILTER = "tidb pkg/util/filter/filter.go"
FILTER_TEST = "tidb pkg/util/filter/filter_test.go"
TRIE = "tidb pkg/util/table-rule-selector/trie_selector.go"
TRIE_TEST = "tidb pkg/util/table-rule-selector/selector_test.go"
LOWER = "tidb pkg/util/table-filter/compat.go, MySQLReplicationRules.ToLower"


class Row(NamedTuple):
    """``yes``, ``no``: tables that take part, and that do not, as schema.table."""

    says: str
    source: str
    lists: pb.BlockAllowList
    yes: str
    no: str
    differs: str = ""
    case_sensitive: bool = False


def lists(do_dbs: str = "", ignore_dbs: str = "", do_tables: str = "", ignore_tables: str = "") -> pb.BlockAllowList:
    """Entries by spaces; those of tables as schema/table."""

    def tables(text: str) -> list[pb.TableName]:
        pairs = (entry.split("/") for entry in text.split())
        return [pb.TableName(schema=schema, table=table) for schema, table in pairs]

    return pb.BlockAllowList(
        do_dbs=do_dbs.split(),
        ignore_dbs=ignore_dbs.split(),
        do_tables=tables(do_tables),
        ignore_tables=tables(ignore_tables),
    )


FORUM = lists("forum_backup_2018 forum", "~^forum_backup_", "logs/~_2018$ ~^forum.*/messages", "~.*/^messages.*")
NO_CASE = lists(ignore_dbs="~^FOO", ignore_tables="~.*/~FoO$")

ORDER = [
    Row("without lists everything takes part", DOCS + " 1, 2.3", lists(), "s.t x.y", ""),
    Row("do-dbs lets its schemas on to the tables", DOCS + " 1", lists("s"), "s.t s.u", "x.t"),
    Row("beside do-dbs nobody looks at ignore-dbs", DOCS + " 1", lists("s", "s"), "s.t", "x.t"),
    Row("ignore-dbs alone", DOCS + " 1", lists("", "s"), "x.t", "s.t"),
    Row("do-tables alone", DOCS + " 2.1", lists(do_tables="s/t"), "s.t", "s.u x.t"),
    Row("ignore-tables alone", DOCS + " 2.2", lists(ignore_tables="s/t"), "s.u x.t", "s.t"),
    Row("do-tables before ignore-tables", DOCS + " 2.1", lists(do_tables="s/t", ignore_tables="s/t"), "s.t", "s.u x.t"),
    Row(
        "in neither of both: out",
        EXAMPLE + ", forum.users",
        lists(do_tables="s/a*", ignore_tables="s/b*"),
        "s.a1",
        "s.b1 s.c1",
    ),
    Row("do-tables opens no schema that do-dbs keeps out", DOCS + " 1", lists("s", do_tables="x/t"), "", "x.t s.t"),
    Row("nor one that ignore-dbs keeps out", DOCS + " 1", lists("", "x", do_tables="x/t s/t"), "s.t", "x.t x.u s.u"),
    Row("ignore-tables within do-dbs", DOCS + " 2.2", lists("s", ignore_tables="s/log"), "s.t", "s.log x.t"),
    Row("one entry of several is enough", FILTER + ", matchDB", lists("a ~^b s_?"), "a.t b9.t s_1.t", "c.t s_12.t"),
    Row(
        "the documentation's example",
        EXAMPLE,
        FORUM,
        "forum.messages forum_backup_2018.messages",
        "logs.messages_2016 logs.messages_2017 logs.messages_2018 forum_backup_2016.messages "
        "forum_backup_2017.messages forum.users",
    ),
    Row(
        "each entry is read alone: its schema and its table",
        FILTER + ", matchTable",
        lists(do_tables="~^a/x ~^b/y"),
        "a1.x b1.y",
        "a1.y b1.x",
        differs="there the table's wildcard of one entry goes with the schema's expression of another: a1.y takes part",
    ),
]

PATTERNS = [
    Row("~ is searched anywhere", PARAMETERS, lists("~b.d"), "bcd.t abcde.t", "bd.t"),
    Row("^ and $ bind it", FILTER_TEST + ", all regexp", lists("~^s_[0-9]+$"), "s_1.t s_22.t", "s_.t xs_1.t s_1x.t"),
    Row("without ~ they are characters", EXAMPLE + ", ^messages.*", lists("^s"), "^s.t", "s.t"),
    Row(
        "~ for the schema, a wildcard for the table",
        FILTER_TEST,
        lists(ignore_tables="~t[0-8]/a??"),
        "t9.a02 t1.a001",
        "t1.a01",
    ),
    Row(
        "a wildcard for the schema, ~ for the table",
        FILTER_TEST,
        lists(ignore_tables="a?b?/~f[0-9]"),
        "aaaa.f2 abbc.fa",
        "abbd.f1",
    ),
    Row("~ alone matches every name", FILTER + ", initOneRegex", lists("~"), "s.t", ""),
    Row("* is any characters, none too", SELECTOR_PAGE, lists("doc*"), "doc.t document.t", "dodo.t"),
    Row("? is one character", SELECTOR_PAGE, lists("s_?"), "s_1.t", "s_.t s_12.t"),
    Row("[…] is one of them", TRIE_TEST, lists("ik[hjkl]"), "ikj.t", "ika.t ik.t ikjj.t"),
    Row("[a-z] is a range", TRIE_TEST, lists("i[x-z][1-3]"), "ix1.t iz3.t", "iw1.t ix4.t"),
    Row("[!…] is none of them", TRIE_TEST, lists("ik[!zxc]"), "ikb.t", "ikz.t ik.t"),
    Row("several ranges in one", TRIE_TEST, lists("ik[!a-ce-g]"), "ikd.t ikh.t", "ika.t ikg.t"),
    Row("a ! that is not first is a character", TRIE_TEST, lists("[!a-c!f-g]"), "d.t", "!.t a.t f.t"),
    Row("[!] is the character !", TRIE_TEST, lists("[!]"), "!.t", "a.t"),
    Row("a - at an end is a character", TRIE_TEST, lists("[a-]"), "a.t -.t", "b.t"),
    Row("so it is behind a range", TRIE_TEST, lists("[a-c-f]"), "b.t -.t f.t", "d.t"),
    Row("a [ that is never closed is a character", TRIE + ", getRangeItem", lists("s["), "s[.t", "s.t"),
    Row("[…] is no name with brackets", FILTER_TEST + ", foo[bar]", lists("", "foo[bar]"), "foo[bar].t", "foor.t"),
    Row("a backslash is a character", FILTER_TEST + ", special", lists("s\\"), "s\\.t", "s.t"),
    Row(
        "? is one character of any alphabet",
        TRIE + ", matchNode",
        lists("k?se"),
        "käse.t",
        "kääse.t",
        differs="there it is one byte of UTF-8",
    ),
    Row(
        "names of other alphabets match themselves",
        TRIE + ", matchNode",
        lists("käse schön*"),
        "käse.t schönes.t",
        "kase.t",
        differs="there such a pattern matches nothing: it is stored by bytes and asked by characters",
    ),
]

CASE = [
    Row("by default case does not count", FILTER + ", New", lists("Shop_*"), "SHOP_1.t shop_1.t", "x.t"),
    Row("nor in ~", FILTER_TEST + ", non case-insensitive", NO_CASE, "5.5", "FOO1.a foo2.b BoO3.cFoO Foo4.dfoo"),
    Row("nor in ranges", FILTER + ", New", lists("[A-C]x [!D-F]y"), "ax.t Bx.t gy.t", "dx.t dy.t Ey.t"),
    Row(
        "case-sensitive: true",
        FILTER_TEST + ", TestCaseSensitive",
        NO_CASE,
        "foo2.b Foo4.dfoo 5.5",
        "FOO1.a BoO3.cFoO",
        case_sensitive=True,
    ),
    Row(
        "it counts for wildcards",
        FILTER_TEST + ", A*",
        lists(ignore_tables="a*/A*"),
        "AaB.aab",
        "aB.Ab acB.Afb",
        case_sensitive=True,
    ),
    Row("and for ranges", TRIE + ", matchChar", lists("[a-c]x"), "bx.t", "Bx.t", case_sensitive=True),
    Row(
        r"\D stays what it is",
        LOWER,
        lists(r"~^S_\D$"),
        "s_a.t",
        "s_1.t",
        differs=r"there the whole expression becomes lower case, \D turns into \d and s_1 takes part",
    ),
]


@pytest.mark.parametrize("row", [*ORDER, *PATTERNS, *CASE], ids=lambda row: row.says)
def test_which_tables_take_part(row: Row) -> None:
    compiled = BlockAllowRules.from_config("t", row.lists, row.case_sensitive)

    def passing(names: str) -> list[str]:
        return [name for name in names.split() if compiled.passes(*name.split("."))]

    why = f"{row.source} {row.differs}"
    assert passing(row.yes) == row.yes.split(), why
    assert passing(row.no) == [], why


@pytest.mark.parametrize(
    ("source", "lists", "yes", "no"),
    [
        pytest.param(DOCS + ", Note", lists("s"), "s", "x", id="do-dbs decides"),
        pytest.param(DOCS + ", Note", lists("", "s"), "x", "s", id="ignore-dbs decides"),
        pytest.param(
            DOCS + ", Note", lists(ignore_tables="s/*"), "s x", "", id="ignore-tables says nothing of schemas"
        ),
        # There every schema passes that the first step lets through (filter_test.go, {fff}): its CREATE DATABASE runs
        # at the target. Here a schema without a table of the task does not concern it.
        pytest.param(FILTER + ", filterOnTables", lists(do_tables="s_*/t"), "s_9", "x", id="differs: do-tables does"),
    ],
)
def test_which_schemas_take_part(source: str, lists: pb.BlockAllowList, yes: str, no: str) -> None:
    compiled = BlockAllowRules.from_config("t", lists, case_sensitive=False)
    assert all(map(compiled.may_pass, yes.split())), source
    assert not any(map(compiled.may_pass, no.split())), source


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        pytest.param(FILTER_TEST + ", TestInvalidRegex", "~^t[0-9]+((?!_copy).)*$", id="no look-ahead"),
        pytest.param(FILTER_TEST + ", TestInvalidRegex", "~^t[0-9]+sp(?=copy).*", id="of neither kind"),
        pytest.param(SELECTOR_PAGE, "do*c", id="* only at the end"),
        pytest.param(TRIE_TEST + ", ab**", "ab**", id="and once"),
        pytest.param(FILTER + ", initRules", "", id="no empty name"),
        # Accepted there: [] and [z-a] match nothing, [!z-a] matches everything. Nobody means that.
        pytest.param(TRIE_TEST + ", []*", "[]*", id="differs: []"),
        pytest.param(TRIE + ", matchChar", "s[z-a]", id="differs: a range from high to low"),
        pytest.param(TRIE + ", matchChar", "s[!z-a]", id="differs: all but such a range"),
    ],
)
def test_what_is_no_entry(source: str, pattern: str) -> None:
    for given in (pb.BlockAllowList(do_dbs=[pattern]), pb.BlockAllowList(ignore_dbs=["x", pattern])):
        with pytest.raises(ShardmergeError) as caught:
            BlockAllowRules.from_config("t", given, case_sensitive=False)
        assert caught.value.spec is errors.config.PATTERN, source
    entry = pb.TableName(schema=pattern, table="t")
    with pytest.raises(ShardmergeError) as caught:
        BlockAllowRules.from_config("t", pb.BlockAllowList(ignore_tables=[entry]), case_sensitive=False)
    assert caught.value.spec is errors.config.PATTERN, source
