#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the rules of verdicts one at a time, and list the changes that no unit test of the judge notices.

A mutant is one change in a copy of the checkout: a condition negated, a comparison (or `and` and `or`) exchanged, a constant emptied or
without one of its entries. The tests that call the changed function run, the likely ones first; for a constant all. Exit status 1 if
mutants are alive. The folder of the tests is that of the judge: another folder may hold a rule too.
"""

from __future__ import annotations

import argparse
import ast
import collections
import cProfile
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTATED = ("plugins/plugin_utils/judging/*.py", "plugins/module_utils/answer/reasons.py")
TESTS = "tests/unit/plugin_utils/judging"
PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.And, ast.Or))
OTHER: dict[t.Any, t.Any] = {**dict(PAIRS), **{b: a for a, b in PAIRS}}


class Site(t.NamedTuple):
    """A change that can be made: where, what it does, and the function or the constant that it is in."""

    node: ast.AST
    what: str
    change: t.Callable[[], t.Any]
    inside: ast.AST | None


def sites(node: ast.AST, inside: ast.AST | None = None) -> t.Iterator[Site]:
    """Yield the changes that can be made below a node, in the order of the text."""
    if isinstance(node, (ast.FunctionDef, ast.Assign, ast.AnnAssign)) and not isinstance(inside, ast.FunctionDef):
        inside = node
    if isinstance(node, (ast.If, ast.IfExp)) and "TYPE_CHECKING" not in ast.dump(node.test):
        yield Site(node.test, "negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)), inside)
    for n, test in enumerate(node.ifs if isinstance(node, ast.comprehension) else ()):
        yield Site(test, "negated", lambda n=n, test=test: node.ifs.__setitem__(n, ast.UnaryOp(ast.Not(), test)), inside)
    if isinstance(node, ast.BoolOp):
        yield Site(node, "and/or", lambda: setattr(node, "op", OTHER[type(node.op)]()), inside)
    for n, op in enumerate(node.ops if isinstance(node, ast.Compare) else ()):
        yield Site(node, "exchanged", lambda n=n, op=op: node.ops.__setitem__(n, OTHER[type(op)]()), inside)
        right = node.comparators[n]
        if isinstance(right, (ast.Tuple, ast.Set, ast.List)):
            yield Site(right, "emptied", lambda right=right: right.elts.clear(), inside)
    if inside is node and not isinstance(node, ast.FunctionDef):
        value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
        columns = [value.keys, value.values] if isinstance(value, ast.Dict) else [getattr(value, "elts", [])]
        for n, entry in enumerate(columns[0] if len(columns[0]) > 1 else ()):
            yield Site(entry or value, "dropped", lambda n=n: [column.pop(n) for column in columns], inside)
        if columns[0]:
            yield Site(value, "emptied", lambda: [column.clear() for column in columns], inside)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):  # a text for people
            yield from sites(child, inside)


def function_of(site: Site, file: str) -> tuple[str, int] | None:
    """Return the function, (file, first line), that a change is in; None for a constant, which anything may use."""
    inside = site.inside
    return (file, min([inside.lineno, *(each.lineno for each in inside.decorator_list)])) if isinstance(inside, ast.FunctionDef) else None


class Calls:
    """A plugin of pytest: the functions that each test calls, and each file beside its tests; and the seconds that they take."""

    def __init__(self) -> None:
        self.called: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.profile: cProfile.Profile | None = None

    def _record(self, name: str) -> t.Generator[None, t.Any, t.Any]:
        outer, profile, began = self.profile, cProfile.Profile(), time.monotonic()
        if outer:
            outer.disable()
        self.profile = profile
        profile.enable()
        try:
            return (yield)
        finally:
            profile.disable()
            self.seconds[name] += time.monotonic() - began
            for code in [entry.code for entry in profile.getstats() if not isinstance(entry.code, str)]:
                if "/plugins/" in code.co_filename:
                    self.called[name].add((f"plugins/{code.co_filename.rpartition('/plugins/')[2]}", code.co_firstlineno))
            self.profile = outer
            if outer:
                outer.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> t.Generator[None, t.Any, t.Any]:
        return (yield from self._record(item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> t.Generator[None, t.Any, t.Any]:
        return (yield from self._record(collector.nodeid.partition("::")[0]))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: t.Any, request: t.Any) -> t.Generator[None, t.Any, t.Any]:
        shared = fixturedef.scope != "function"
        return (yield from self._record(request.node.nodeid.partition("::")[0])) if shared else (yield)

    def reaching(self, function: tuple[str, int] | None, stem: str, longest: float) -> list[str]:
        """Return the tests in the files of those that call a function; without one, all. The likely ones first, then the quickest."""
        likely = (f"/test_{stem}.py::", "/test_verdict.py::")
        files = {name.partition("::")[0] for name, called in self.called.items() if function is None or function in called}
        tests = [name for name in self.called if "::" in name and name.partition("::")[0] in files and self.seconds[name] < longest]
        return sorted(tests, key=lambda name: (function not in self.called[name], not any(x in name for x in likely), self.seconds[name]))


def in_child(work: t.Callable[[], int], seconds: float) -> int | None:
    """Return the status of work in a process of its own, or None if it took too long."""
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os._exit(work())
    end = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.02)
    if ended[0]:
        return os.waitstatus_to_exitcode(ended[1])
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many mutants, drawn by chance; 0 for all, which takes hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="a mutant whose tests take longer is neither alive nor dead")
    parser.add_argument("--longest", type=float, default=1, help="tests that take more seconds are left out")
    calls = pathlib.Path(tempfile.gettempdir(), "gpufleet-mutants")
    words = "a file with the calls of each test, which the first run writes (5 min); remove it if tests have changed"
    parser.add_argument("--calls", type=pathlib.Path, default=calls, help=words)
    parser.add_argument("--only", default="", help="a regular expression for a mutant's line, such as bands.py or emptied")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["cp", "-a", "--parents", "-t", folder, *filter(None, files.decode().split("\0"))], cwd=ROOT, check=True)
        link = pathlib.Path(folder, ".collections/ansible_collections/gpufleet/acceptance")
        link.parent.mkdir(parents=True)
        link.symlink_to(folder)
        os.chdir(folder)
        sys.path[:] = [f"{folder}/.collections", f"{folder}/tests", *(path for path in sys.path if "collections" not in path)]
        os.environ.update(PYTHONPATH=f"{folder}/.collections", ACCEPTANCE_TRIALS="10")
        return run(options)


def run(options: argparse.Namespace) -> int:
    calls, known = Calls(), set(sys.modules)
    if options.calls.is_file():
        calls.called, calls.seconds = pickle.loads(options.calls.read_bytes())
    if pytest.main(["-q", TESTS, *(["--collect-only"] if calls.called else [])], plugins=[] if calls.called else [calls]):
        return 2
    options.calls.write_bytes(pickle.dumps((calls.called, calls.seconds)))
    for name in set(sys.modules) - known:  # of the collection and its tests: every mutant imports them anew
        if "gpufleet" in name or "/tests/" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    mutated = sorted(str(path) for pattern in MUTATED for path in pathlib.Path().glob(pattern))
    mutants = [
        (file, n, f"{file}:{site.node.lineno}: {site.what}: {ast.unparse(site.node)[:90]}")
        for file in mutated
        for n, site in enumerate(sites(ast.parse(pathlib.Path(file).read_text())))
    ]
    mutants = [mutant for mutant in mutants if re.search(options.only, mutant[2])]
    chosen = sorted(random.Random(options.seed).sample(mutants, min(options.sample or len(mutants), len(mutants))))
    counts: collections.Counter[str] = collections.Counter()
    for file, n, words in chosen:
        before = pathlib.Path(file).read_text()
        tree = ast.parse(before)
        site = list(sites(tree))[n]
        tests = calls.reaching(function_of(site, file), pathlib.PurePath(file).stem, options.longest)
        site.change()
        pathlib.Path(file).write_text(ast.unparse(ast.fix_missing_locations(tree)))
        status = in_child(lambda: pytest.main(["-x", "-q", *tests]), options.seconds) if tests else 0
        pathlib.Path(file).write_text(before)
        word = {0: "alive", None: "late"}.get(status, "dead")
        counts[word] += 1
        print(f"{word:5} {words} ({len(tests)} tests)", flush=True)
    print(f"{counts['alive']} alive, {counts['late']} late, {counts['dead']} dead, of {len(mutants)} mutants {len(chosen)} were tried")
    return 1 if counts["alive"] else 0


if __name__ == "__main__":
    sys.exit(main())
