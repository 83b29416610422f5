"""Online schema changes of gh-ost, pt-online-schema-change and similar tools.

Such a tool creates a shadow table next to a table, alters the shadow table, copies the rows, and swaps the two:

    CREATE TABLE _t_gho LIKE t; ALTER TABLE _t_gho …; (rows); RENAME TABLE t TO _t_del, _t_gho TO t

For the task this is one ALTER TABLE of ``t`` at the position of the RENAME. Rows of shadow and trash tables never reach
the target. The ALTER TABLEs of the shadow table are recorded until the swap.

    worker/rules/online_ddl_names.py           which names are shadow and trash tables
    classify       (pure)                      the role of a statement in an online schema change
    worker/target/records/shadow_tables.py     the records of shadow tables at the target
    derive_alter   (pure)                      the ALTER TABLE that equals a swap
    follow                                     keeps the records, runs the tracker, derives the ALTER TABLE at the swap
"""
