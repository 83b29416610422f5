#!/usr/bin/env bash
# The whole test suite: builds the project in place, checks it, tests it.
#
#   bash tests/run.sh                          everything (what CI runs)
#   bash tests/run.sh check                    ruff, pyright and the wheel only
#   bash tests/run.sh unit|integration|cases [pytest options, e.g. -k relay]
#   bash tests/run.sh grid                     every victim at every moment: not part of everything
#
# Uses .venv at the repository's root, or $SHARDMERGE_VENV. Missing system packages are installed
# (sudo only when not root). Nothing keeps running afterwards: what is left behind fails the run.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../deploy/system.sh
. "$ROOT/deploy/system.sh"
cd "$ROOT" || exit 1

VENV=${SHARDMERGE_VENV:-$ROOT/.venv}
PART=${1:-all}
[ $# -gt 0 ] && shift
case $PART in
    all | check | unit | integration | cases | grid) ;;
    *)
        sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
esac

MARK="SHARDMERGE_RUN=$$-$(date +%s)"
export SHARDMERGE_RUN=${MARK#*=}
FAILED=()
SCRATCH=$(mktemp -d)
# pytest's folders, too, end with this run: those of an interrupted one would fill the disk.
export PYTEST_DEBUG_TEMPROOT=$SCRATCH

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
    say "== $name"
    # In the background, for a shell acts on a signal only when no foreground command runs.
    "$@" &
    if wait $!; then
        say "== $name: passed in $((SECONDS - start)) s"
    else
        say "== $name: FAILED after $((SECONDS - start)) s"
        FAILED+=("$name")
    fi
}

wheel() {
    # A module that was removed since the last build would be packed from here again.
    rm -rf "$ROOT/build/lib"
    python -m build --wheel --outdir "$SCRATCH/dist" . >"$SCRATCH/wheel.log" 2>&1 ||
        { tail -n 40 "$SCRATCH/wheel.log" >&2; return 1; }
    python tests/support/wheel.py "$SCRATCH"/dist/*.whl
}

# Spark's driver starts in half the processor time with its classes in an archive, made once per environment.
share_classes() {
    local archive
    archive=$(python -m tests.support.class_archive "$VENV" 2>"$SCRATCH/classes.log") || {
        say "no archive of Spark's classes, workers start slower: $(tail -n 1 "$SCRATCH/classes.log")"
        return
    }
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:SharedArchiveFile=\"$archive\""
}

tests() { # <folder> [pytest options]
    local folder=tests/$1 share=(-n 3 --dist loadfile --no-loadscope-reorder)
    shift
    # A file stays in one process, for its tests share servers; files come in the order of collection, longest first.
    # Half of a test's time is waiting for servers and JVMs: two at a time keep one of two processors busy.
    case $folder in
        tests/unit) share=(-n 2 --dist loadfile) ;;
        # These share nothing but their world, of which each process has one.
        tests/cases) share=(-n 3 --dist worksteal) ;;
    esac
    # A background command ignores SIGINT, and all that the tests start would inherit that.
    env --default-signal=INT,QUIT python -m pytest "$folder" "${share[@]}" --durations=15 "$@"
}

case $PART in
    all | integration | cases | grid) ALSO_NEEDED=pt-online-schema-change=percona-toolkit install_packages mysql && provide_mysql >/dev/null || exit 1 ;;
    *) install_packages || exit 1 ;;
esac
make_venv "$ROOT" "$VENV" "[dev]" || exit 1
export PATH="$VENV/bin:$PATH"

if [ "$PART" = all ] || [ "$PART" = check ]; then
    step "ruff check" ruff check .
    step "ruff format" ruff format --check .
    step "pyright" pyright
    step "wheel" wheel
fi
case $PART in
    all | integration | cases | grid) share_classes ;;
esac
for folder in unit integration cases; do
    if [ "$PART" = all ] || [ "$PART" = "$folder" ]; then
        step "$folder" tests "$folder" "$@"
    fi
done

if [ "$PART" = grid ]; then
    step "grid" tests integration -m grid "$@"
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
