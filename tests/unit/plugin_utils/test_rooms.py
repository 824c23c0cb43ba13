# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Imports between packages: a package imports only those below it, no module itself in a circle, wherever in the file the import stands."""

from __future__ import annotations

import ast
import collections
import functools
import graphlib
import pathlib
import re

import pytest

PLUGINS = pathlib.Path(__file__).resolve().parents[3] / "plugins"
PACKAGE = "ansible_collections.gpufleet.acceptance.plugins."
# What any module may import, and the old places of what stages of a team's own import.
EVERYBODYS = {"plugin_utils.collection", "plugin_utils.compiled", "plugin_utils.syntax"}
OLD_PLACES = {f"module_utils.{name}" for name in ("group", "launching", "membership", "node", "observation", "plain_data", "reasons")}


def stated(text: str) -> dict[str, dict[str, set[str]]]:
    """Return {half: {package: the packages that it may import}}, in their order, as docs/architecture.md states them."""
    section = text.partition("## The packages\n")[2].partition("\n## ")[0]
    halves: dict[str, dict[str, set[str]]] = {}
    for line in section.splitlines():
        half = re.search(r"`plugins/(plugin_utils|module_utils)`, ", line)
        if half:
            rows = halves.setdefault(half.group(1), {})
        row = re.fullmatch(r"\| (`.*`) \| (.*) \|", line)
        if row:
            rows.update({name: set(re.findall(r"`(\w+)`", row.group(2))) for name in re.findall(r"`(\w+)`", row.group(1))})
    return halves


STATED = stated((PLUGINS.parent / "docs" / "architecture.md").read_text(encoding="utf-8"))


def modules() -> dict[str, pathlib.Path]:
    return {
        str(path.relative_to(PLUGINS).with_suffix("")).replace("/", "."): path
        for folder in ("plugin_utils", "module_utils")
        for path in sorted((PLUGINS / folder).rglob("*.py"))
    }


@functools.lru_cache(maxsize=1)
def imports() -> dict[str, set[str]]:
    """{module: the modules of ours that it imports}, those for the type checker alone left out: nothing runs by them."""
    known, found = modules(), {}
    for name, path in known.items():
        found[name] = set()
        pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                pending += node.orelse
                continue
            pending += ast.iter_child_nodes(node)
            if isinstance(node, ast.Import):
                given = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name}: imports are written out"
                given = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            else:
                continue
            found[name] |= {one.removeprefix(PACKAGE) for one in given} & set(known)
    return found


def room(module: str) -> str:
    return module.split(".")[1]


def arrows(half: str) -> dict[str, set[str]]:
    """Return {package: the other packages of its half that its modules import}."""
    found: dict[str, set[str]] = {}
    for name, others in imports().items():
        if name.startswith(half) and name not in OLD_PLACES | EVERYBODYS:
            ours = {room(other) for other in others if other.startswith(half) and other not in EVERYBODYS}
            found.setdefault(room(name), set()).update(ours - {room(name)})
    return found


@pytest.mark.parametrize("half", ["plugin_utils", "module_utils"])
def test_packages_import_what_their_rows_in_the_docs_name_and_nothing_else(half: str) -> None:
    assert arrows(half) == STATED[half]


@pytest.mark.parametrize("half", ["plugin_utils", "module_utils"])
def test_packages_import_only_those_of_rows_further_down(half: str) -> None:
    order = list(STATED[half])
    upwards = [(one, other) for one, others in STATED[half].items() for other in others if order.index(other) <= order.index(one)]
    assert order and not upwards


def test_nothing_of_ours_uses_the_old_places() -> None:
    assert not [(name, other) for name, others in imports().items() for other in others & OLD_PLACES]


def test_what_runs_on_nodes_imports_nothing_of_the_controller() -> None:
    strangers = {
        f"{name} imports {other}"
        for name, others in imports().items()
        if name.startswith("module_utils.")
        for other in others
        if other.startswith("plugin_utils.")
    }
    assert not strangers


def test_no_module_imports_itself_in_a_circle() -> None:
    graphlib.TopologicalSorter(imports()).prepare()


def test_a_plane_knows_no_other() -> None:
    def plane(module: str) -> str:
        words = module.split(".")
        return words[2] if words[:2] == ["plugin_utils", "planes"] and len(words) > 3 else ""

    across = {(name, other) for name, others in imports().items() for other in others if plane(name) and plane(other)}
    assert across and all(plane(name) == plane(other) for name, other in across)


# GPU sharing could be a collection of its own: it imports what a team's stage of the topology CLUSTER may (docs/stages.md).
SHARING = ("plugin_utils.sharing.", "module_utils.workloads.sharing.")
OF_SHARING = {
    "plugin_utils.collection", "plugin_utils.syntax", "plugin_utils.stages.base", "plugin_utils.stages.ranges",
    "plugin_utils.planes.kubernetes.stages.nodes",
    *(f"plugin_utils.records.{name}" for name in ("errors", "files", "keys", "measurement", "model", "report_rows")),
    *(f"plugin_utils.planes.kubernetes.api.{name}" for name in (
        "access", "cleanup", "client", "executing", "inventory", "leases", "logs", "marks", "settings",
    )),
    *(f"plugin_utils.planes.kubernetes.pods.{name}" for name in ("cleanup_guard", "guardians", "objects")),
    "module_utils.answer.observation", "module_utils.answer.reasons", "module_utils.accelerators.registry",
    "module_utils.lease.cordon_guardian", "module_utils.workloads.packing",
}  # fmt: skip


def test_gpu_sharing_imports_what_a_stage_of_a_team_may_and_nothing_shared_imports_it() -> None:
    ours = {(name, other) for name, others in imports().items() for other in others if name.startswith(SHARING)}
    assert {other for _name, other in ours if not other.startswith(SHARING)} == OF_SHARING
    used_by = {(name, other) for name, others in imports().items() for other in others if other.startswith(SHARING)} - ours
    assert not used_by, "the registry finds the stage by its file"
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules().items() if not name.startswith(SHARING)}
    assert not [name for name, text in texts.items() if "utils.sharing" in text or "workloads.sharing" in text]


# The rooms of the plane of clusters, the lowest first; `plane` sees all of them, `devices` none.
CLUSTERS, OF_CLUSTERS = "plugin_utils.planes.kubernetes.", ("devices", "api", "pods", "groups", "stages", "operations", "plane")


def test_a_room_of_the_plane_of_clusters_imports_only_those_below_it() -> None:
    def place(module: str) -> int:
        return OF_CLUSTERS.index(module[len(CLUSTERS) :].split(".", maxsplit=1)[0])

    ours = [(name, other) for name, others in imports().items() for other in others if name.startswith(CLUSTERS)]
    upwards = [f"{name} imports {other}" for name, other in ours if other.startswith(CLUSTERS) and place(other) > place(name)]
    assert ours and not upwards


def test_no_two_files_of_tests_have_the_same_name() -> None:
    """pytest imports them by name alone: the second file of a name would stop the collection of all unit tests."""
    names = collections.Counter(path.name for path in (pathlib.Path(__file__).resolve().parents[3] / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
