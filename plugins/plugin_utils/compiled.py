# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules of the collection out of Python's own cache of compiled modules.

Ansible compiles each module of a collection anew in every run, before anything else begins. Measured (medians of five): the 295 modules of
ours that a run loads take 0.66 s of processor time from the cache and 1.14 s without. If the cache cannot be written, nothing is gained.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import typing as t

OURS = f"{__name__.rpartition('.plugin_utils.')[0]}."


class Finder:
    """Finds our modules where Ansible's finder would, in the folders of their package, and leaves packages and all else to it."""

    @staticmethod
    def find_spec(
        name: str, path: t.Sequence[str] | None = None, _target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.startswith(OURS):
            for folder in path or ():
                file = os.path.join(folder, f"{name.rpartition('.')[2]}.py")
                if os.path.isfile(file):
                    return importlib.util.spec_from_file_location(name, file)
        return None


@contextlib.contextmanager
def cached() -> t.Iterator[None]:
    """Import our modules from Python's cache within this context. Other imports are not affected, then or afterwards."""
    finder = t.cast(t.Any, Finder())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
