# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of rules in docs/verdicts.md lead to code, reason codes, tests and details that exist."""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import re

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
LONGEST_ROW = 200


def table(heading: str) -> dict[str, list[list[str]]]:
    """Return {name: rows of its other cells} of the table under a heading; a row without a name goes on with the one before it."""
    found: dict[str, list[list[str]]] = {}
    last: list[list[str]] = []
    for line in PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines():
        if line.startswith("| ") and not line.startswith("| name |"):
            name, *cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
            assert name.strip("`") not in found, f"{name} twice"
            last = found.setdefault(name.strip("`"), []) if name else last
            last.append(cells)
    return found


@dataclasses.dataclass(frozen=True)
class Rule:
    name: str
    verdicts: str
    codes: str
    details: str
    places: str
    tests: list[str]

    @property
    def files(self) -> dict[str, list[str]]:
        """Return {file: names in it} of the column "in": a file, then what to look for in it, and perhaps more files."""
        named: dict[str, list[str]] = {}
        for word in re.findall(r"`([^`]+)`", self.places):
            if word.endswith(".py"):
                file, named[word] = word, []
            else:
                named[file].append(word)
        return named

    @property
    def reasons(self) -> list[str]:
        return re.findall(r"`(\w+)`", self.codes)


def rules() -> list[Rule]:
    places, found = table("Where a rule is"), []
    for name, rows in table("The rules").items():
        _rule, verdicts, codes, details = zip(*rows, strict=True)
        where, tests = zip(*places.pop(name), strict=True)
        named = re.findall(r"`([^`]+)`", " ".join(tests))
        found.append(Rule(name, " ".join(verdicts), " ".join(codes), "".join(details), " ".join(where), named))
    assert not places, "places of no rule"
    return found


RULES = rules()


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def text_of(file: str) -> str:
    paths = [ROOT / "plugins" / package / file for package in ("plugin_utils", "module_utils")]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())


@functools.cache
def definitions(path: pathlib.Path) -> dict[str, ast.stmt]:
    """Return {name: its definition, or the import of it} of what stands directly in a file."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found.update({each.id: node for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)})
        elif isinstance(node, ast.ImportFrom):
            found.update({each.asname or each.name: node for each in node.names})
    return found


def words_of(path: pathlib.Path, name: str, done: set[tuple[pathlib.Path, str]] | None = None) -> set[str]:
    """Return the words of the texts in a test and in what it uses of its file and of other files of the tests, and the modules, as NAME.py,
    that these use."""
    done = set() if done is None else done
    node = definitions(path).get(name)
    if node is None or (path, name) in done:
        return set()
    done.add((path, name))
    if isinstance(node, ast.ImportFrom):
        (original,) = [each.name for each in node.names if (each.asname or each.name) == name]
        file = ROOT / "tests" / f"{str(node.module).replace('.', '/')}.py"
        return {f"{file.stem}.py", f"{original}.py"} | (words_of(file, original, done) if file.is_file() else set())
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.update(re.findall(r"\w+", each.value))
        used = getattr(each, "id", None) or getattr(each, "arg", None)  # a name, or a fixture
        found |= words_of(path, used, done) if used else set()
    return found


def test_the_tables_are_read_whole() -> None:
    assert len(RULES) >= 100
    assert not [line for page in ("verdicts.md", "rules.md") for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
                if line.startswith("|") and len(line) > LONGEST_ROW]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_names_code_that_exists(rule: Rule) -> None:
    assert set(re.findall(r"[A-Z_]{4,}", rule.verdicts)) <= {*bands.SEVERITY, "PARTIAL"}
    assert not set(rule.reasons) - set(reasons.ALL)
    assert rule.files
    for file, names in rule.files.items():
        assert names and text_of(file), file
        assert all(re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", text_of(file), re.M) for name in names), names
    (link,) = re.findall(r"\]\(([^)]+)\)", rule.details)
    page, _hash, anchor = link.partition("#")
    assert not anchor or anchor in anchors(page)


@pytest.mark.parametrize("rule", [rule for rule in RULES if "..." not in rule.codes], ids=lambda rule: rule.name)
def test_the_codes_of_a_rule_are_where_it_leads(rule: Rule) -> None:
    """Whoever has a reason code and no sentence finds the rule by looking for the code in the named files."""
    text = "".join(map(text_of, rule.files))
    assert not [code for code in rule.reasons if f'"{code}"' not in text]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_test_of_a_rule_exists_and_one_names_its_reason_code(rule: Rule) -> None:
    """Each uses a module of the rule or expects one of its reason codes; one of them expects a reason code, if the rule has any."""
    named = []
    for test in rule.tests:
        file, _colons, name = test.partition("::")
        (path,) = (ROOT / "tests/unit").rglob(file)
        assert name.startswith("test_") and name in definitions(path), test
        named.append(words_of(path, name))
    modules = {pathlib.PurePath(file).name for file in rule.files}
    assert all(words & {*rule.reasons, *modules} for words in named), f"a test has nothing of {[*rule.reasons, *modules]}"
    assert named and (not rule.reasons or any(words & set(rule.reasons) for words in named)), f"no test names one of {rule.reasons}"


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_to_headings_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    links = [link.partition("#") for link in re.findall(r"\]\(([\w.]*#[^)\s]+)\)", text)]
    assert not [f"{name}#{anchor}" for name, _hash, anchor in links if anchor not in anchors(name or page)]
