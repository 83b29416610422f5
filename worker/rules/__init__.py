"""The rules of a subtask: which tables take part, their targets, and how their rows change on the way.

rules compiles the configuration (router, column_mapping, event_filter, expression_filter, transform_rules,
online_ddl_names) and makes a plan for each table; explain describes the rules that decided. Two folders apply rules
to whole rows, between decoder and batch: stage/ evaluates expression filters and transforms, transform/ is Spark SQL
over one row.
"""

from shardmerge.worker.rules.explain import EffectiveRule, Explained, explain
from shardmerge.worker.rules.router import TableRoute
from shardmerge.worker.rules.rules import Rules, check_partitions

__all__ = ["EffectiveRule", "Explained", "Rules", "TableRoute", "check_partitions", "explain"]
