#!/bin/bash
# shared_venv.sh LINK REQUIREMENTS: a virtual environment that all checkouts with the same pins share, in the cache of the rigs; LINK leads there.
set -euo pipefail
link=$1
requirements=$2
cache=${GPUFLEET_RIG_CACHE:-$HOME/.cache/gpufleet-acceptance/rigs}/venvs
dir=$cache/$(basename "$requirements" .txt)-$(sha256sum "$requirements" | cut -c1-12)
mkdir -p "$cache" "$(dirname "$link")"
exec 9>"$dir.lock"
flock 9
[ -e "$dir/.stamp" ] || "$(dirname "$0")/venv.sh" "$dir" "$requirements"
touch "$dir/.stamp"
if [ -e "$link" ] && ! [ -L "$link" ]; then rm -rf "$link"; fi
ln -sfn "$dir" "$link"
