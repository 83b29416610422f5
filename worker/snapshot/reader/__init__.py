"""The Spark task of the snapshot: it reads a chunk, brings it to its high watermark and loads it.

``chunk_reader`` is the task's body; it talks to its worker through ``worker_link``. Between the watermarks,
``relay_changes`` decodes the chunk's events and ``fixup`` applies them to the rows that were read; ``chunk_loader``
writes the rows and the chunk's state to the target.
"""
