"""Between steps 1 and 2 of a DDL: what the session of the source's statement adds to the statement's text.

collation_names      the names of collations by their ids, and the default collation of a character set
written_collations   writes out the collations that a statement leaves to its server, and present names (pure)
schema_defaults      the default collation of a schema at a statement
lacking_settings     the settings of a statement that the target cannot have (pure)

The target's session gets the other settings: worker/target/records/statement_session.py.
"""
