"""``python -m tests.fuzz [--events 1000000]`` and ``python -m tests.fuzz config [--files 10000]``"""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from tests.fuzz import configs
from tests.fuzz.child import run_in_child

_AT_ONCE = 50_000


@click.group(invoke_without_command=True)
@click.option("--events", default=1_000_000, show_default=True, help="How many damaged events.")
@click.option("--seed", default=1, show_default=True)
@click.option("--first", default=0, show_default=True, help="The number of the first: to try one again.")
@click.pass_context
def main(context: click.Context, events: int, seed: int, first: int) -> None:
    """Damaged events through the compiled decoder. Exit code 1 and the event's number for any fault."""
    if context.invoked_subcommand is not None:
        return
    outcomes: Counter[str] = Counter()
    seconds, peak, done = 0.0, 0, 0
    while done < events:
        report = run_in_child(seed, first + done, min(_AT_ONCE, events - done))
        if report.fault:
            print(report.fault, file=sys.stderr)
            raise SystemExit(1)
        outcomes += report.outcomes
        seconds += report.seconds
        peak = max(peak, report.peak_mebibytes)
        done += min(_AT_ONCE, events - done)
        print(f"{done} events in {seconds:.0f} s, at most {peak} MiB", flush=True)
    for name, count in outcomes.most_common():
        print(f"{count:10} {name}")


@main.command()
@click.option("--files", default=10_000, show_default=True, help="How many damaged files.")
@click.option("--seed", default=1, show_default=True)
@click.option("--first", default=0, show_default=True, help="The number of the first: to try one again.")
def config(files: int, seed: int, first: int) -> None:
    """Damaged configuration files. Exit code 1 and the file for any that becomes neither a model nor a coded error."""
    begun = time.monotonic()
    report = configs.run(seed, first, files)
    if report.fault:
        print(report.fault, file=sys.stderr)
        raise SystemExit(1)
    print(f"{files} files in {time.monotonic() - begun:.0f} s, the slowest in {report.slowest:.2f} s")
    for name, count in report.outcomes.most_common():
        print(f"{count:10} {name}")


if __name__ == "__main__":
    main()
