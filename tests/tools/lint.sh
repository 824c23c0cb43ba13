#!/bin/bash
# All linters over the checkout; the collection is reached through its git-ignored link.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/tools/beat.sh
step() { echo "lint: $1"; "${@:2}"; }
step ruff python -m ruff check .
step yamllint python -m yamllint -s .
step mypy python -m mypy plugins/module_utils plugins/plugin_utils
step antsibull-changelog antsibull-changelog lint
shell_files=$(git ls-files | grep -vE '\.py$|/nodes/' | xargs grep -slE '^#!/bin/(ba)?sh' || true)
# shellcheck disable=SC2086
step shellcheck shellcheck -x -S warning $shell_files
step "argument specs" python tests/tools/check_specs.py
step expectations python tests/tools/lint_expectations.py
export ANSIBLE_COLLECTIONS_PATH=.collections
step ansible-lint ansible-lint --offline --profile production
