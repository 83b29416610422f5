"""Which indexes may wait for the load, and when their time has come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.config_pb2 import LoadConfig
from shardmerge.worker.target.tables.deferred_index import (
    DEFER_FROM_ROWS,
    AddIndexes,
    Complete,
    Defer,
    DeferredIndex,
    Load,
    WaitForLoads,
    adding_statement,
    deferrable,
    next_step,
    owed_with,
    worth_deferring,
)

CREATION = """CREATE TABLE IF NOT EXISTS `m`.`t` (
  `id` bigint NOT NULL,
  `a` int DEFAULT NULL COMMENT 'KEY `no` (`a`)',
  `b``x` varchar(90) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT 'KEY `no` (`b`)',
  `twice` int GENERATED ALWAYS AS (`a` * 2) VIRTUAL,
  `place` point NOT NULL,
  `KEY` int,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`a`),
  KEY `plain` (`a`),
  KEY `part,s (` (`b``x`(10),`a` DESC) USING BTREE COMMENT 'by (name)',
  KEY `over_generated` (`a`,`twice`),
  KEY `over_expression` (`a`,((`a` + 1))),
  KEY `hidden` (`KEY`) /*!80000 INVISIBLE */,
  FULLTEXT KEY `words` (`b``x`),
  SPATIAL KEY `where` (`place`),
  CHECK (`a` <> 3)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

K = DeferredIndex("K", "KEY `K` (`a`)")
L = DeferredIndex("l", "KEY `l` (`b`)")


def test_plain_secondary_indexes_alone_may_wait() -> None:
    assert deferrable(CREATION, frozenset({"twice"})) == (
        DeferredIndex("plain", "KEY `plain` (`a`)"),
        DeferredIndex("part,s (", "KEY `part,s (` (`b``x`(10),`a` DESC) USING BTREE COMMENT 'by (name)'"),
        DeferredIndex("hidden", "KEY `hidden` (`KEY`) /*!80000 INVISIBLE */"),
    )


def test_an_index_that_begins_with_the_columns_of_a_foreign_key_stays() -> None:
    creation = """CREATE TABLE `t` (
  `id` int NOT NULL,
  `a` int DEFAULT NULL COMMENT 'FOREIGN KEY (`b`)',
  `b` int DEFAULT NULL,
  `c``(` int DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `one` (`c``(`),
  KEY `longer` (`c``(`,`a`),
  KEY `two` (`B`,`a`),
  KEY `other` (`b`),
  KEY `later` (`b`,`c``(`),
  CONSTRAINT `f (``x` FOREIGN KEY (`c``(`) REFERENCES `p` (`id`),
  FOREIGN KEY (`a`,`b`) REFERENCES `p` (`x`, `b`)
) ENGINE=InnoDB"""
    assert [index.name for index in deferrable(creation, frozenset())] == ["other", "later"]


def test_the_table_s_own_definition_wins_in_the_record() -> None:
    newer = DeferredIndex("k", "KEY `k` (`c`)")
    assert owed_with((K, L), (newer,)) == (L, newer)
    assert owed_with((), (K, L)) == (K, L)
    assert owed_with((K, L), ()) == (K, L)


def test_one_statement_adds_them() -> None:
    numbered = DeferredIndex("", "id")
    assert adding_statement("`m`.`t`", (numbered, K, L)) == "ALTER TABLE `m`.`t` ADD KEY `K` (`a`), ADD KEY `l` (`b`)"
    assert adding_statement("`m`.`t`", (numbered,)) == ""


def test_the_setting_is_read_from_both_switches() -> None:
    """An earlier version of the master sends the first one alone."""
    assert Defer.of(LoadConfig()) is Defer.NEVER
    assert Defer.of(LoadConfig(defer_indexes=True)) is Defer.CREATED
    assert Defer.of(LoadConfig(defer_indexes=True, defer_existing=True)) is Defer.EMPTY


def test_small_tables_keep_their_indexes() -> None:
    assert worth_deferring([DEFER_FROM_ROWS // 2] * 2)
    assert not worth_deferring([DEFER_FROM_ROWS - 1])
    assert not worth_deferring([])


def test_the_last_source_that_has_begun_adds_them() -> None:
    mine, other = Load("s1", loaded=True), Load("s2", loaded=False)
    present = frozenset({"primary"})
    assert next_step((K, L), present, [mine, other, other], patient=True) == WaitForLoads(("s2",))
    assert next_step((K, L), present, [mine], patient=True) == AddIndexes((K, L))
    assert next_step((K, L), present, [], patient=True) == AddIndexes((K, L))
    assert next_step((K, L), present, [mine, other], patient=False) == AddIndexes((K, L))


def test_what_is_there_is_owed_no_more() -> None:
    unfinished = [Load("s2", loaded=False)]
    assert next_step((K, L), frozenset({"k", "l"}), unfinished, patient=True) == Complete()
    assert next_step((K, L), None, unfinished, patient=True) == Complete()
    assert next_step((K, L), frozenset({"k"}), [], patient=True) == AddIndexes((L,))


names = st.sets(st.sampled_from("abcdef"))


@given(names, names, st.lists(st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.booleans())), st.booleans())
def test_whatever_happened_the_end_is_what_was_owed(
    owed: set[str], present: set[str], loads: list[tuple[str, bool]], patient: bool
) -> None:
    """Once every source has loaded, one step adds exactly the missing indexes, and the next finds none missing."""
    indexes = tuple(DeferredIndex(name, f"KEY `{name}` (`a`)") for name in sorted(owed))
    step = next_step(indexes, frozenset(present), [Load(source, done) for source, done in loads], patient=patient)
    if isinstance(step, WaitForLoads):
        assert patient
        assert step.sources == tuple(dict.fromkeys(source for source, done in loads if not done))
        step = next_step(indexes, frozenset(present), [Load(source, loaded=True) for source, _ in loads], patient=True)
    added = {index.name for index in step.indexes} if isinstance(step, AddIndexes) else set[str]()
    assert added == owed - present
    assert next_step(indexes, frozenset(present | added), [], patient=True) == Complete()
