"""Online schema changes of gh-ost, pt-online-schema-change and their like.

Such a tool makes a shadow table beside a table, alters that, copies the rows, and lets it take the table's place:

    CREATE TABLE _t_gho LIKE t; ALTER TABLE _t_gho …; (rows); RENAME TABLE t TO _t_del, _t_gho TO t

For the task that is one ALTER TABLE of ``t``, at the place of the RENAME. Rows of shadow and trash tables never reach
the target; what was said of their structure is kept until the swap.

    names    worker/rules/online.py    which tables are such ones
    step     (pure)                    what a statement is in the course of such a change
    records                            what has been seen of shadow tables, at the target
    meaning  (pure)                    the ALTER TABLE that a swap comes to
    swap                               keeps the records, asks the tracker
"""
