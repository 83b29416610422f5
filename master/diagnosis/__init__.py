"""Concludes from the figures of workers and from the records why a task is slow, and what to do. Pure.

``view`` holds what is known about one source, and ``finding`` what is concluded. Each of ``stopped``, ``waits``,
``lanes``, ``source``, ``history`` concludes about one area; ``conclude`` puts the findings of all sources into the
order of their weight. A figure that is not known leads to no conclusion: it is named as unknown.
"""
