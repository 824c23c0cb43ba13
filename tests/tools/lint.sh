#!/bin/bash
# All linters over the checkout; the collection is reached through its git-ignored link.
set -euo pipefail
cd "$(dirname "$0")/../.."
python -m ruff check .
python -m yamllint -s .
python -m mypy plugins/module_utils plugins/plugin_utils
antsibull-changelog lint
shell_files=$(git ls-files | grep -vE '\.py$|/nodes/' | xargs grep -lE '^#!/bin/(ba)?sh' || true)
# shellcheck disable=SC2086
shellcheck -x -S warning $shell_files
python tests/tools/check_specs.py
python tests/tools/lint_expectations.py
ANSIBLE_COLLECTIONS_PATH=.collections ansible-lint --offline --profile production
