#!/usr/bin/env bash
# The whole test suite: builds the project in place, checks it, tests it.
#
#   bash tests/run.sh                          the default run (what CI runs), with a rotating part of the grid
#   bash tests/run.sh fast [folder]            style, contracts, types of what changed and the unit tests, in a minute;
#                                              with a folder, e.g. worker/relay, only its tests
#   bash tests/run.sh check                    ruff, contracts, pyright, documentation, alerts, dashboards and the wheel only
#   bash tests/run.sh unit|integration|cases [pytest options, e.g. -k relay, or a file of tests]
#   bash tests/run.sh grid [part]              every victim at every moment, every server, all with Spark; with a number
#                                              below 60 that part of it, which the default run names
#   bash tests/run.sh mutants [area|name]      applies deliberate defects, one at a time: the default tests must find each
#   bash tests/run.sh tidb                     every case, type and kill with a TiDB target
#   bash tests/run.sh clusters                 workers on a Spark cluster and on YARN: a part of it belongs to the default run
#   bash tests/run.sh versions                 a merge on each server version
#   bash tests/run.sh world [status|stop]      keep servers and a cluster running for integration and cases: a test that
#                                              borrows them begins at once
#
# Integration tests and cases lend servers and clusters to each other; with SHARDMERGE_OWN_WORLD=0 each starts its own.
# Uses .venv at the repository's root, or $SHARDMERGE_VENV. Missing system packages are installed
# (sudo only when not root). Nothing keeps running afterwards: what is left behind fails the run.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/system.sh
. "$ROOT/deploy/system.sh"
cd "$ROOT" || exit 1

VENV=${SHARDMERGE_VENV:-$ROOT/.venv}
WORLD=$ROOT/tests/.run/world
PART=${1:-all}
[ $# -gt 0 ] && shift
case $PART in
    all | fast | check | unit | integration | cases | grid | mutants | tidb | clusters | versions | world) ;;
    *)
        sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
esac

MARK="SHARDMERGE_RUN=$$-$(date +%s)"
export SHARDMERGE_RUN=${MARK#*=}
FAILED=()
SCRATCH=$(mktemp -d)
# pytest's folders, too, end with this run: those of an interrupted one would fill the disk.
export PYTEST_DEBUG_TEMPROOT=$SCRATCH
# Hundreds of daemons start: their modules are compiled once.
unset PYTHONDONTWRITEBYTECODE
# Seconds and name of each test, written by tests/conftest.py.
export SHARDMERGE_DURATIONS=$SCRATCH/durations
# A failure names it, so that hypothesis draws the same examples again.
export SHARDMERGE_SEED=${SHARDMERGE_SEED:-$RANDOM}

KEEPER=

clean_up() {
    trap - EXIT INT TERM
    end_marked "$MARK"
    rm -rf "$SCRATCH"
}
trap clean_up EXIT
trap 'say "run: interrupted"; exit 130' INT TERM

step() { # <name> <command...>
    local name=$1 start=$SECONDS
    shift
    say "== $name ($((SECONDS / 60)) min since the begin of the run)"
    # In the background, for a shell acts on a signal only when no foreground command runs.
    "$@" &
    if wait $!; then
        say "== $name: passed in $((SECONDS - start)) s"
    else
        say "== $name: FAILED after $((SECONDS - start)) s"
        FAILED+=("$name")
    fi
}

declare -A BEGUN=() BEGAN=()

begin() { # <name> <command...>: beside other steps; `finish` shows its standard output
    local name=$1
    shift
    "$@" >"$SCRATCH/$name.log" &
    BEGUN[$name]=$! BEGAN[$name]=$SECONDS
}

finish() { # <name> of a step that has begun
    local name=$1 code=0
    wait "${BEGUN[$name]}" || code=1
    say "== $name"
    cat "$SCRATCH/$name.log" >&2
    if [ $code -eq 0 ]; then
        say "== $name: passed, $((SECONDS - BEGAN[$name])) s after its begin"
    else
        say "== $name: FAILED, $((SECONDS - BEGAN[$name])) s after its begin"
        FAILED+=("$name")
    fi
}

wheel() {
    # A module that was removed since the last build would be packed from here again.
    rm -rf "$ROOT"/build/lib*
    python -m build --wheel --outdir "$SCRATCH/dist" . >"$SCRATCH/wheel.log" 2>&1 ||
        { tail -n 40 "$SCRATCH/wheel.log" >&2; return 1; }
    python tests/support/wheel.py "$SCRATCH"/dist/*.whl
}

# The import names of the project are also those of other packages: the wheel beside them merges a table.
wheel_in_use() {
    python -m tests.support.wheel_in_use "$SCRATCH"/dist/*.whl "$SCRATCH/wheel-in-use"
}

# Spark's driver starts in half the processor time with its classes in an archive, made once per environment.
share_classes() {
    dm-worker prepare >"$SCRATCH/classes.log" 2>&1 ||
        say "no archive of Spark's classes, workers start slower: $(tail -n 1 "$SCRATCH/classes.log")"
}

tests() { # <folder> [pytest options]
    local folder=tests/$1 share=(-n 4 --dist loadfile --no-loadscope-reorder)
    shift
    # A file stays in one process, for its tests share servers; files come in the order of collection, longest first.
    # Most of a test's time is waiting for servers and JVMs: three at a time leave a third of two processors idle.
    case $folder in
        tests/unit) share=(-n 2 --dist loadfile --no-loadscope-reorder) ;;
        tests/versions) share=(-n 0) ;;
        # These share nothing but their world, of which each process has one.
        tests/cases) share=(-n 4 --dist worksteal) ;;
    esac
    # One process borrows all that is kept.
    if [ "$folder" != tests/unit ] && [ -z "${SHARDMERGE_NO_WORLD:-}${SHARDMERGE_WORLD_STATE:-}" ] &&
        [ -e "$WORLD/state.json" ]; then
        say "run: with the servers of the kept world, one test at a time"
        share=(-n 0)
    fi
    # Files or tests that are named are collected alone, which takes seconds less.
    local option what=("$folder")
    for option in "$@"; do
        [ ! -e "${option%%::*}" ] || what=()
    done
    # A background command ignores SIGINT, and all that the tests start would inherit that.
    env --default-signal=INT,QUIT python -m pytest "${what[@]}" "${share[@]}" --durations=15 \
        --hypothesis-seed="$SHARDMERGE_SEED" "$@"
}

# Servers and clusters for the four processes of a run: a test leaves them to the next one that wants such. What most
# tests need takes half a minute of processor time to start (tests/support/kept_world.py).
keep_own_world() {
    [ "${SHARDMERGE_OWN_WORLD:-1}" != 0 ] && [ -z "${SHARDMERGE_NO_WORLD:-}" ] || return 0
    export SHARDMERGE_WORLD_STATE=$SCRATCH/world.json
    TMPDIR=$SCRATCH env --default-signal=INT,QUIT python -m tests.support.kept_world keep 4 \
        >"$SCRATCH/keeper.log" 2>&1 </dev/null &
    KEEPER=$!
}

end_own_world() {
    [ -n "$KEEPER" ] || return 0
    kill -TERM "$KEEPER" && wait "$KEEPER"
    say "== servers of the run: $(grep -c 'a test has disturbed it' "$SCRATCH/keeper.log") replaced after a test disturbed them"
    grep -v 'a test has disturbed it\|no test wants it\|the world ends' "$SCRATCH/keeper.log" | tail -n 40 >&2
}

# ---------------------------------------------------------------------------- fast

# The modules that differ from HEAD, or all of a folder and of its tests; their paths as pyproject.toml has them.
modules_to_check() { # [folder, its tests]
    {
        if [ $# -gt 0 ]; then
            find "$@" -name '*.py' ! -name '*_pb2*'
        else
            git diff --name-only --diff-filter=d HEAD -- '*.py'
            git ls-files --others --exclude-standard -- '*.py'
        fi
    } | sort -u | sed -E 's#^(worker|master|ctl|proto)/#shardmerge/\1/#'
}

types_of_changes() { # [folder, its tests]
    local modules
    mapfile -t modules < <(modules_to_check "$@")
    [ ${#modules[@]} -eq 0 ] || pyright "${modules[@]}"
}

static_checks() { # [folder, its tests]: one after the other, each with its seconds
    local failed=0 name start
    for name in "ruff check ." "ruff format --check ." lint-imports "types_of_changes"; do
        start=$SECONDS
        # shellcheck disable=SC2086
        if { if [ "$name" = types_of_changes ]; then types_of_changes "$@"; else $name; fi; } >"$SCRATCH/check.log" 2>&1; then
            say "== ${name//_/ }: passed in $((SECONDS - start)) s"
        else
            failed=1
            cat "$SCRATCH/check.log" >&2
            say "== ${name//_/ }: FAILED after $((SECONDS - start)) s"
        fi
    done
    return $failed
}

fast() { # [folder]
    local folder=${1:-} mirror tested=(tests/unit) scope=() share=(-n 2 --dist loadfile) checks unit start=$SECONDS
    if [ -n "$folder" ]; then
        folder=${folder%/}
        folder=${folder#"$ROOT/"}
        mirror=tests/unit/${folder#tests/unit/}
        [ -d "$mirror" ] || { say "no unit tests in $mirror"; return 1; }
        tested=("$mirror") share=(-n 0)
        scope=("${mirror#tests/unit/}" "$mirror")
    fi
    static_checks "${scope[@]}" &
    checks=$!
    env --default-signal=INT,QUIT python -m pytest "${tested[@]}" -q "${share[@]}" \
        --hypothesis-profile fast --durations=5 &
    unit=$!
    if wait $unit; then
        say "== unit tests of ${tested[*]}: passed in $((SECONDS - start)) s"
    else
        say "== unit tests of ${tested[*]}: FAILED after $((SECONDS - start)) s"
        FAILED+=("unit tests")
    fi
    wait $checks || FAILED+=("checks")
}

# ---------------------------------------------------------------------------- world

stop_world() { # also one whose keeper was killed
    python -m tests.support.kept_world stop
    end_marked "SHARDMERGE_WORLD=$WORLD" && python -m tests.support.kept_world clear
}

world() { # [start|status|stop]
    case ${1:-start} in
        start) ;;
        status)
            python -m tests.support.kept_world status
            return
            ;;
        stop)
            stop_world && say "world: stopped"
            return
            ;;
        *)
            say "world start, world status or world stop"
            return 2
            ;;
    esac
    if [ -e "$WORLD/state.json" ] && python -m tests.support.kept_world status; then
        return
    fi
    # What a keeper that was killed has left.
    stop_world || return 1
    mkdir -p "$WORLD" && chmod 700 "$WORLD" || return 1
    (
        umask 077
        # It does not belong to this run: it is not looked for at the end, and its files are its own.
        exec env -u SHARDMERGE_RUN -u PYTEST_DEBUG_TEMPROOT --default-signal=INT,QUIT "SHARDMERGE_WORLD=$WORLD" \
            setsid python -m tests.support.kept_world keep >"$WORLD/keeper.log" 2>&1 </dev/null
    ) &
    python -m tests.support.kept_world wait || { tail -n 20 "$WORLD/keeper.log" >&2; return 1; }
}

# ----------------------------------------------------------------------------

# To look at the kept world, or to end it, nothing is built.
if [ "$PART" = world ] && [ "${1:-start}" != start ] && [ -x "$VENV/bin/python" ]; then
    PATH="$VENV/bin:$PATH" world "$@"
    exit
fi
case $PART in
    all | integration | cases | grid | mutants | tidb | clusters | versions | world) ALSO_NEEDED='pt-online-schema-change=percona-toolkit haproxy faketime promtool=prometheus' install_packages mysql && provide_mysql >/dev/null || exit 1 ;;
    *) ALSO_NEEDED=promtool=prometheus install_packages || exit 1 ;;
esac
make_venv "$ROOT" "$VENV" "[dev]" || exit 1
export PATH="$VENV/bin:$PATH"

if [ "$PART" = world ]; then
    [ "${1:-start}" != start ] || share_classes
    world "$@"
    exit
fi
if [ "$PART" = fast ]; then
    [ $# -gt 0 ] || share_classes
    fast "$@"
fi
if [ "$PART" = mutants ]; then
    step "mutants" env --default-signal=INT,QUIT python -m tests.mutants.run "$@"
fi
if [ "$PART" = all ]; then
    # Another commit has another part: some sixty commits run the whole grid.
    head=$(git rev-parse HEAD 2>/dev/null || echo 0)
    export SHARDMERGE_GRID_PART=$((16#${head:0:7} % 60))
    say "run: with part $SHARDMERGE_GRID_PART of the grid: bash tests/run.sh grid $SHARDMERGE_GRID_PART"
fi
if [ "$PART" = all ] || [ "$PART" = check ]; then
    # It uses one processor, the other checks, and then the first unit tests, use another one.
    begin pyright pyright
    step "ruff check" ruff check .
    step "ruff format" ruff format --check .
    step "contracts" lint-imports
    [ ! -e mkdocs.yml ] || step "documentation" mkdocs build --strict --quiet --site-dir "$SCRATCH/site"
    # Everything runs them with the unit tests.
    [ "$PART" = all ] || step "alerts and dashboards" python -m pytest tests/unit/deploy -q -p no:xdist
    step "wheel" wheel
    step "wheel in use" wheel_in_use
    [ "$PART" = all ] || finish pyright
fi
case $PART in
    all | integration | cases | grid | tidb | clusters | versions) share_classes ;;
esac
case $PART in
    tidb) step "tidb-server" bash tests/support/tidb_server/build.sh >/dev/null ;;
    grid) [[ ${1:-} =~ ^[0-9]+$ ]] || step "tidb-server" bash tests/support/tidb_server/build.sh >/dev/null ;;
esac
case $PART in
    integration | cases) [ -e "$WORLD/state.json" ] || keep_own_world ;;
    all) keep_own_world ;;
esac
case $PART in
    unit | integration | cases) step "$PART" tests "$PART" "$@" ;;
    all)
        step "unit" tests unit
        finish pyright
        # One of the processes of the integration tests runs the cases that need Spark.
        step "integration" tests integration tests/integration tests/cases/test_spark_cases.py
        step "cases" tests cases tests/cases/test_cases.py
        ;;
esac

if [ "$PART" = tidb ]; then
    # Kept servers are of other kinds: each process starts its own.
    export SHARDMERGE_NO_WORLD=1
    step "integration with TiDB" tests integration tests/integration/test_tidb.py tests/integration/test_tidb_parts.py \
        tests/integration/test_tidb_key_statements.py -m tidb
    export SHARDMERGE_CASES_TARGET=tidb
    step "cases with TiDB" tests cases "$@"
fi

if [ "$PART" = clusters ]; then
    # One process: the tests measure recovery times. -s: their figures are printed.
    export SHARDMERGE_NO_WORLD=1
    step "Spark clusters" tests integration tests/integration/test_spark_cluster.py \
        tests/integration/test_spark_losses.py tests/integration/test_spark_yarn.py \
        tests/integration/test_kubernetes_executor.py tests/integration/test_spark_connect.py \
        tests/integration/test_pack.py -m "grid or not grid" -n 0 -s "$@"
fi

if [ "$PART" = versions ]; then
    step "versions" tests versions "$@"
    step "statements by key" tests integration tests/integration/test_key_statements.py -m versions
fi

if [ "$PART" = grid ]; then
    export SHARDMERGE_ALL_WITH_SPARK=1
    # With as many examples of hypothesis as it makes by default, all unit tests are worth another run.
    chosen=("" "grid or tidb")
    if [[ ${1:-} =~ ^[0-9]+$ ]]; then
        export SHARDMERGE_GRID_PART=$1
        unset SHARDMERGE_ALL_WITH_SPARK
        chosen=(rotating rotating)
        shift
    fi
    step "grid of unit tests" tests unit -m "${chosen[0]}" --hypothesis-profile thorough "$@"
    step "grid" tests integration -m "${chosen[1]}" "$@"
fi

end_own_world

if [ "$PART" = all ] && [ -s "$SHARDMERGE_DURATIONS" ]; then
    say "== the slowest tests, in seconds"
    sort -rn "$SHARDMERGE_DURATIONS" | head -n 20 >&2
fi

# A JVM needs a moment to see that its driver is gone.
if wait_until_gone "$MARK" 10; then
    say "run: no process left behind"
else
    say "run: processes left behind, ended now:"
    marked_processes "$MARK" | describe_processes >&2
    FAILED+=("processes left behind")
fi
if [ ${#FAILED[@]} -eq 0 ]; then
    say "run: passed in $SECONDS s"
else
    say "run: FAILED in $SECONDS s: $(IFS=,; echo "${FAILED[*]}")"
    exit 1
fi
