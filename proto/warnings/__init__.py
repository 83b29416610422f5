"""Warnings that status answers carry: what becomes an error unless an operator acts.

``kinds`` has their names, which never change, ``readable`` the durations and sizes in their texts. ``clocks`` decides
whether clocks differ by too much, ``certificates`` reads when certificates end.
"""
