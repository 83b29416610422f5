"""The changes of shard tables as a structured stream: ``spark.readStream.format("mysql-cdc")``.

``stream_reader`` runs in the process that Spark keeps for the query, where ``follow`` finds the first offset and the
end of each batch, and in the tasks, where ``rows`` makes the rows. ``model`` has the options, the offsets and the
meaning of statements; ``binlog`` reads the binlog between two positions; ``tables`` has the structures of the tables.
"""
