#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation site: the pages of docs/, a page for each module, filter and role, the changelog, and pictures of the report and
the console over the simulated fleet. A warning of Sphinx or a broken internal link fails the build.

    python tests/tools/docs.py --tools .cache/docs/venv/bin FOLDER [--no-pictures]

The site is FOLDER/html/index.html; the rest of FOLDER is kept for the next build.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = pathlib.Path(__file__).resolve().parent / "site"
sys.path.insert(0, str(ROOT / "tests"))

from harness import site_links  # noqa: E402
from rigs import browser, common  # noqa: E402

# The pages of docs/ in the order of the menu. Those that are not here come last.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Use": ("docs/first_nodes", "docs/first_cluster", "docs/using", "docs/what_it_finds", "docs/hardware", "docs/verdicts", "docs/rules",
            "docs/history", "docs/console",
            "docs/handover", "docs/quarantine", "docs/observability", "docs/kubernetes", "docs/slurm", "docs/nvl72", "docs/amd",
            "docs/launchers", "docs/awx", "docs/eda", "docs/execution_environment", "docs/sinks",
            "docs/xids"),
    "Stages": ("docs/host_health", "docs/gpu_memory", "docs/nic_loopback", "docs/soak", "docs/dcgm", "docs/storage", "docs/fabric_map",
               "docs/rdma", "docs/fabric", "docs/ddp", "docs/hccl", "docs/gpu_sharing"),
    "Extend": ("docs/stages", "docs/planes", "docs/vendors", "docs/architecture", "docs/glossary", "CONTRIBUTING", "tests/README"),
    "Release": ("docs/versions", "docs/release", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT"),
}  # fmt: skip
REFERENCE = "Reference"
# The pictures of the page docs/pictures: what they show.
PICTURES = {
    "report": "The report of a run of the simulated fleet: what was decided, and one sentence for each cause.",
    "fleet": "The console's first page: the fleet as a heat map of nodes by stages.",
    "start": "The form that starts a measurement, with the command that will run.",
    "run": "A run, by node and stage.",
    "result": "A result, with a card for each cause.",
    "node": "A node, with its runs, parts and facts.",
    "history": "The history of a node.",
    "compare": "What changed between two runs.",
}
# References of antsibull-docs to pages of Ansible's own documentation.
ELSEWHERE = re.compile(r":ref:`([^<`]+) <(?:common_return_values|action_plugins)>`")
# The theme shows the contents of each page beside it.
CONTENTS = re.compile(r"^\.\. contents::.*\n(?:[ ]+:.*\n)*", re.M)
# A variable of a role, and where a page of a role has one.
OPTION = re.compile(r":ansopt:`gpufleet\.acceptance\.([\w\\]+)#role:main:([^`=]+)`")
PLACE = re.compile(r"_ansible_collections\.gpufleet\.acceptance\.(\w+)_role__parameter-main__([\w/]+):")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")


def pages() -> list[pathlib.Path]:
    """Return the files of the checkout that become pages, relative to it."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "files").rglob("*.md")]
    return sorted(path.relative_to(ROOT) for path in (*found, ROOT / "CHANGELOG.rst", ROOT / "tests/README.md"))


def page_text(page: pathlib.Path, known: t.Collection[pathlib.Path]) -> tuple[str, list[pathlib.Path]]:
    """Return the text of a Markdown page for the site, and the files that it links to and that are no pages.

    README.md is the front page, and a link to a folder leads to its README.md.
    """
    files = []

    def link(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = pathlib.Path(os.path.relpath((ROOT / page).parent.joinpath(target).resolve(), ROOT))
        if (ROOT / path).is_dir():
            path = path / "README.md"
        if path not in known and (ROOT / path).is_file():
            files.append(path)
        if path == pathlib.Path("README.md"):
            path = pathlib.Path("index.md")
        return f"{found[1]}{os.path.relpath(path, page.parent)}{found[3] or ''})"

    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    text = "".join(block if block.startswith("```") else LINK.sub(link, block) for block in blocks)
    return text, files


def menu(known: t.Collection[pathlib.Path], pictures: bool) -> str:
    """Return the menu as tables of contents that the front page has and does not show."""
    chapters = {name: list(entries) for name, entries in CHAPTERS.items()}
    named = {entry for entries in chapters.values() for entry in entries} | {"README"}
    chapters["Use"] += sorted(name for path in known if (name := path.with_suffix("").as_posix()) not in named and path.parts[0] == "docs")
    if pictures:
        chapters["Use"].insert(chapters["Use"].index("docs/using") + 1, "docs/pictures")
    chapters["Use"] += sorted(path.with_suffix("").as_posix() for path in known if path.parts[0] == "files")
    chapters[REFERENCE] = ["reference/index"]
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n" + "\n".join(entries) + "\n```\n" for name, entries in chapters.items()
    )


def write_source(source: pathlib.Path, pictures: bool) -> None:
    """Write the pages of the checkout as Sphinx takes them."""
    known = pages()
    for page in known:
        name = pathlib.Path("index.md") if page == pathlib.Path("README.md") else page
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text, files = page_text(page, known)
            target.write_text(text + (menu(known, pictures) if name.stem == "index" else ""), encoding="utf-8")
            for file in files:
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / file, source / file)
        else:
            target.write_text(CONTENTS.sub("", (ROOT / page).read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copyfile(SITE / "conf.py", source / "conf.py")
    (source / "_static").mkdir(exist_ok=True)
    shutil.copyfile(SITE / "site.css", source / "_static/site.css")


def write_reference(source: pathlib.Path, tools: pathlib.Path) -> None:
    """Write a page for each module, filter, lookup and role, by antsibull-docs."""
    folder = source / "reference"
    folder.mkdir()
    command = [tools / "antsibull-docs", "collection", "--use-current", "--fail-on-error", "--squash-hierarchy", "--dest-dir", folder]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    subprocess.run([*map(str, command), "gpufleet.acceptance"], check=True, env=environment)
    (folder / "environment_variables.rst").unlink()  # of plugins' own settings, of which there are none
    texts = {page: CONTENTS.sub("", ELSEWHERE.sub(r"\1", page.read_text(encoding="utf-8"))) for page in folder.glob("*.rst")}
    places: dict[str, list[str]] = {}
    for text in texts.values():
        for role, name in PLACE.findall(text):
            places.setdefault(name, []).append(role)
    for page, text in texts.items():
        page.write_text(OPTION.sub(lambda found: option(found, places), text), encoding="utf-8")
    index = folder / "index.rst"
    title = "Modules, filters and roles"
    lines = index.read_text(encoding="utf-8").replace(f"Gpufleet.Acceptance\n{'=' * 19}", f"{title}\n{'=' * len(title)}")
    entries = sorted(path.stem for path in folder.glob("*.rst") if path.stem != "index")
    index.write_text(lines + "\n.. toctree::\n    :hidden:\n\n" + "".join(f"    {entry}\n" for entry in entries), encoding="utf-8")


def option(found: re.Match[str], places: t.Mapping[str, t.Sequence[str]]) -> str:
    """Return a reference to a variable of a role: to the role that has it, if the role that names it does not, and as plain text if none
    documents it."""
    roles = places.get(found[2].replace("\\", "").replace("[]", "").replace(".", "/"), ())
    if found[1].replace("\\", "") in roles:
        return found[0]
    return f":ansopt:`gpufleet.acceptance.{roles[0]}#role:main:{found[2]}`" if roles else f":literal:`{found[2]}`"


def write_pictures(source: pathlib.Path, results: pathlib.Path) -> None:
    """Write pictures of report and console, and the page that shows them."""
    if os.geteuid() == 0:
        common.need_packages(browser.PACKAGES)
    command = [sys.executable, ROOT / "tests/tools/screenshots.py", source / "pictures", "--results-dir", results, "--looks", "light"]
    subprocess.run(list(map(str, command)), check=True)
    shown = [f"## {name.capitalize()}\n\n{words}\n\n![{words}](../pictures/{name}-light.png)\n" for name, words in PICTURES.items()]
    head = "# Pictures\n\nMade with this version from the simulated fleet of `make demo`; every page says that it is simulated.\n\n"
    (source / "docs/pictures.md").write_text(head + "\n".join(shown), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="of the build; made if it does not exist")
    parser.add_argument("--tools", type=pathlib.Path, required=True, help="folder of antsibull-docs and sphinx-build")
    parser.add_argument("--no-pictures", action="store_true", help="without a browser")
    arguments = parser.parse_args()
    folder, tools = arguments.folder.absolute(), arguments.tools.absolute()
    source, html = folder / "source", folder / "html"
    for old in (source, html):
        shutil.rmtree(old, ignore_errors=True)
    source.mkdir(parents=True)
    write_source(source, not arguments.no_pictures)
    write_reference(source, tools)
    if not arguments.no_pictures:
        write_pictures(source, folder / "results")
    version = re.search(r"^version: (\S+)", (ROOT / "galaxy.yml").read_text(encoding="utf-8"), re.M)
    assert version
    command = [tools / "sphinx-build", "-q", "-W", "--keep-going", "-n", "-b", "html", source, html]
    done = subprocess.run(list(map(str, command)), check=False, env={**os.environ, "SITE_VERSION": version[1]})
    broken = site_links.broken(html)
    for line in broken:
        print(line, file=sys.stderr)
    if done.returncode or broken:
        print(f"the site has {len(broken)} broken links; Sphinx ended with status {done.returncode}", file=sys.stderr)
        return 1
    print(f"{len(list(html.rglob('*.html')))} pages, no broken link: {html / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
