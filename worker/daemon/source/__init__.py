"""What the worker runs for the source it is bound to.

``source_runner`` owns the source's relay and subtasks. ``server_id_lease`` reserves the relay's server id,
``caught_up`` decides whether the relay log has reached the source's end. ``source_check`` checks the server of a source
without tasks.
"""
