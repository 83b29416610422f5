"""Step 1 of a DDL: read and rewrite statements and CREATE TABLE texts on tokens. Pure.

version_comments      the text as the server that ran the statement read it
statement_scope       which tables and schemas a statement changes
statement             a DDL statement, parsed; alter_parser: the clauses of ALTER TABLE
create_body           the columns and keys of a CREATE TABLE statement
ddl_event_names       the event names of a statement, for event filters
rewrite               a statement for other tables, without some clauses, or in a normal form
target_statement      the part of a statement that is for merged tables
transform_conflicts   why a statement cannot run at a target whose columns a transform computes
dialect               a statement for a server of another kind
table_definition      a SHOW CREATE TABLE text, parsed; column_definition: one column of it
common_type           the smallest type that holds the values of several types
"""
