# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the pages name of this repository is there: files, folders, modules of the rooms, playbooks, links."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "files").rglob("*.md"), *(ROOT / "tests").rglob("README.md")])
TOP = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"results"}
PLUGINS = {path.name for path in (ROOT / "plugins").iterdir()}
# Files of a stage's role, wherever it lies; and what the classes and programs are called that stand among the modules.
OF_A_ROLE = {"files/stage.py", "meta/argument_specs.yml"}
NO_MODULES = {"base.Accelerator", "base.Plane", "base.Sink", "base.Stage", "mpirun"}


def there(base: pathlib.Path, name: str) -> bool:
    return any(base.glob(name)) or any(base.glob(f"{name}.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_links_lead_somewhere(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    said = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)  # a stage of one's own lies elsewhere
    named = [name.split("::")[0] for name in re.findall(r"`([\w.*-]+/[\w./*<>-]*)`", said)]
    named = [re.sub(r"\.[A-Z]\w*$", "", name) for name in named if name.split("/")[0] in TOP | PLUGINS and name not in OF_A_ROLE]
    ours = [re.sub(r"<\w+>", "*", name).rstrip("/") for name in named]
    missing = [name for name in ours if not there(ROOT, name) and not there(ROOT / "plugins", name) and not there(page.parent, name)]
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", said) if "://" not in link]
    missing += [link for link in links if link and not (page.parent / link).exists()]
    missing += [name for name in re.findall(r"\bplaybooks/\w+\.yml", text) if not (ROOT / name).exists()]
    missing += [name for name in re.findall(r"\bmake ([a-z][a-z-]+)\b(?=[`\s]*(?:#|`|$|[A-Z]+=))", text) if f"\n{name}: " not in makefile()]
    assert not missing, f"{page.relative_to(ROOT)} names {missing}"


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_rooms_of_the_architecture_hold_the_modules_that_it_names() -> None:
    table = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## Where things are")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    for first, *rest in rows:
        folders = [name.rstrip("/") for name in re.findall(r"`([^`]+)`", first)]
        halves = (ROOT / "plugins/plugin_utils", ROOT / "plugins/module_utils")
        bases = [base / name for name in folders for base in (ROOT, ROOT / "plugins", *halves)]
        places = [*bases, ROOT, ROOT / "plugins", ROOT / "plugins/module_utils", ROOT / "plugins/plugin_utils"]
        for name in folders:
            assert any(there(base, re.sub(r"<\w+>", "*", name)) for base in places), f"{name} of {first}"
        for name in set(re.findall(r"`([\w./]+)`", " ".join(rest))) - NO_MODULES:
            found = any(there(place, f"{depth}{name.rstrip('/')}") for place in places for depth in ("", "*/", "*/*/"))
            assert found, f"{name}, named at {first}"


def test_every_room_and_folder_stands_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = [path for path in (ROOT / "plugins/plugin_utils").iterdir() if path.suffix in ("", ".py") and not path.name.startswith("_")]
    assert not [path.name for path in rooms if not re.search(rf"`{re.escape(path.name)}[`/]", text)]
