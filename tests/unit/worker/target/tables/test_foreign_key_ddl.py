"""Tests the statements that add the shard tables' foreign keys to the target, and the keys that are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.table_plan import ColumnPlan, Constant, TablePlan
from shardmerge.worker.rules.relations import relations_of
from shardmerge.worker.target.tables.foreign_key_ddl import KeyStatements, LeftOut, TargetKey, key_name, target_keys
from tests.unit.worker.rules.test_references import reference, rules
from tests.unit.worker.rules.test_relations import KEY, creation, plans


def keys(*items: str, mapped: bool = True, unique: tuple[str, ...] = ("id",)) -> tuple[TargetKey, ...]:
    references = (reference(),) if mapped else ()
    found = relations_of(rules(*references), plans(*references), {1: creation(*items)})
    return target_keys(found, lambda plan: [("token", "id"), unique])


def left_out(*items: str, mapped: bool = True, unique: tuple[str, ...] = ("id",)) -> str:
    [key] = keys(*items, mapped=mapped, unique=unique)
    assert isinstance(key.made, LeftOut)
    return key.made.why


def test_the_statements_of_a_key() -> None:
    [key] = keys(KEY)
    assert (key.reference, key.tables) == ("orders.user_id to users.id", ("shop.orders_1",))
    assert key.made == KeyStatements(
        "orders_user_id_users",
        "SELECT COUNT(*) FROM `m`.`orders` AS c WHERE c.`user_id` IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM `m`.`users` AS p WHERE p.`id` = c.`user_id`)",
        "ALTER TABLE `m`.`orders` ADD CONSTRAINT `orders_user_id_users` FOREIGN KEY (`user_id`) "
        "REFERENCES `m`.`users` (`id`) ON DELETE RESTRICT",
        "ALTER TABLE `m`.`orders` DROP FOREIGN KEY `orders_user_id_users`",
    )


def test_what_is_left_out() -> None:
    assert not keys()  # a reference of the task file is no key
    assert "another mapping" in left_out(KEY, mapped=False)
    assert "no unique key over exactly (id)" in left_out(KEY, unique=("id", "v"))
    assert "t takes no part" in left_out("CONSTRAINT `k` FOREIGN KEY (`away`) REFERENCES `other`.`t` (`id`)")


def extracted(key: str, of_users: str, of_orders: str, *, name: str = "c") -> TargetKey:
    def with_text(plan: TablePlan, name: str, text: str) -> TablePlan:
        constant = ColumnPlan(-1, plan.columns[0].column, name, Constant(text))
        return replace(plan, columns=(*plan.columns, constant))

    users, orders = plans(reference())
    shards = [with_text(users, "c", of_users), with_text(orders, name, of_orders)]
    found = relations_of(rules(reference()), shards, {1: creation(key)})
    [made] = target_keys(found, lambda plan: [("id", "C"), ("token", "c")])
    return made


def test_extracted_columns_of_the_key_are_part_of_the_foreign_key() -> None:
    made = extracted(KEY, "1", "1").made
    assert isinstance(made, KeyStatements)
    assert "FOREIGN KEY (`user_id`, `C`) REFERENCES `m`.`users` (`id`, `C`) ON DELETE RESTRICT" in made.add
    assert "WHERE c.`user_id` IS NOT NULL AND NOT EXISTS" in made.count
    assert "WHERE p.`id` = c.`user_id` AND p.`C` = c.`C`)" in made.count


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (extracted(KEY, "1", "2"), "C, of the key to which it refers, has other texts in orders"),
        (extracted(KEY, "1", "1", name="d"), "C, of the key to which it refers, has other texts in orders"),
        (extracted(KEY.replace("RESTRICT", "SET NULL"), "1", "1"), "ON DELETE SET NULL would set C to NULL, too"),
    ],
)
def test_extracted_columns_that_a_foreign_key_cannot_have(made: TargetKey, why: str) -> None:
    assert made.made == LeftOut(why)


def test_names_are_no_longer_than_servers_allow() -> None:
    long = [key_name("t" * 40, ["c" * 40, end], "p") for end in ("one", "two")]
    assert [len(name) for name in long] == [64, 64]
    assert long[0] != long[1]
    assert key_name("orders", ["a", "b"], "users") == "orders_a_b_users"
