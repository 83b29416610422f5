"""Tests which columns of shard tables refer to which: by foreign keys and by the task file's references."""

from __future__ import annotations

from shardmerge.proto import config_pb2 as pb
from shardmerge.worker.core.table import Column, Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.relations import NoRelation, Relation, relations_of
from tests.support.plans import integer, text
from tests.unit.worker.rules.test_references import reference, rules


def table(name: str, *columns: Column) -> Table:
    return Table("shop", name, (integer("id"), *columns), (0,), "PRIMARY", (("id",),), False, "InnoDB")


def plans(*references: pb.ReferenceRule) -> list[TablePlan]:
    made = rules(*references)
    tables = (table("users_1", text("token")), table("orders_1", integer("user_id"), integer("away")))
    return [made.plan(number, "s", each) for number, each in enumerate(tables)]


def creation(*items: str) -> str:
    listed = ", ".join(("`id` int NOT NULL", *items, "PRIMARY KEY (`id`)"))
    return f"CREATE TABLE `orders_1` ({listed})"


KEY = "CONSTRAINT `k` FOREIGN KEY (`user_id`) REFERENCES `users_1` (`id`) ON DELETE RESTRICT"


def test_a_foreign_key_and_an_equal_reference_are_one_relation() -> None:
    made = reference()
    for references, alike in (((), False), ((made,), True)):
        [found] = relations_of(rules(*references), plans(*references), {0: "", 1: creation(KEY)})
        assert isinstance(found, Relation)
        assert (found.text, found.is_mapped_alike) == ("orders.user_id to users.id", alike)
        assert found.key is not None
    [found] = relations_of(rules(made), plans(made), {})
    assert isinstance(found, Relation)
    assert found.key is None


def test_what_has_no_counterpart_at_the_target() -> None:
    away = "CONSTRAINT `k` FOREIGN KEY (`away`) REFERENCES `other`.`t` (`id`)"
    generated = "CONSTRAINT `g` FOREIGN KEY (`made`) REFERENCES `users_1` (`id`)"
    found = list(relations_of(rules(), plans(), {1: creation(away, generated)}))
    assert [(each.why, each.is_outside) for each in found if isinstance(each, NoRelation)] == [
        ("t takes no part in the task", True),
        ("column made of orders is not written by the task", False),
    ]
