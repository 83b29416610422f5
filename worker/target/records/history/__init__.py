"""What of the past later runs need to know.

passed_watermarks    tables whose high watermarks all lanes have cleared
interrupted_copies   tables whose copy a statement has interrupted
rowless_tables       shard tables of which no row was merged into the target table that the task has created
"""
