#!/usr/bin/env bash
# Builds tidb-server with its embedded store, for the tests; prints where it is.
#
#   bash tests/support/tidb_server/build.sh
#
# TiDB publishes no binaries in a package registry; its Go module can be fetched. The build takes about 3 minutes on two
# processors, once: the program is kept in the cache of the tests ($SHARDMERGE_CACHE). A second caller waits for the
# first. Needs Go 1.23 or newer.

set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/system.sh
. "$HERE/../../../deploy/system.sh"

MODULE=github.com/pingcap/tidb
RELEASE=v8.4.0
PROGRAM=$MODULE/cmd/tidb-server
GO_OLDEST=23

tidb_folder() { # where it is or will be; the number is that of the recipe below
    echo "${SHARDMERGE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/shardmerge}/tidb-$RELEASE-2"
}

pick_go() { # the first of the usual places with a Go that is new enough
    local go minor
    for go in go /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
        minor=$("$go" version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
        if [ "${minor:-0}" -ge "$GO_OLDEST" ]; then
            command -v "$go"
            return
        fi
    done
    return 1
}

provide_go() {
    pick_go && return
    # Debian's own release has an older one.
    as_root apt-get update >&2 && as_root apt-get install -y --no-install-recommends "golang-1.$GO_OLDEST-go" >&2
    pick_go || { say "TiDB is built from its Go module: install Go 1.$GO_OLDEST or newer"; return 1; }
}

make_tidb() { # <folder>
    local folder=$1 scratch
    rm -rf "$folder".?????? # of one that was killed; nobody else is here
    scratch=$(mktemp -d "$folder.XXXXXX") || return 1
    (
        trap 'rm -rf "$scratch"' EXIT
        trap 'exit 1' INT TERM
        compile_tidb "$scratch" && mkdir -p "$folder" && mv "$scratch/tidb-server" "$folder/tidb-server"
    )
}

compile_tidb() { # <scratch folder>
    local scratch=$1 go packages pid
    go=$(provide_go) || return 1
    mkdir "$scratch/module" "$scratch/tmp" && cp "$HERE/go.mod" "$HERE/go.sum" "$scratch/module" && cd "$scratch/module" || return 1
    # Nothing but the program is kept: neither packages nor what the compiler makes of them.
    export GOMODCACHE=$scratch/packages GOCACHE=$scratch/compiled GOTMPDIR=$scratch/tmp
    export CGO_ENABLED=0 GOFLAGS="-mod=readonly -modcacherw -trimpath -buildvcs=false" GOTOOLCHAIN=local
    # The compiler collects garbage less often: a quarter of its processor time less, for more memory.
    export GOGC=800
    say "fetching TiDB $RELEASE"
    packages=$("$go" list -deps "$PROGRAM" 2>"$scratch/fetch.log" | wc -l)
    [ "$packages" -gt 0 ] || { tail -n 5 "$scratch/fetch.log" >&2; return 1; }
    say "compiling TiDB $RELEASE (about 3 minutes on two processors, once)"
    # Without optimization: a third of the compiler's time, for a server that is slower than the tests need.
    "$go" build -v -gcflags 'all=-N -l' -o "$scratch/tidb-server" \
        -ldflags "-s -w -X $MODULE/pkg/parser/mysql.TiDBReleaseVersion=$RELEASE" "$PROGRAM" 2>"$scratch/build.log" &
    pid=$!
    show_progress "$pid" "$scratch/build.log" "$packages" &
    wait "$pid" || { tail -n 20 "$scratch/build.log" >&2; return 1; }
}

show_progress() { # <process id> <its log, a line per package> <packages>
    while sleep 30 && kill -0 "$1" 2>/dev/null; do
        say "compiling TiDB: $(wc -l <"$2") of $3 packages"
    done
}

FOLDER=$(tidb_folder)
if [ ! -x "$FOLDER/tidb-server" ]; then
    mkdir -p "${FOLDER%/*}" || exit 1
    (
        flock 9 || exit 1
        [ -x "$FOLDER/tidb-server" ] || make_tidb "$FOLDER"
    ) 9>"$FOLDER.lock" || exit 1
fi
echo "$FOLDER/tidb-server"
