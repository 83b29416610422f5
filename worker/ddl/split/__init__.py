"""Divides an ALTER TABLE whose actions the target (TiDB) does not combine into several with the same result. Pure.

alter_actions   reads the actions of the ALTER TABLE
action_order    the order in which single actions have the same result
conflicts       which actions TiDB refuses or misinterprets in one ALTER TABLE
pieces          the statements
"""
