"""The rules of a subtask: which tables take part, where they go, what becomes of their columns."""

from worker.rules.explain import Applied, Explained, explain
from worker.rules.router import Route
from worker.rules.rules import Rules, check_partitions

__all__ = ["Applied", "Explained", "Route", "Rules", "check_partitions", "explain"]
