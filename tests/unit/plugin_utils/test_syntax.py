# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import concurrent.futures
import gc
import pathlib
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import syntax


@pytest.fixture
def turns() -> t.Iterator[None]:
    """Threads take turns while a tree is made: Python's collector runs something of ours then, as it does where objects have finalizers."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()

    def rest(_phase: str, _info: dict[str, int]) -> None:
        time.sleep(0)

    gc.callbacks.append(rest)
    gc.set_threshold(200)
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.callbacks.remove(rest)


@pytest.mark.usefixtures("turns")
def test_threads_that_read_sources_at_once_do_not_disturb_one_another() -> None:
    """ast.parse() in their place raises SystemError under Python 3.11.7."""
    source = pathlib.Path(syntax.__file__).with_name("compiled.py").read_text(encoding="utf-8") * 4
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _number: syntax.tree(source.replace("from __future__", "from os")), range(40)))
    assert {len(tree.body) for tree in trees} == {len(trees[0].body)} and isinstance(trees[0], ast.Module)


def test_a_wrong_source_is_named() -> None:
    with pytest.raises(SyntaxError) as raised:
        syntax.tree("a =", "mine.py")
    assert raised.value.filename == "mine.py"
    assert type(syntax.tree("1 + x", mode="eval").body).__name__ == "BinOp"
