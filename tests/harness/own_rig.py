# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rig for one file of tests, or for all of them."""

from __future__ import annotations

import contextlib
import os
import typing as t

import pytest
from rigs import common
from rigs.fleet.fleet import Fleet
from rigs.kubernetes.kubernetes import Kubernetes

Rig = t.TypeVar("Rig", Fleet, Kubernetes)


@contextlib.contextmanager
def own(kind: type[Rig]) -> t.Iterator[Rig]:
    """One that nobody else uses, still empty: call `up`. Taken down at the end; whoever cannot make one skips the test."""
    if os.geteuid():
        pytest.skip("rigs make namespaces and mounts: run as root")
    rig = kind.reserve()
    try:
        yield rig
    finally:
        rig.down()
        common.release(rig)
