"""Simulates many histories: ``python -m tests.simulator --seed 1 --histories 100000 [--longer]``.

Prints how many it has simulated, and the first one that violates a rule, reduced.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator.runs import first_failure, reduced


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--longer", action="store_true", help="with more tables, statements and rows")
    parser.add_argument("--as-drawn", action="store_true", help="do not reduce the history that fails")
    chosen = parser.parse_args()
    began = time.process_time()
    last = chosen.seed + chosen.histories
    failure = first_failure(iter(range(chosen.seed, last)), longer=chosen.longer)
    seconds = time.process_time() - began
    count = chosen.histories if failure is None else failure.seed - chosen.seed + 1
    print(f"{count} histories in {seconds:.1f} s of processor time: {count / seconds:.0f} a second")
    if failure is not None:
        print(failure if chosen.as_drawn else reduced(failure))
    return failure is not None


if __name__ == "__main__":
    sys.exit(main())
