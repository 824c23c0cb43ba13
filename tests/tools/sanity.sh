#!/bin/bash
# ansible-test sanity on a copy of what is shipped: it resolves links, and refuses a checkout reached through one. Rigs, drills and tools of
# the tests are not shipped (galaxy.yml) and have linters of their own (lint.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
target=$copy/ansible_collections/gpufleet/acceptance
mkdir -p "$target"
git ls-files -z --cached --others --exclude-standard -- . ":!tests" ":!inventories/demo" ":!inventories/demo_rack" ":!.ci" ":!.github" ":!.pre-commit-config.yaml" | tar --null -c -T - | tar -x -C "$target"
# ansible-test fetches pip's bootstrap script from the network; the one that comes with Python does the same.
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
for name in get_pip_24_2.py get_pip_25_0_1.py get_pip_25_2.py; do
    [ -e "$cache/$name" ] || cat >"$cache/$name" <<'P'
import runpy, subprocess, sys
subprocess.run([sys.executable, "-m", "ensurepip", "--default-pip"], check=True)
sys.argv = ["pip", "install", "--disable-pip-version-check", *[a for a in sys.argv[1:] if a.startswith("-") or "=" in a]]
sys.exit(0)
P
done
cd "$target"
git init -q . && git add -A && git -c user.name=sanity -c user.email=sanity@localhost commit -qm copy
ansible-test sanity --python "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" "$@"
