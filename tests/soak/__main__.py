"""Runs the soak: ``python -m tests.soak``, see run.sh. It prints a line per fault and ends with the judge's verdict."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random

from tests.soak.arena import FLAVORS, TARGETS, Arena
from tests.soak.faults import FAULTS, UNDER_THE_SNAPSHOT, Fault, Faults
from tests.soak.history import changes, wanted
from tests.soak.merge import META, TARGET_SCHEMA, TASK, Judged, Merge
from tests.soak.watch import GaveUp, Watch
from tests.soak.writer import Writers
from tests.support.wait import until
from tests.support.writer import Counts

# A snapshot ends soon, so the faults during it follow each other quickly.
_SNAPSHOT_FAULTS = 3
_SNAPSHOT_PAUSE_SECONDS = 4.0
_ANOTHER_SECONDS = 1.0
_EXPLAINED = 2  # number of differing rows per table whose history is printed
_EVENTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Options:
    minutes: float
    every: float
    source: str
    target: str
    seed: int
    rows: int
    writers: int
    workers: int
    settle_seconds: float
    faults: tuple[Fault, ...]
    directory: Path
    keep: bool


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a soak. ``failures``: sentences; the soak has succeeded if there are none."""

    counts: Counts
    restarts: int
    judged: Sequence[Judged]
    failures: Sequence[str]

    @property
    def differences(self) -> int:
        return sum(item.verdict.differences for item in self.judged)


class Soak:
    """One soak from empty servers to the verdict; :meth:`run` once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = time.monotonic()
        self._log_lock = threading.Lock()
        self._log = (options.directory / "soak.log").open("a", encoding="utf-8")
        self._arena = Arena(options.directory, options.source, options.target, options.workers, self._say)
        self._merge = Merge(self._arena.sources, self._arena.target)
        self._writers = Writers(self._merge.tables, seed=options.seed, threads=options.writers)
        self._watch = Watch(self._arena, self._note)
        self._over = threading.Event()
        self._faults = Faults(self._arena, Random(f"{options.seed}/faults"), self._over)
        self.done: Counter[str] = Counter()

    # -- output

    def _note(self, text: str) -> None:
        """Write to the log only."""
        now = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        with self._log_lock:
            print(f"{now} +{time.monotonic() - self._began:.0f}s {text}", file=self._log, flush=True)

    def _say(self, text: str) -> None:
        self._note(text)
        print(f"{datetime.now(UTC).strftime('%H:%M:%S')} +{time.monotonic() - self._began:.0f}s {text}", flush=True)

    # -- the soak

    def run(self) -> Result:
        options, arena = self._options, self._arena
        self._say(f"soak: {options.source} to {options.target}, seed {options.seed}, in {options.directory}")
        judged: Sequence[Judged] = ()
        failures: list[str] = []
        try:
            arena.start()
            self._merge.create(options.seed, options.rows)
            self._writers.start()
            arena.cluster.start_task(self._merge.task())
            self._watch.start()
            arena.supervisor.run()
            self._disturb()
            self._say(f"writers stop; faults: {dict(self.done)}")
            self._writers.stop()
            self._watch.stop()
            failures += self._problems()
            if not failures:
                self._watch.settle(options.settle_seconds)
                memory = self._watch.memory
                if not memory.lane:
                    failures.append("no lane's process was ever seen: faults and figures of lanes are void")
                self._say(
                    f"all is applied; lanes had {memory.lane} MiB at most, JVMs {memory.jvm}; every row is compared"
                )
                judged = self._merge.verdicts()
                for item in judged:
                    self._say(f"{item.kind.name}: {item.verdict}")
                self._explain(judged)
                failures += self._second_judge(judged)
        except (AssertionError, GaveUp) as error:
            failures.append(str(error))
        finally:
            self._over.set()
            self._writers.stop()
            self._watch.stop()
            if failures:
                self._note(failures[0])
                self._report()
            arena.stop()
        return Result(self._writers.counts, arena.supervisor.restarts, judged, tuple(failures))

    def _second_judge(self, judged: Sequence[Judged]) -> list[str]:
        """Run `dmctl compare` for every table that has a key; its result must equal the judge's."""
        keyed = [item for item in judged if item.kind.key]
        tables = [option for item in keyed for option in ("--table", f"{TARGET_SCHEMA}.{item.kind.name}")]
        compared = self._arena.cluster.compare(TASK, *tables, check=False)
        rows = sum(item.verdict.rows for item in keyed)
        self._say(f"dmctl compare: {compared.answer.json.get('msg')}, {compared.rows} rows")
        found = any(item.verdict.differences for item in keyed)
        if (compared.answer.code, compared.rows) == (1 if found else 0, rows):
            return []
        return [f"dmctl compare does not agree with the judge, who saw {rows} rows: {compared.answer.text}"]

    def _disturb(self) -> None:
        """Cause one fault after the other until the time is up or a failure prevents the soak from continuing."""
        options = self._options
        rng = Random(f"{options.seed}/schedule")
        end = time.monotonic() + options.minutes * 60
        # The first faults occur while chunks are copied, on fast and slow machines.
        self._wait_for_chunks(end)
        early = [fault for fault in UNDER_THE_SNAPSHOT if fault in options.faults]
        for fault in rng.sample(early, min(_SNAPSHOT_FAULTS, len(early))):
            self._one(fault)
            if not self._pause(_SNAPSHOT_PAUSE_SECONDS, end):
                return
        while self._pause(options.every, end):
            while not self._one(rng.choices(options.faults, [fault.share for fault in options.faults])[0]):
                if not self._pause(_ANOTHER_SECONDS, end):
                    return

    def _wait_for_chunks(self, end: float) -> None:
        """Wait until every subtask has loaded a chunk."""

        def loaded() -> bool:
            return bool(self._problems()) or self._merge.loaded_sources() == len(self._arena.sources)

        until(loaded, "every subtask has copied a chunk", max(1.0, end - time.monotonic()), every=0.2)

    def _pause(self, seconds: float, end: float) -> bool:
        """Wait so long; return False when the soak must end before that."""
        over = time.monotonic() + seconds
        while (now := time.monotonic()) < over:
            if now >= end or self._problems():
                return False
            self._over.wait(min(1.0, over - now))
        return True

    def _one(self, fault: Fault) -> bool:
        """Cause the fault; return False when it has no possible victim now."""
        number = self.done.total() + 1
        phase = "snapshot" if self._watch.snapshot_goes_on else "replicate"
        self._note(f"fault {number}: {fault.name} ({phase})")
        said = fault.do(self._faults)
        if said:
            self.done[fault.name] += 1
            self._say(f"fault {number}: {fault.name}: {said} ({phase}, seed {self._options.seed})")
        return bool(said)

    def _problems(self) -> list[str]:
        found = list(self._watch.errors)
        if self._arena.supervisor.failure is not None:
            found.append(self._arena.supervisor.failure)
        if self._writers.failure is not None:
            found.append(f"a writer failed: {self._writers.failure!r}")
        return found

    # -- after a failure

    def _report(self) -> None:
        for line in self._watch.describe():
            self._say(line)
        self._checkpoints()

    def _checkpoints(self) -> None:
        target = self._arena.target
        if not target.is_running or not self._arena.epochs():
            return
        for row in target.query(
            "SELECT source, lane, epoch, seq, segment, byte, skip_events, source_file, source_pos "
            f"FROM `{META}`.lane_checkpoint WHERE task = '{TASK}'"
        ):
            source, lane, epoch, seq, segment, byte, skipped, file, position = row
            self._say(
                f"checkpoint {source} lane {lane}: epoch {epoch} seq {seq}, relay segment {segment} byte {byte} "
                f"skipped {skipped}, source {file}:{position}"
            )

    def _explain(self, judged: Sequence[Judged]) -> None:
        """Print every change in the binlog, with its position, of the first differing rows."""
        if any(item.verdict.differences for item in judged):
            self._checkpoints()
        for item in judged:
            for identity in item.verdict.identities[:_EXPLAINED]:
                for one in wanted(item.tables, identity):
                    said = list(islice(changes(one), 1000))
                    if said:
                        self._say(f"history of {one.key} in {one.table.source.name} {one.table.name}, last changes:")
                    for line in said[-_EVENTS_SHOWN:]:
                        self._say(f"  {line}")


def main() -> int:
    options = _options()
    options.directory.mkdir(parents=True, exist_ok=True)
    soak = Soak(options)
    began = time.monotonic()
    result = soak.run()
    good = not result.failures and result.differences == 0 and bool(result.judged)
    for failure in result.failures:
        print(f"FAILED: {failure}", flush=True)
    if good and not options.keep:
        shutil.rmtree(options.directory, ignore_errors=True)
    else:
        print(f"logs and data: {options.directory}", flush=True)
    print(
        f"soak: minutes={(time.monotonic() - began) / 60:.1f} faults={soak.done.total()} "
        f"changes={result.counts.changes} restarts={result.restarts} "
        f"differences={result.differences if result.judged else 'unknown'}",
        flush=True,
    )
    return 0 if good else 1


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="bash tests/soak/run.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long writers and faults go on")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two faults")
    parser.add_argument("--source", choices=sorted(FLAVORS), default="mariadb")
    parser.add_argument("--target", choices=sorted(TARGETS), default="mariadb")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of writers and faults")
    parser.add_argument("--rows", type=int, default=4000, help="rows per shard table at the start")
    parser.add_argument("--writers", type=int, default=3, help="connections per source")
    parser.add_argument("--workers", type=int, default=2)
    names = ", ".join(fault.name for fault in FAULTS)
    parser.add_argument("--faults", default=names, help=f"which, with commas between; default: {names}")
    parser.add_argument("--settle", type=float, default=1200.0, help="seconds to apply what is left at the end")
    parser.add_argument("--dir", type=Path, default=None, help="data and logs; default: a temporary directory")
    parser.add_argument("--keep", action="store_true", help="keep data and logs of a good run too")
    given = parser.parse_args()
    wanted_names = [name.strip() for name in given.faults.split(",")]
    if unknown := set(wanted_names) - {fault.name for fault in FAULTS}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are: {names}")
    directory = given.dir or Path(tempfile.mkdtemp(prefix="shardmerge-soak-"))
    return Options(
        minutes=given.minutes,
        every=given.every,
        source=given.source,
        target=given.target,
        seed=given.seed,
        rows=given.rows,
        writers=given.writers,
        workers=given.workers,
        settle_seconds=given.settle,
        faults=tuple(fault for fault in FAULTS if fault.name in wanted_names),
        directory=directory.resolve(),
        keep=given.keep,
    )


if __name__ == "__main__":
    sys.exit(main())
