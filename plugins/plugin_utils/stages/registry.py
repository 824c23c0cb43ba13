# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of stages' descriptions.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import importlib
import importlib.util
import pathlib
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import compiled, syntax
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Level
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import manifest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import LEVELS, Stage

PACKAGE = __name__.rpartition(".")[0]
# In a role: the description of its stage, if it has one.
IN_A_ROLE = pathlib.PurePath("files", "stage.py")
# Attributes of a team's stage under their old names, which this release still takes, with a warning: {old name: name}.
RENAMED = {
    "works": "topology", "looks": "queries_checkpoints", "again": "remeasure", "leaves_memos": "saves_checkpoints", "pods": "isolation",
}  # fmt: skip

# Modules that a team's probe imports from where they stood in 0.1.0: {name in module_utils: room}.
MOVED = {
    "observation": "answer", "plain_data": "answer", "reasons": "answer", "node": "system", "group": "groups", "launching": "groups",
    "membership": "groups",
}  # fmt: skip


@functools.lru_cache(maxsize=1)
def shipped() -> dict[str, Stage]:
    """The stages of the collection by name: every module of this folder that holds a STAGE, and those with a package of their own, which
    hold it in their module `stage`."""
    here = pathlib.Path(__file__).parent
    names = [f"{PACKAGE}.{path.stem}" for path in sorted(here.glob("*.py"))]
    names += [f"{PACKAGE.rpartition('.')[0]}.{path.parent.name}.stage" for path in sorted(here.parent.glob("*/stage.py"))]
    with compiled.cached():
        modules = [importlib.import_module(name) for name in names]
    stages = [stage for module in modules if (stage := getattr(module, "STAGE", None)) is not None]
    return {stage.name: stage for stage in stages}


def of_level(level: Level) -> list[str]:
    """Return the names of the shipped stages of a level, in the order in which they run."""
    levels = LEVELS[: LEVELS.index(level) + 1]
    return [stage.name for stage in sorted(shipped().values(), key=lambda stage: stage.place) if stage.level in levels]


def finding_facts() -> Stage:
    """Return the shipped stage that measures facts and addresses of nodes."""
    return next(stage for stage in shipped().values() if stage.finds_facts)


def same_work(stages: t.Iterable[Stage]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return {(stage, check): (other stage, key of the context that names its check)} of checks that do the work of another stage's."""
    return {(stage.name, check): same_check for stage in stages for check, same_check in stage.same_work.items()}


def leaf_variables() -> list[str]:
    """Return the variables that say where nodes are connected, that which counts before others first."""
    ranked = sorted((stage for stage in shipped().values() if stage.leaf_rank > 0), key=lambda stage: -stage.leaf_rank)
    return [f"{stage.name}_leaf" for stage in ranked]


def of(entry: t.Mapping[str, t.Any]) -> Stage:
    """The description of a stage of a plan: {"name", "role"} and, where it has them, "manifest" and "description" (a path)."""
    name, role = entry["name"], entry["role"]
    shipped_stage = shipped().get(name)
    if shipped_stage is not None and shipped_stage.role == role:
        return shipped_stage
    if entry.get("manifest"):
        return manifest.of(name, entry["manifest"])
    if entry.get("description"):
        return load(name, role, entry["description"])
    return _plain(name, role)


def described(name: str, role: str, folder: str) -> tuple[Stage, str | None]:
    """The description of a team's stage whose role lies in `folder`, and the file that it stands in, if any."""
    path = pathlib.Path(folder) / IN_A_ROLE
    if not path.is_file():
        return _plain(name, role), None
    stage = load(name, role, str(path))
    for old, new in RENAMED.items():
        if hasattr(stage, old):
            Display().warning(f"{path}: found the attribute {old}, expected {new}; the next release does not know {old} (docs/stages.md)")
    if stage.probe:
        _warn_of_old_places(pathlib.Path(stage.probe))
    return stage, str(path)


def _warn_of_old_places(path: pathlib.Path) -> None:
    """Warn of modules of the node half that a probe imports from their old places."""
    package = f"{PACKAGE.partition('.plugin_utils.')[0]}.module_utils"
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        for node in ast.walk(syntax.tree(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                rest = (node.module or "")[len(package) + 1 :]
                for old in sorted(MOVED.keys() & ({rest} if rest else {alias.name for alias in node.names})):
                    said = f"found module_utils.{old}, expected module_utils.{MOVED[old]}.{old}; 1.1 does not have the old place"
                    Display().warning(f"{path}:{node.lineno}: {said} (docs/versions.md)")


def load(name: str, role: str, path: str) -> Stage:
    """A description out of a role. RunError names what is wrong with it. Without its file, as where a run is judged on another machine,
    a stage is what every stage is: numeric, and without opinions of its own."""
    if not pathlib.Path(path).is_file():
        return _plain(name, role)
    spec = importlib.util.spec_from_file_location(f"gpufleet_stage_{name}", path)
    if spec is None or spec.loader is None:
        raise RunError(f"{path}: found no Python source, expected one with STAGE")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RunError(f"{path}: {type(error).__name__}: {error}; expected a description of stage {name!r}") from error
    stage = getattr(module, "STAGE", None)
    if not isinstance(stage, Stage):
        raise RunError(f"{path}: found no STAGE that is a {Stage.__module__}.Stage; expected the description of stage {name!r}")
    stage.name, stage.role = name, role
    for old, new in RENAMED.items():
        if hasattr(stage, old):
            setattr(stage, new, getattr(stage, old))
    if stage.probe:
        stage.probe = str(pathlib.Path(path).parent / stage.probe)
        _check_reason_codes(pathlib.Path(stage.probe))
    return stage


def _check_reason_codes(path: pathlib.Path) -> None:
    """Raise RunError if a probe passes a reason code to `failed(check, code, reason)` that is not in module_utils/answer/reasons.py.

    Only codes that stand in the source as text are checked. A source that this Python cannot read is left to the node's.
    """
    try:
        tree = syntax.tree(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return
    known = reasons.ALL.keys() - reasons.BROUGHT.keys()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or "failed" not in (getattr(call.func, "attr", ""), getattr(call.func, "id", "")):
            continue
        code_arguments = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "reason_code")]
        for code in code_arguments:
            if isinstance(code, ast.Constant) and isinstance(code.value, str) and code.value not in known:
                near = difflib.get_close_matches(code.value, known, 1, 0.0)[0]
                raise RunError(f"{path}:{code.lineno}: found the reason code {code.value!r}, expected one of reasons.py, such as {near!r}")


def _plain(name: str, role: str) -> Stage:
    stage = Stage()
    stage.name, stage.role = name, role
    return stage
