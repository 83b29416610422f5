"""Applies each mutant to a copy of the working tree and runs the tests that must find it.

    python -m tests.mutants.run [area | area/name ...] [--list] [--jobs N]

A mutant is a patch ``tests/mutants/<area>/<name>.patch`` with two lines before it: ``What:``, the defect in one
sentence, and ``Tests:``, what pytest has to run. The named tests first run once without any mutant, for a test
that always fails finds nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import Mutant, all_mutants
from tests.mutants.tree import Finished, copy_tree, execute, interrupt_children

TESTS_FAILED = 1
"""The exit code of pytest that finds a mutant: 2 to 5 are errors of its own, or no test was run."""
_OPTIONS = ("-q", "--timeout=300", "--hypothesis-profile", "unshrunk")
_FAILURE = re.compile(r"^failed in \w+ after \d+ s: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: str
    run: Finished


def run_tests(tree: Path, tests: Iterable[str], *options: str) -> Finished:
    # PYTHONPATH: the commands of the environment, such as dm-worker, import the installed tree otherwise.
    command = [sys.executable, "-m", "pytest", *_OPTIONS, *options, *tests]
    return execute(command, tree, PYTHONPATH=str(tree))


def patch(tree: Path, mutant: Mutant, *options: str) -> Finished:
    # Outside any repository git changes the files below the current folder.
    return execute(["git", "apply", *options, str(mutant.path)], tree, GIT_CEILING_DIRECTORIES=str(tree.parent))


def _compiled(tree: Path, mutant: Mutant) -> dict[Path, Path]:
    """Map the source of each compiled module of the patch to what is imported in its place."""
    sources = [tree / name for name in mutant.files]
    return {source: built for source in sources for built in source.parent.glob(f"{source.stem}.*.so")}


def _forget_bytecode(tree: Path, mutant: Mutant) -> None:
    # Bytecode counts as current if its source has the same size and second of change.
    for source in (tree / name for name in mutant.files):
        for old in source.parent.glob(f"__pycache__/{source.stem}.*.pyc"):
            old.unlink()


def _find(tree: Path, mutant: Mutant, kept: Path) -> Result:
    healthy = {built: shutil.copy2(built, kept / built.name) for built in _compiled(tree, mutant).values()}
    if healthy:
        paths = [f"shardmerge/{source.relative_to(tree)}" for source in _compiled(tree, mutant)]
        command = [str(Path(sys.executable).parent / "cythonize"), "--inplace", "-3", "--force", *paths]
        built = execute(command, tree, CFLAGS="-O0 -Iworker/binlog")
        if built.code != 0:
            return Result(mutant, "NOT BUILT", built)
    try:
        run = run_tests(tree, mutant.tests, "-x")
        return Result(mutant, "found" if run.code == TESTS_FAILED else f"NOT FOUND (pytest: {run.code})", run)
    finally:
        for built, copy in healthy.items():
            # A new file: a process that has the old one mapped keeps it.
            built.unlink()
            shutil.copy2(copy, built)


def check(tree: Path, mutant: Mutant) -> Result:
    applied = patch(tree, mutant)
    if applied.code != 0:
        return Result(mutant, "DOES NOT APPLY", applied)
    _forget_bytecode(tree, mutant)
    with tempfile.TemporaryDirectory() as kept:
        result = _find(tree, mutant, Path(kept))
    patch(tree, mutant, "-R")
    _forget_bytecode(tree, mutant)
    return result


def report(result: Result) -> None:
    failure = _FAILURE.search(result.run.output)
    reason = failure[1][:200] if result.verdict == "found" and failure else ""
    print(f"{result.verdict:<10} {result.mutant.name}, {result.run.seconds:.0f} s  {reason}", flush=True)
    if result.verdict != "found":
        print(result.run.output[-2000:])


def _named_tests(mutants: Iterable[Mutant]) -> list[str]:
    """Return each test once: a test of a file that runs anyhow is left out."""
    named = {test for mutant in mutants for test in mutant.tests}
    return sorted(test for test in named if "::" not in test or test.partition("::")[0] not in named)


def run_all(mutants: Sequence[Mutant], jobs: int, scratch: Path) -> int:
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        trees.put(copy_tree(scratch / f"tree-{number}"))
    tree = trees.get()
    healthy = run_tests(tree, _named_tests(mutants), *(("-n", str(jobs), "--dist", "loadfile") if jobs > 1 else ()))
    trees.put(tree)
    print(f"without a mutant: pytest ends with {healthy.code} after {healthy.seconds:.0f} s", flush=True)
    if healthy.code != 0:
        print(healthy.output[-8000:])
        return 2

    def one(mutant: Mutant) -> Result:
        free = trees.get()
        try:
            result = check(free, mutant)
        finally:
            trees.put(free)
        report(result)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        try:
            results = list(pool.map(one, mutants))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            interrupt_children()
            raise
    return _summary(results)


def _summary(results: Sequence[Result]) -> int:
    print(f"\n{'area':<12}{'mutants':>8}{'found':>8}{'seconds':>9}{'processor':>11}")
    for area in sorted({result.mutant.area for result in results}):
        of_area = [result for result in results if result.mutant.area == area]
        found = sum(result.verdict == "found" for result in of_area)
        seconds = sum(result.run.seconds for result in of_area)
        processor = sum(result.run.processor for result in of_area)
        print(f"{area:<12}{len(of_area):>8}{found:>8}{seconds:>9.0f}{processor:>11.0f}")
    missed = [result.mutant for result in results if result.verdict != "found"]
    for mutant in missed:
        print(f"not found: {mutant.what}\n    python -m tests.mutants.run {mutant.name}")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run")
    parser.add_argument("names", nargs="*", metavar="area | area/name", help="only these")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="copies of the tree that are used at once"
    )
    options = parser.parse_args()
    names: list[str] = options.names
    mutants = [m for m in all_mutants() if not names or {m.area, m.name, m.path.stem} & set(names)]
    if not mutants:
        parser.error(f"no mutant has such a name: {', '.join(names)}")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.what}")
        return 0
    # The exception of SIGINT: the copies are removed and the tests stop their servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        try:
            return run_all(mutants, max(1, min(options.jobs, len(mutants))), Path(scratch))
        except KeyboardInterrupt:
            interrupt_children()
            return 130


if __name__ == "__main__":
    sys.exit(main())
