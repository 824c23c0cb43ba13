# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Planners over a real inventory and a real play."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from harness import pages, sites


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[types.SimpleNamespace]:
    """The modules under test, with the collection of docs/planes.md installed beside."""
    folder = tmp_path_factory.mktemp("planes")
    pages.files_of("docs/planes.md", folder)
    yield from sites.planning(beside=[folder / "collections"])


@pytest.fixture
def site(tmp_path: pathlib.Path, planning: types.SimpleNamespace) -> sites.Site:
    return sites.Site(tmp_path, planning)
