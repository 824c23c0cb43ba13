# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cpu_governor, as a user calls it, on the real governors of the guests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest
from rigs.rdma.rdma import Guests

pytestmark = pytest.mark.rdma
GUEST = "rdma-04"  # two CPUs


@pytest.fixture
def call(rig_rdma: Guests, root: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    def call(check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
        command = [root / ".venv/bin/ansible", GUEST, "-i", rig_rdma.inventory, *(["-C"] * check)]
        command += ["-m", "gpufleet.acceptance.cpu_governor", "-a", json.dumps({"state": "held", **arguments})]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root, env=environment)
        assert done.returncode == 0, done.stdout
        answer: dict[str, t.Any] = json.loads(done.stdout.split("=> ", 1)[1])
        return answer

    return call


@pytest.fixture
def differing(rig_rdma: Guests) -> t.Iterator[list[str]]:
    """The guest's CPUs have governors that differ."""
    values = ["powersave", "schedutil"]
    for cpu, value in enumerate(values):
        rig_rdma.set_governor(GUEST, value, cpu)
    yield values
    for cpu in (0, 1):
        rig_rdma.set_governor(GUEST, "performance", cpu)
    assert "gpufleet" not in rig_rdma.inside(GUEST, "ls", "/var/lib")


def test_held_and_restored_each_to_its_own(
    rig_rdma: Guests, differing: list[str], call: t.Callable[..., dict[str, t.Any]]
) -> None:
    planned = call(check=True)
    assert planned["changed"] and set(planned["policies"].values()) == {"performance"}
    assert rig_rdma.governors(GUEST) == differing
    held = call()
    assert held["changed"] and held["outcome"] == "switched"
    assert held["policies"] == {"policy0": "performance", "policy1": "performance"}
    assert rig_rdma.governors(GUEST) == ["performance", "performance"]
    again = call()
    assert not again["changed"] and again["outcome"] == "already"
    refused = call(governor="ondemand")  # a second lease on the same node
    assert not refused["changed"] and refused["reason_code"] == "busy_run"
    restored = call(state="restored")
    assert restored["changed"] and restored["undone"] == ["restored the governor of 2 policies"]
    assert rig_rdma.governors(GUEST) == differing
    assert not call(state="restored")["changed"]


def test_what_somebody_else_set_meanwhile_stays(
    rig_rdma: Guests, differing: list[str], call: t.Callable[..., dict[str, t.Any]]
) -> None:
    call()
    rig_rdma.set_governor(GUEST, "ondemand", 0)
    restored = call(state="restored")
    assert rig_rdma.governors(GUEST) == ["ondemand", "schedutil"]
    assert restored["undone"][0] == "restored the governor of 1 policy"
    assert "policy0 is left at ondemand" in restored["undone"][1]


@pytest.mark.long
def test_the_deadline_restores(rig_rdma: Guests, differing: list[str], call: t.Callable[..., dict[str, t.Any]]) -> None:
    held = call(timeout=3)
    assert held["outcome"] == "switched"
    rig_rdma.inside(GUEST, "sleep", "5")
    assert rig_rdma.governors(GUEST) == differing
    call(state="restored")


@pytest.mark.long
def test_a_cpu_that_goes_offline_is_named(
    rig_rdma: Guests, differing: list[str], call: t.Callable[..., dict[str, t.Any]]
) -> None:
    online = "/sys/devices/system/cpu/cpu1/online"
    call()
    rig_rdma.inside(GUEST, "sh", "-c", f"echo 0 > {online}")
    try:
        restored = call(state="restored")
    finally:
        rig_rdma.inside(GUEST, "sh", "-c", f"echo 1 > {online}")
    assert any("policy1 is not restored to schedutil: its CPUs are offline" in word for word in restored["undone"])
    assert rig_rdma.governors(GUEST)[0] == "powersave"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"governor": "turbo"}, "no_governor", "offers"),
        ({"root": "/nowhere"}, "no_cpufreq", "no CPU frequency control"),
    ],
)
def test_what_cannot_be_is_named(
    differing: list[str],
    rig_rdma: Guests,
    call: t.Callable[..., dict[str, t.Any]],
    arguments: dict[str, str],
    code: str,
    words: str,
) -> None:
    refused = call(**arguments)
    assert not refused["changed"] and refused["outcome"] == "not_switched" and refused["reason_code"] == code
    assert words in refused["reason"]
    assert rig_rdma.governors(GUEST) == differing


def test_read_only_sysfs(rig_rdma: Guests, differing: list[str], call: t.Callable[..., dict[str, t.Any]]) -> None:
    rig_rdma.inside(GUEST, "mount", "-o", "remount,ro", "/sys")
    try:
        refused = call()
    finally:
        rig_rdma.inside(GUEST, "mount", "-o", "remount,rw", "/sys")
    assert refused["outcome"] == "not_switched" and refused["reason_code"] == "read_only"
    assert rig_rdma.governors(GUEST) == differing
