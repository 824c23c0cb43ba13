# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All errors of the controller are one tree, which one page draws."""

from __future__ import annotations

import ast
import builtins
import importlib
import pathlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import errors

PACKAGE = errors.__name__.removesuffix(".records.errors")
FOLDER = pathlib.Path(errors.__file__).parents[1]
# A program that travels without the collection.
STANDS_ALONE = ("handover", "checker.py")
BUILT_IN = {name for name, of in vars(builtins).items() if isinstance(of, type) and issubclass(of, BaseException)}


def raised() -> dict[type[BaseException], str]:
    """Return {exception: its module} of all exceptions that modules of the controller define."""
    classes: list[tuple[str, str, set[str]]] = []
    for path in sorted(FOLDER.rglob("*.py")):
        if path.parts[-2:] == STANDS_ALONE:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                classes.append((path.relative_to(FOLDER).as_posix(), node.name, bases))
    exceptions = {*BUILT_IN, "ReasonedError"}
    while more := {name for _path, name, bases in classes if bases & exceptions} - exceptions:
        exceptions |= more
    found: dict[type[BaseException], str] = {}
    for path, name, bases in classes:
        if bases & exceptions:
            module = importlib.import_module(f"{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}")
            found[t.cast("type[BaseException]", getattr(module, name))] = path
    return {error: path for error, path in found.items() if issubclass(error, BaseException)}


def test_every_error_of_the_controller_has_the_one_base() -> None:
    found = raised()
    assert len(found) > 25
    assert [error.__name__ for error in found if not issubclass(error, errors.AcceptanceError)] == []


def test_the_page_draws_the_tree_as_it_is() -> None:
    drawn: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    module = ""
    for line in (errors.__doc__ or "").splitlines():
        row = re.match(r"((?: {4})+)(\w+(?:, \w+)*)(?:\s+(\S+\.py))?", line)
        if row:
            depth = len(row[1]) // 4
            above = [*above[: depth - 1], row[2]]
            # What has no module of its own is where its base is.
            module = row[3] or (module if depth > 2 else "records/errors.py")
            drawn.update((name, (above[depth - 2] if depth > 1 else "Exception", module)) for name in row[2].split(", "))
    found = {error.__name__: (error.__bases__[0].__name__, path) for error, path in raised().items() if error.__name__[0] != "_"}
    assert drawn == found
