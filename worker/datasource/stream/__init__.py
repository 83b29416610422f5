"""The changes of shard tables as a structured stream: ``spark.readStream.format("mysql-cdc")``.

``stream_reader`` runs in the process that Spark keeps for the query. It finds where the next batch ends (``scan``, with
the relay's group walker; ``batch_end``), and follows the structures of the tables (``structures``), which each
``offset`` has. ``start_position`` finds the first offset. In the tasks, ``change_rows`` reads the binlog between two
offsets with ``group_reader``, and makes the rows.
"""
