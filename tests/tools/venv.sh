#!/bin/bash
# venv.sh DIR [FILE]: a virtual environment with the packages pinned in FILE (requirements-dev.txt), from Python 3.11 to 3.13 of this machine.
set -euo pipefail
dir=$1
requirements=${2:-requirements-dev.txt}
need() { # PACKAGE...: install what is missing, and say so
    local missing=()
    for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
    [ ${#missing[@]} = 0 ] && return
    echo "installing system packages: ${missing[*]}"
    local root=""
    [ "$(id -u)" = 0 ] || root=sudo
    $root apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive $root apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}
usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; }
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if usable "$candidate"; then echo "$candidate"; return; fi
    done
}
python=$(find_python)
if [ -z "$python" ]; then
    command -v apt-get >/dev/null || { echo "no Python 3.11, 3.12 or 3.13 with venv here; install one or set PYTHON" >&2; exit 1; }
    need python3 python3-venv
    python=$(find_python)
    [ -n "$python" ] || { echo "python3 of this system is $(python3 --version); expected 3.11 to 3.13; set PYTHON" >&2; exit 1; }
fi
echo "setting up $dir with $("$python" --version) and the packages of $requirements: one to three minutes"
if ! { [ -x "$dir/bin/python" ] && usable "$dir/bin/python"; }; then "$python" -m venv --clear "$dir"; fi
# Unpacking them takes pip a minute in which it prints nothing.
. "$(dirname "$0")/beat.sh"
# Of what pip prints, a line for each package that it fetches, and its last words where it fails.
"$dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off -r "$requirements" 2>&1 |
    awk '/^Collecting/ { print "  fetching " $2; next } /^Installing collected/ { print "  installing them"; next } /^(ERROR|error|WARNING)/ { print }
        { fflush() }'
echo "$dir is ready"
