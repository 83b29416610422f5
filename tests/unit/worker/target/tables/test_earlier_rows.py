"""Which rows start-task --remove-meta removes: only those that the new copy surely writes again."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import config_pb2 as config
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, PartitionId, TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.tables.earlier_rows import earlier_rows
from shardmerge.worker.target.tables.row_ownership import KeyRange
from tests.unit.worker.snapshot.shards import ID, VALUE


def _config(instance: str = "1", target: str = "t", allowed: str = "shard_*", ids: bool = True) -> config.SubTaskConfig:
    mapping = config.ColumnMappingRule(
        name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
        expression="partition id", arguments=[instance, "shard", "t", "_"],
    )  # fmt: skip
    return config.SubTaskConfig(
        task="merge",
        meta_schema="dm_meta",
        block_allow_list=config.BlockAllowList(name="shards", do_dbs=[allowed]),
        routes=[
            config.RouteRule(
                name="r", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table=target
            )
        ],
        column_mappings=[mapping] if ids else [],
    )


def _plans(rules: Rules, source: str = "s1") -> tuple[TablePlan, ...]:
    return tuple(
        rules.plan(number, source, Table("shard_1", f"t_{number}", (ID, VALUE), (0,), "PRIMARY", (("id",),), False, ""))
        for number in (1, 2)
    )


RULES = Rules.from_config(_config())
OWN = _plans(RULES)
OTHERS = _plans(Rules.from_config(_config("2")), "s2")


def test_each_shard_table_has_a_range_of_its_own() -> None:
    found = earlier_rows(OWN, OTHERS, RULES)
    assert not found.unremovable
    first = (1 << 59) | (1 << 52) | (1 << 44)
    assert [one.rows.condition for one in found.removable] == [
        f"`id` BETWEEN {begin} AND {begin + (1 << 44) - 1}" for begin in (first, first + (1 << 44))
    ]


def test_a_column_that_refers_to_another_table_or_holds_null_identifies_no_rows() -> None:
    for change in ({"mapping": PartitionId(1 << 59, 44, is_shared=True)}, {"column": replace(ID, nullable=True)}):
        own = tuple(replace(plan, columns=(replace(plan.columns[0], **change), plan.columns[1])) for plan in OWN[:1])
        found = earlier_rows(own, (), RULES)
        assert not found.removable
        assert [one.rows for one in found.unremovable] == [None]


def test_rows_stay_where_another_shard_table_may_have_them() -> None:
    for others in (OWN[:1], _plans(Rules.from_config(_config(ids=False)), "s2")):
        found = earlier_rows(OWN, others, RULES)
        assert not found.removable
        assert len(found.unremovable) == 2


def test_rows_stay_that_the_copy_would_write_elsewhere_or_not_at_all() -> None:
    for wanted, count in ((_config("3"), 2), (_config(target="other"), 0), (_config(allowed="none"), 0)):
        found = earlier_rows(OWN, OTHERS, Rules.from_config(wanted))
        assert not found.removable
        assert len(found.unremovable) == count


def test_rows_stay_that_a_filter_may_have_kept() -> None:
    found = earlier_rows([replace(plan, may_lack_rows=True) for plan in OWN], OTHERS, RULES)
    assert not found.removable
    assert "no copy brings back" in found.unremovable[0].why


def _extracting(source: str = "(.*)") -> config.SubTaskConfig:
    """Return the configuration whose route extracts the source's name."""
    made = _config(ids=False)
    made.source_id = "s1"
    made.routes[0].extract_source.CopyFrom(config.ExtractColumn(pattern=source, target_column="c"))
    return made


def test_rows_are_known_by_the_texts_of_extracted_columns() -> None:
    rules = Rules.from_config(_extracting())
    own, others = (_plans(rules, source)[:1] for source in ("s1", "s2"))
    found = earlier_rows(own, others, rules)
    assert not found.unremovable
    assert [one.rows.condition for one in found.removable] == ["`c` = 's1'"]
    for same in (own, _plans(rules, "S1")[:1], _plans(Rules.from_config(_config(ids=False)), "s2")):
        found = earlier_rows(own, same, rules)
        assert not found.removable, same
        assert "neither `partition id` nor" in found.unremovable[0].why


def test_rows_stay_that_the_copy_would_write_with_other_texts() -> None:
    rules = Rules.from_config(_extracting())
    own, others = (_plans(rules, source)[:1] for source in ("s1", "s2"))
    found = earlier_rows(own, others, Rules.from_config(_extracting("(.)")))
    assert not found.removable
    assert "the extracted columns of" in found.unremovable[0].why


def test_partition_id_identifies_rows_where_texts_do_too() -> None:
    own = tuple(
        replace(plan, columns=(*plan.columns, ColumnPlan(-1, VALUE, "c", Constant(str(plan.shard))))) for plan in OWN
    )
    assert [type(one.rows) for one in earlier_rows(own, OTHERS, RULES).removable] == [KeyRange, KeyRange]
