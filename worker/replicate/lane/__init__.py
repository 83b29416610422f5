"""The Spark task of the stream: one lane.

``lane`` is its life: it receives the relay log's frames through ``frame_queue``, stops at barriers, and ends.
``block_applier`` applies the blocks: ``row_collector`` decodes them and gathers a batch, and ``watermark_filter``
leaves out what the snapshot holds. ``commit_timer`` decides when to commit, ``target_writer`` writes the batch exactly
once, ``committer`` commits it with the lane's checkpoint, and ``holding_committer`` does so while rows are held.
``reporter`` reports to the worker.

From the driver: ``lane_spec``, the settings of a run's lanes, and ``lane_change``, the plans with which a lane
continues after a barrier.
"""
