"""Placement: the four rules hold for every state, whatever happened before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.master.placement import Bind, Unbind, after, free_workers, place, violations

SOURCES = st.frozensets(st.sampled_from([f"source-{n}" for n in range(8)]))
WORKERS = st.frozensets(st.sampled_from([f"worker-{n}" for n in range(8)]))
# Also what no master would write: several sources at one worker, sources that do not exist.
BINDINGS = st.dictionaries(
    st.sampled_from([f"source-{n}" for n in range(8)]), st.sampled_from([f"worker-{n}" for n in range(8)])
)


@given(SOURCES, WORKERS, BINDINGS)
def test_rules_hold_afterwards(sources: frozenset[str], workers: frozenset[str], bindings: dict[str, str]) -> None:
    result = after(bindings, place(sources, workers, bindings))
    assert len(set(result.values())) == len(result), "a worker holds at most one source"
    assert result.keys() <= sources
    if free_workers(workers, result):
        assert all(result.get(source) in workers for source in sources), "nobody waits while a worker is free"
    assert violations(sources, workers, result) == ()


@given(SOURCES, WORKERS, BINDINGS)
def test_bound_sources_stay_while_their_worker_lives(
    sources: frozenset[str], workers: frozenset[str], bindings: dict[str, str]
) -> None:
    result = after(bindings, place(sources, workers, bindings))
    for source, worker in bindings.items():
        alone = list(bindings.values()).count(worker) == 1
        if source in sources and worker in workers and alone:
            assert result[source] == worker


@given(SOURCES, WORKERS, BINDINGS)
def test_source_of_a_dead_worker_keeps_its_binding_until_another_takes_over(
    sources: frozenset[str], workers: frozenset[str], bindings: dict[str, str]
) -> None:
    result = after(bindings, place(sources, workers, bindings))
    for source, worker in bindings.items():
        alone = list(bindings.values()).count(worker) == 1
        if source in sources and worker not in workers and alone:
            assert result[source] == worker or result[source] in workers


@given(SOURCES, WORKERS, BINDINGS)
def test_steps_fit_the_bindings_and_placing_again_does_nothing(
    sources: frozenset[str], workers: frozenset[str], bindings: dict[str, str]
) -> None:
    now = dict(bindings)
    for step in place(sources, workers, bindings):
        match step:
            case Bind():
                assert now.get(step.source, "") == step.before
                assert step.worker in workers
                now[step.source] = step.worker
            case Unbind():
                assert now.pop(step.source) == step.worker
    assert place(sources, workers, now) == ()


@given(st.lists(st.tuples(SOURCES, WORKERS), max_size=12))
def test_a_whole_history_never_moves_a_source_without_need(
    history: list[tuple[frozenset[str], frozenset[str]]],
) -> None:
    bindings: dict[str, str] = {}
    for sources, workers in history:
        result = after(bindings, place(sources, workers, bindings))
        assert violations(sources, workers, result) == ()
        moved = {source for source, worker in bindings.items() if result.get(source, worker) != worker}
        assert all(bindings[source] not in workers for source in moved)
        bindings = result


def test_violations_are_seen() -> None:
    sources, workers = frozenset({"s1", "s2"}), frozenset({"w1", "w2"})
    assert violations(sources, workers, {"s1": "w1", "s2": "w1"})
    assert violations(sources, workers, {"s1": "w1"})
    assert violations(sources, workers, {"s1": "w1", "s2": "w2", "s3": "w3"})
