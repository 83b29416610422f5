"""Defaults that are numbers of a sequence, in what MariaDB prints of a table."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.sql.sequence_defaults import without_sequence_defaults


@pytest.mark.parametrize(
    ("item", "left"),
    [
        ("`id` bigint(20) NOT NULL DEFAULT nextval(`d`.`sq`),", "`id` bigint(20) NOT NULL,"),
        (
            "`id` int(11) DEFAULT nextval(`d`.`s(q`) COMMENT 'DEFAULT nextval(x)',",
            "`id` int(11) COMMENT 'DEFAULT nextval(x)',",
        ),
        (
            "`id` int(11) DEFAULT (nextval(`d`.`sq`) * (1 + lastval(`d`.`sq`))) COMMENT ')',",
            "`id` int(11) COMMENT ')',",
        ),
        ("`id` int(11) DEFAULT setval(`d`.`sq`,5,1,0),", "`id` int(11),"),
    ],
)
def test_a_default_of_a_sequence_is_left_out(item: str, left: str) -> None:
    others = (
        "  `a` varchar(40) DEFAULT 'nextval(`sq`)',\n  `b` int(11) DEFAULT (1 + 2),\n  `nextval` int(11) DEFAULT 5,\n"
        "  `u` uuid DEFAULT uuid() COMMENT 'nextval(',\n  KEY `nextval` (`nextval`)\n) ENGINE=InnoDB"
    )
    text = f"CREATE TABLE `t` (\n  {{}}\n{others}"
    assert without_sequence_defaults(text.format(item)) == text.format(left)
    assert without_sequence_defaults(text.format(left)) == text.format(left)
