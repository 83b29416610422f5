#!/usr/bin/env bash
# The benchmark: a full merge, the drain of a backlog, lags, decoder, relay, memory, beside what the target alone can do.
#
#   bash tests/benchmarks/run.sh                 everything (about 18 minutes on 2 cores)
#   bash tests/benchmarks/run.sh --quick         fewer rows, under 3 minutes
#   bash tests/benchmarks/run.sh --only drain,decode --profile /var/tmp/profile
#   bash tests/benchmarks/run.sh --help
#
# Prints a table and one JSON line. Uses .venv at the repository's root, or $SHARDMERGE_VENV (with SHARDMERGE_AS_IS=1
# without looking whether it is up to date); servers on free loopback ports, their data under $TMPDIR or /var/tmp.
# Missing system packages are installed. Nothing is left behind.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../../deploy/system.sh
. "$ROOT/deploy/system.sh"
HERE=$PWD
cd "$ROOT" || exit 1

VENV=${SHARDMERGE_VENV:-$ROOT/.venv}
MARK="SHARDMERGE_BENCHMARK=$$-$(date +%s)"
export SHARDMERGE_BENCHMARK=${MARK#*=}
SCRATCH=$(mktemp -d "${TMPDIR:-/var/tmp}/shardmerge-benchmark-XXXXXX")
CHILD=

clean_up() {
    trap - EXIT
    trap '' INT TERM
    end_marked "$MARK"
    [ -e "$SCRATCH/keep" ] || rm -rf "$SCRATCH"
}
interrupted() {
    # Its own way out stops the servers in order.
    [ -n "$CHILD" ] && kill -TERM "$CHILD" 2>/dev/null && wait "$CHILD"
    exit 130
}
trap clean_up EXIT
trap interrupted INT TERM

ALSO_NEEDED=sysbench install_packages || exit 1
if [ -z "${SHARDMERGE_AS_IS:-}" ]; then
    make_venv "$ROOT" "$VENV" "[dev]" || exit 1
fi
export PATH="$VENV/bin:$PATH"
# In the background, for a shell acts on a signal only when no foreground command runs; a background command ignores
# SIGINT, and all that it starts would inherit that.
SHARDMERGE_BENCHMARK_DIR=$SCRATCH SHARDMERGE_BENCHMARK_FROM=$HERE \
    env --default-signal=INT,QUIT python -m tests.benchmarks "$@" &
CHILD=$!
wait "$CHILD"
CODE=$?
[ $CODE -le 128 ] || say "benchmark: ended by signal $((CODE - 128))"
exit $CODE
