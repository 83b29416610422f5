#!/usr/bin/env bash
# A soak: random writers at two sources, a random fault every few seconds, every row compared at the end.
#
#   bash tests/soak/run.sh [--minutes 20] [--every 20] [--source mariadb|mysql] [--target mariadb|mysql|tidb]
#                          [--seed N] [--rows 4000] [--writers 3] [--workers 2]
#                          [--faults "kill lane,kill target"] [--dir DIR] [--keep]
#
# One line per fault, and a last line
#   soak: minutes=<m> faults=<n> changes=<n> restarts=<n> differences=<n>
# Exit code 0 only when every row was compared and none differs; else logs and data stay, and their place is
# printed. Uses .venv at the repository's root, or $SHARDMERGE_VENV. Nothing keeps running afterwards.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../../deploy/system.sh
. "$ROOT/deploy/system.sh"
cd "$ROOT" || exit 1

VENV=${SHARDMERGE_VENV:-$ROOT/.venv}
case " $* " in
    *" -h "* | *" --help "*)
        sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
esac

MARK="SHARDMERGE_RUN=$$-$(date +%s)"
export SHARDMERGE_RUN=${MARK#*=}

clean_up() {
    trap - EXIT INT TERM
    end_marked "$MARK"
}
trap clean_up EXIT
trap 'say "soak: interrupted"; exit 130' INT TERM

install_packages && make_venv "$ROOT" "$VENV" "[dev]" || exit 1
export PATH="$VENV/bin:$PATH"
# In the background, for a shell acts on a signal only when no foreground command runs.
env --default-signal=INT,QUIT python -m tests.soak "$@" &
wait $!
