# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Children on one NUMA node: really bound, and this process as it was before."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import numa


def machine(root: pathlib.Path, *cpulists: str) -> dict[int, numa.Place]:
    for number, cpus in enumerate(cpulists):
        node = root / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus + "\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal: 1024 kB\n")
    return numa.places(str(root))


def status(name: str) -> str:
    lines = subprocess.run(["cat", "/proc/self/status"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))


def test_a_child_gets_the_cpus_of_the_node_and_we_keep_ours(tmp_path: pathlib.Path) -> None:
    before = os.sched_getaffinity(0)
    mine = min(before)
    places = machine(tmp_path, str(mine), "4000-4003")
    assert places == {0: numa.Place(0, frozenset({mine})), 1: numa.Place(1, frozenset(range(4000, 4004)))}
    with numa.bound(places[0]) as how:
        assert how in (numa.CPUS, numa.CPUS_AND_MEMORY)
        assert status("Cpus_allowed_list") == str(mine)
        if how == numa.CPUS_AND_MEMORY:
            policies = subprocess.run(["cat", "/proc/self/numa_maps"], check=False, stdout=subprocess.PIPE, text=True).stdout
            assert not policies or " bind:0 " in policies
    assert os.sched_getaffinity(0) == before


def test_a_numa_node_whose_cpus_are_forbidden_is_refused(tmp_path: pathlib.Path) -> None:
    before = os.sched_getaffinity(0)
    place = machine(tmp_path, "0", "4000")[1]
    with pytest.raises(ReasonedError, match=r"no CPU of NUMA node 1 may be used here .*cpuset") as refused, numa.bound(place):
        pass
    assert refused.value.reason_code == "no_permission" and os.sched_getaffinity(0) == before


@pytest.mark.parametrize(("number", "how"), [(errno.EPERM, numa.CPUS), (errno.ENOSYS, numa.CPUS), (errno.EINVAL, None)])
def test_a_memory_policy_that_is_not_taken(monkeypatch: pytest.MonkeyPatch, number: int, how: str | None) -> None:
    before = os.sched_getaffinity(0)
    place = numa.Place(0, frozenset(before))
    monkeypatch.setattr(numa, "_policy", lambda mode, node=None: number)
    if how is None:
        with pytest.raises(ReasonedError, match="no memory of NUMA node 0"), numa.bound(place):
            pass
    else:
        with numa.bound(place) as seen:
            assert seen == how
    assert os.sched_getaffinity(0) == before


def test_nothing_is_bound_without_a_node() -> None:
    with numa.bound(None) as how:
        assert how is None and status("Cpus_allowed_list")
