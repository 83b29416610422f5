# shellcheck shell=bash
# Shared by deploy/demo.sh and tests/run.sh; sourced, never run by itself.
#
# Four things: system packages that are missing, a MySQL for the tests, a virtual environment with the
# project in it, and finding processes by a mark in their environment. Debian and Ubuntu; elsewhere the
# packages must be there already. Every function returns non-zero with a sentence on stderr when it
# cannot do its part.

# mariadbd lives in sbin, which is not on an ordinary user's PATH.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { printf '%s\n' "$*" >&2; }

# ---------------------------------------------------------------------------- system packages

python_fits() { # <python>: 3.11 or newer
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python_can_build() { # <python>: can make environments and compile extensions
    "$1" -c '
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null
}

# The Python to make environments with: $PYTHON, else the first that is complete, else the first that is
# new enough (its missing packages are then installed). Prints nothing when there is none.
pick_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11 /usr/bin/python3)
    [ -n "${PYTHON:-}" ] && candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if python_fits "$candidate" && python_can_build "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    for candidate in "${candidates[@]}"; do
        if python_fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

java_major() { # major version of the JVM that Spark would start, 0 without one
    local java version
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    echo "${version:-0}"
}

c_compiler_works() { # the C library's headers are a package of their own
    printf '#include <stdio.h>\nint main(void) { return 0; }\n' | cc -x c -o /dev/null - 2>/dev/null
}

# One package per line; nothing when all is there. With "mysql": also what provide_mysql needs.
missing_packages() { # [mysql]
    local python program
    if [ "${1:-}" = mysql ] && [ ! -x "$(mysql_folder)/mysqld" ]; then
        command -v debootstrap >/dev/null || echo debootstrap
        command -v gpgv >/dev/null || echo gpgv
        [ -e "$DEBIAN_KEYRING" ] || echo debian-archive-keyring
        command -v flock >/dev/null || echo util-linux
    fi
    if ! command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
        echo mariadb-server
    fi
    command -v etcd >/dev/null || echo etcd-server
    [ "$(java_major)" -ge 17 ] || echo openjdk-17-jre-headless
    c_compiler_works || printf '%s\n' gcc libc6-dev
    # Programs that only the caller wants, each in a package of its own name, or as program=package.
    for program in ${ALSO_NEEDED:-}; do
        command -v "${program%%=*}" >/dev/null || echo "${program##*=}"
    done
    python=$(pick_python)
    if [ -z "$python" ]; then
        printf '%s\n' python3 python3-venv python3-dev
    elif ! python_can_build "$python"; then
        printf '%s\n' python3-venv python3-dev
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Install what is missing. No service is started: the servers that are wanted are started by the programs
# that use them, on ports and directories of their own.
install_packages() { # [mysql]
    local missing policy=/usr/sbin/policy-rc.d left
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        say "These are missing and this system has no apt-get; install their like: ${missing[*]}"
        return 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; then
        say "These packages are missing: run 'apt-get install ${missing[*]}' as root, then try again."
        return 1
    fi
    say "installing ${missing[*]}"
    as_root apt-get update -qq || return 1
    if [[ " ${missing[*]} " == *" openjdk-17-jre-headless "* ]] &&
        ! apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
        missing=("${missing[@]/#openjdk-17-jre-headless/default-jre-headless}")
    fi
    (
        if [ ! -e "$policy" ]; then
            trap 'as_root rm -f "$policy"' EXIT
            trap 'exit 1' INT TERM
            printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy"
        fi
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
    ) || return 1
    hash -r
    mapfile -t left < <(missing_packages "$@")
    if [ ${#left[@]} -ne 0 ]; then
        say "still missing after installing: ${left[*]}"
        return 1
    fi
}

# ---------------------------------------------------------------------------- MySQL for the tests

# Debian's stable releases have MariaDB only; its development suite has MySQL. Its packages are fetched with
# their signatures checked and unpacked into one folder, nothing of them is installed or configured:
# `mysqld` there starts with the C library it was built for, by that library's own loader. So no
# chroot and, with debootstrap in place, no root is needed.

DEBIAN_MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

mysql_folder() { # where it is or will be; the number is that of the recipe below
    echo "${SHARDMERGE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/shardmerge}/mysql-sid-1"
}

# Prints the folder with an executable `mysqld` in it (which takes only further options); makes it if
# need be, in a minute or so. A second caller waits for the first.
provide_mysql() {
    local folder
    folder=$(mysql_folder)
    if [ ! -x "$folder/mysqld" ]; then
        mkdir -p "${folder%/*}" || return 1
        (
            flock 9 || exit 1
            [ -x "$folder/mysqld" ] || make_mysql "$folder" >&2
        ) 9>"$folder.lock" || return 1
    fi
    echo "$folder"
}

make_mysql() { # <folder>
    local folder=$1 scratch
    say "fetching MySQL into $folder (about a minute, once)"
    rm -rf "$folder".?????? # of one that was killed; no other process is here
    scratch=$(mktemp -d "$folder.XXXXXX") || return 1
    (
        trap 'rm -rf "$scratch"' EXIT
        trap 'exit 1' INT TERM
        fetch_mysql "$scratch/fetched" && unpack_mysql "$scratch/fetched" "$scratch/unpacked" || exit 1
        # A folder without mysqld is the rest of something else.
        rm -rf "$folder" && mv "$scratch/unpacked" "$folder"
    )
}

fetch_mysql() { # <folder> [suite] [package]: packages into <folder>/var/cache/apt/archives
    local attempt
    for attempt in 1 2 3; do
        # What an attempt has fetched, the next one does not fetch again.
        debootstrap --force-check-gpg --keyring="$DEBIAN_KEYRING" --download-only --variant=minbase \
            --include="${3:-mysql-server-core}" "${2:-sid}" "$1" "$DEBIAN_MIRROR" >"$1.log" 2>&1 && return 0
        say "debootstrap failed (attempt $attempt): $(grep '^[EW]:' "$1.log" | tail -n 3)"
    done
    return 1
}

unpack_mysql() { # <folder of fetch_mysql> <folder> [package] [program]
    local package loader libraries
    mkdir -p "$2" || return 1
    for package in "$1"/var/cache/apt/archives/{lib,zlib,"${3:-mysql-server-core}"}*.deb; do
        dpkg-deb --extract "$package" "$2" || return 1
    done
    rm -rf "$2"/usr/share/{doc,man,perl}
    loader=$(find "$2/usr/lib" -name 'ld-linux*.so.*' -type f -print -quit)
    [ -n "$loader" ] || { say "the packages have no loader of shared libraries"; return 1; }
    loader=${loader#"$2"/}
    libraries=${loader%/*}
    cat >"$2/mysqld" <<END || return 1
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/$loader" --library-path "\$here/$libraries" "\$here/usr/sbin/${4:-mysqld}" --no-defaults --basedir="\$here/usr" "\$@"
END
    chmod 755 "$2/mysqld"
    "$2/mysqld" --version || { say "the unpacked mysqld does not start"; return 1; }
}

# ---------------------------------------------------------------------------- virtual environment

compiled_modules() { # <root>: paths of the modules that setup.py compiles
    grep -rl --include='*.py' '^# cython: language_level=3' "$1/worker" | sort
}

# What an installed environment depends on. The install is editable, so plain Python sources are not
# part of it; generated stubs and the compiled decoder are.
build_stamp() { # <root> <python> <extras>
    {
        "$2" -c 'import sys; print(sys.version, sys.base_prefix)'
        echo "$1 $3"
        cd "$1" && sha256sum pyproject.toml setup.py proto/*.proto
        compiled_modules "$1" | sed 's/\.py$/.*/' | while read -r files; do
            # With its .pxd, without what was compiled from it.
            # shellcheck disable=SC2086
            sha256sum $files | grep -v '\.so$'
        done
    } | sha256sum | cut -d ' ' -f 1
}

built_files_exist() { # <root> <python>
    local root=$1 python=$2 proto module suffix
    for proto in "$root"/proto/*.proto; do
        [ -e "${proto%.proto}_pb2.py" ] && [ -e "${proto%.proto}_pb2_grpc.py" ] || return 1
    done
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    compiled_modules "$root" | while read -r module; do
        [ -e "${module%.py}$suffix" ] || exit 1
    done
}

# A virtual environment with the project installed in place. Quick when nothing changed.
make_venv() { # <root> <venv> <extras, e.g. "[dev]" or "">
    local root=$1 venv=$2 extras=$3 stamp
    if [ -e "$venv" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
        say "$venv is not a working virtual environment: remove it and try again"
        return 1
    fi
    if [ ! -e "$venv" ]; then
        say "making $venv"
        "$(pick_python)" -m venv "$venv" || return 1
    fi
    stamp=$(build_stamp "$root" "$venv/bin/python" "$extras") || return 1
    if [ "$(cat "$venv/.shardmerge-stamp" 2>/dev/null)" = "$stamp" ] &&
        built_files_exist "$root" "$venv/bin/python"; then
        return 0
    fi
    say "installing shardmerge$extras into $venv (some minutes the first time)"
    rm -f "$venv/.shardmerge-stamp"
    # A background command ignores SIGINT without this.
    env --default-signal=INT,QUIT "$venv/bin/python" -m pip install --verbose --progress-bar off --disable-pip-version-check \
        --editable "$root$extras" >"$venv/install.log" 2>&1 &
    wait_with_steps $! "$venv/install.log" || { tail -n 40 "$venv/install.log" >&2; return 1; }
    echo "$stamp" >"$venv/.shardmerge-stamp"
}

# Wait for pip; print each step of its log once, with the seconds since the start.
wait_with_steps() { # <process id> <log>: the exit code of the process
    local start=$SECONDS shown=0 lines
    while :; do
        # Before the log is read: what a process that has ended has written is in it.
        kill -0 "$1" 2>/dev/null
        local alive=$?
        lines=$(pip_steps <"$2" | tail -n "+$((shown + 1))")
        while IFS= read -r line; do
            [ -n "$line" ] || continue
            shown=$((shown + 1))
            say "$(printf '%5d s  %s' $((SECONDS - start)) "$line")"
        done <<<"$lines"
        [ $alive -eq 0 ] || break
        sleep 0.5
    done
    wait "$1"
}

pip_steps() { # pip's verbose log on stdin: the lines that a person waits by
    sed -nE \
        -e 's/^ *Collecting ([^ ]+).*/package \1/p' \
        -e 's/^ *Downloading .*\(([0-9.]+ [MG]B)\)$/  download of \1/p' \
        -e 's/^ *Running command (Checking|Getting|Preparing|Building|pip subprocess)(.*)/\1\2/p' \
        -e 's/^ *(\[ *[0-9]+\/[0-9]+\] )Cythonizing (.*)/\1translate \2/p' \
        -e "s/^ *building '(.*)' extension/compile \\1/p" \
        -e 's/^ *Installing collected packages: (.*)/install \1/p' | cut -c 1-120
}

# ---------------------------------------------------------------------------- processes by mark

# Children inherit the environment, also those that leave the process group or outlive their parent
# (a JVM, Spark's Python workers). /proc shows it as it was at exec, so that the shell that exported
# the mark is not found by it.
marked_processes() { # <NAME=value>: a process id per line
    local file
    # The search itself must not be found.
    env -u "${1%%=*}" grep --null-data --files-with-matches --line-regexp --fixed-strings --no-messages -- \
        "$1" /proc/[0-9]*/environ | while IFS= read -r file; do
        file=${file#/proc/}
        echo "${file%/environ}"
    done
}

is_marked() { # <NAME=value> <process id>: it runs and has the mark, so the id was not given anew
    grep -qzxFs -- "$1" "/proc/$2/environ"
}

describe_processes() { # process ids on stdin: one line each
    local pid
    while read -r pid; do
        printf '  %s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-160)"
    done
}

wait_until_gone() { # <NAME=value> <seconds>
    local deadline=$((SECONDS + $2))
    while [ -n "$(marked_processes "$1")" ]; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}

end_marked() { # <NAME=value>: TERM, then KILL for who is left after 15 s
    local pids
    mapfile -t pids < <(marked_processes "$1")
    [ ${#pids[@]} -eq 0 ] && return 0
    # A stopped process does not see TERM before it continues.
    kill -CONT "${pids[@]}" 2>/dev/null
    kill -TERM "${pids[@]}" 2>/dev/null
    wait_until_gone "$1" 15 && return 0
    mapfile -t pids < <(marked_processes "$1")
    [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
    wait_until_gone "$1" 10
}
