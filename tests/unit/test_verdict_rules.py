# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of rules in docs/verdicts.md leads to code, reason codes and details that exist."""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
RULES = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.partition("## The rules")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| rule |")
]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_table_is_read_whole() -> None:
    assert len(RULES) >= 35 and {len(row) for row in RULES} == {5}


def places(cell: str) -> dict[str, list[str]]:
    """Return {file: names in it} of the column "in": a file, then what to look for in it, and perhaps more files."""
    named: dict[str, list[str]] = {}
    for word in re.findall(r"`([^`]+)`", cell):
        if word.endswith(".py"):
            file, named[word] = word, []
        else:
            named[file].append(word)
    return named


def text_of(file: str) -> str:
    paths = [ROOT / "plugins" / package / file for package in ("plugin_utils", "module_utils")]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())


@pytest.mark.parametrize("row", RULES, ids=lambda row: row[0][:40])
def test_a_rule_names_code_that_exists(row: list[str]) -> None:
    _rule, verdicts, codes, place, details = row
    assert set(re.findall(r"[A-Z_]{4,}", verdicts)) <= {*bands.SEVERITY, "PARTIAL"}
    assert not set(re.findall(r"`(\w+)`", codes)) - set(reasons.ALL)
    assert places(place)
    for file, names in places(place).items():
        assert names and text_of(file), file
        assert all(re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", text_of(file), re.M) for name in names), names
    (link,) = re.findall(r"\]\(([^)]+)\)", details)
    page, _hash, anchor = link.partition("#")
    assert not anchor or anchor in anchors(page)


@pytest.mark.parametrize("row", [row for row in RULES if "..." not in row[2]], ids=lambda row: row[0][:40])
def test_the_codes_of_a_rule_are_where_it_leads(row: list[str]) -> None:
    """Whoever has a reason code and no sentence finds the rule by looking for the code in the named files."""
    text = "".join(map(text_of, places(row[3])))
    assert not [code for code in re.findall(r"`(\w+)`", row[2]) if f'"{code}"' not in text]


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_to_headings_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    links = [link.partition("#") for link in re.findall(r"\]\(([\w.]*#[^)\s]+)\)", text)]
    assert not [f"{name}#{anchor}" for name, _hash, anchor in links if anchor not in anchors(name or page)]
