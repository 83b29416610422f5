"""Statements of the binlog that change tables: what they come to for the merged target, done once (I6).

Reading: lexer → statement, alter (clauses) → scope, routed (whose tables) → events, filtered (event filters).
Deciding: plan (actions by table); with a shard-mode parked, waiting, duty; optimistic by joined.
Doing: driver, at a barrier of the lanes → act, execute (once, whoever is killed) → passing (what the lanes go on with).
"""
