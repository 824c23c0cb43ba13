# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SECURITY.md names every lease that may be taken on a machine, and every right beyond reading that a manifest asks for."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
READING = {"get", "list", "watch"}
MANIFESTS = sorted([*(ROOT / "files/rbac").glob("*.yaml"), ROOT / "files/console/rbac.yaml", ROOT / "files/console/reviews.yaml"])


def rights(path: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    """Yield (resource, verb) for each right of a manifest that is more than reading."""
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        for rule in (document or {}).get("rules", ()):
            yield from ((resource, verb) for resource in rule["resources"] for verb in set(rule["verbs"]) - READING)


def named(path: pathlib.Path, resource: str, verb: str) -> bool:
    """Return True if a row of the page has the resource, the verb and the manifest."""
    main, _slash, part = resource.partition("/")
    for row in re.findall(r"^\| .*\|$", PAGE, re.M):
        right, _bar, files = row.strip("| ").partition(" | ")
        is_file = path.name in files or ("group-*.yaml" in files and path.name.startswith("group-"))
        word = f"`{resource}`" in row or (part and f"`{main}`" in right and f"`{part}`" in right) or f"`{main}`" in row
        if is_file and word and re.search(rf"\b{verb}\b", right):
            return True
    return False


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_each_right_to_change_something_is_on_the_page(path: pathlib.Path) -> None:
    assert [right for right in rights(path) if not named(path, *right)] == []


def test_no_manifest_asks_for_everything_or_to_change_rights() -> None:
    for path in MANIFESTS:
        asked = list(rights(path))
        assert not [right for right in asked if "*" in right or right[1] in ("bind", "escalate", "impersonate")], path.name
        assert not [right for right in asked if right[0] in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")], path.name


def test_each_lease_is_on_the_page() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "plugins/module_utils").rglob("*.py")]
    leases = {kind for source in sources for kind in re.findall(r'LEASES\["(\w+)"\]|\.record\(\s*"(\w+)"', source) for kind in kind if kind}
    assert leases >= {"governor", "container", "member", "process"}
    assert sorted(lease for lease in leases if f"`{lease}`" not in PAGE) == []
