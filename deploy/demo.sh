#!/usr/bin/env bash
# shardmerge on this machine in one command: sources, target, etcd, master, workers, data, proof.
#
#   bash deploy/demo.sh         install what is missing, start afresh, merge, compare, leave it running
#   bash deploy/demo.sh stop    end everything that was started
#
# All data, logs and process ids are under deploy/.demo; all ports are free ones of 127.0.0.1. Exit code 0
# only when the target equals the merge of the sources, row by row.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=system.sh
. "$ROOT/deploy/system.sh"

HOME_DIR=$ROOT/deploy/.demo
VENV=$HOME_DIR/venv
RUN=$HOME_DIR/run
MARK="SHARDMERGE_DEMO=$HOME_DIR"

stop_demo() {
    local pid_file pid
    # The daemons first, while their servers still answer.
    for pid_file in "$RUN"/pids/worker-*.pid "$RUN"/pids/master-*.pid; do
        [ -e "$pid_file" ] || continue
        pid=$(cat "$pid_file")
        is_marked "$MARK" "$pid" && kill -TERM "$pid" 2>/dev/null
    done
    for pid_file in "$RUN"/pids/worker-*.pid "$RUN"/pids/master-*.pid; do
        [ -e "$pid_file" ] || continue
        pid=$(cat "$pid_file")
        for _ in $(seq 150); do
            is_marked "$MARK" "$pid" || break
            sleep 0.1
        done
    done
    end_marked "$MARK" || { say "could not end:"; marked_processes "$MARK" | describe_processes >&2; return 1; }
    rm -rf "$RUN/pids"
}

case ${1:-up} in
    stop)
        stop_demo || exit 1
        say "demo: stopped; data and logs stay in $RUN until the next start"
        exit 0
        ;;
    up) ;;
    *)
        sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
esac

# No other user of the machine can read what is made below it.
mkdir -p -m 700 "$HOME_DIR" && chmod 700 "$HOME_DIR" || exit 1
stop_demo || exit 1
install_packages && make_venv "$ROOT" "$VENV" "" || exit 1
rm -rf "$RUN"
# Server templates too: nothing is left outside this directory.
mkdir -p "$RUN" "$HOME_DIR/tmp"
cd "$ROOT" || exit 1
SHARDMERGE_DEMO=$HOME_DIR TMPDIR=$HOME_DIR/tmp PATH="$VENV/bin:$PATH" \
    exec "$VENV/bin/python" -m deploy.demo "$RUN"
