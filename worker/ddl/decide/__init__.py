"""Step 3 of a DDL: from a statement to actions.

routed_statements   which statements concern a unit's tables (pure)
statement_reader    the statement as its server read it, with the operator's override
operator_override   an operator's override of a statement
ddl_context         the tables around a statement: the stream's own, and who shares their targets
ddl_filter          which actions event filters skip
actions             the actions of a statement, one per table (pure)
given_names         which stream has a name that the statement gives to a table (pure)
track               the life of one shard table in a stream: states, events, step (pure)
recorded_tracks     what is recorded of tracks, and which states and steps are illegal (pure)
stream_tables       a stream's tables at a place (pure)
statement_changes   the changes of one statement, and the tables after it (pure)
"""
