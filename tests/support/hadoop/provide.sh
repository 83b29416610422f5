#!/usr/bin/env bash
# Downloads what a YARN of the tests needs, with Maven; prints the folder with the jars.
#
#   bash tests/support/hadoop/provide.sh
#
# The folder is kept in the cache of the tests ($SHARDMERGE_CACHE). A second caller waits for the first.

set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/system.sh
. "$HERE/../../../deploy/system.sh"

# The number is that of the list of jars in pom.xml.
FOLDER=${SHARDMERGE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/shardmerge}/hadoop-3.5.0-1

download() {
    local scratch
    command -v mvn >/dev/null || { as_root apt-get update && as_root apt-get install -y --no-install-recommends maven; } >&2 || return 1
    rm -rf "$FOLDER".?????? # of a download that was killed; the lock is held
    scratch=$(mktemp -d "$FOLDER.XXXXXX") || return 1
    mvn -q -B -f "$HERE/pom.xml" dependency:copy-dependencies -DexcludeTransitive=true \
        "-DoutputDirectory=$scratch" >&2 && mv "$scratch" "$FOLDER" || { rm -rf "$scratch"; return 1; }
}

mkdir -p "$(dirname "$FOLDER")" || exit 1
exec 9>"$FOLDER.lock"
flock 9 || exit 1
[ -d "$FOLDER" ] || download || { say "the jars of Hadoop cannot be downloaded"; exit 1; }
echo "$FOLDER"
