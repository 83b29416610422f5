"""The plan of a read: ``options`` and ``where`` of the user, and the ``read_plan`` with its ``frame_types``."""
