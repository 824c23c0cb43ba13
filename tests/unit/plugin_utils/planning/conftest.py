# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Planners over a real inventory and a real play."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from harness import sites


@pytest.fixture(scope="module")
def planning() -> t.Iterator[types.SimpleNamespace]:
    yield from sites.planning()


@pytest.fixture
def site(tmp_path: pathlib.Path, planning: types.SimpleNamespace) -> sites.Site:
    return sites.Site(tmp_path, planning)
