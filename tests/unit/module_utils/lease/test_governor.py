# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The governor lease on a tree of plain files; the real sysfs is in tests/integration/test_governor_guests.py."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

AVAILABLE = "performance powersave schedutil"


class Machine:
    """A sysfs tree with one CPU per policy, and a ledger."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.ledger = session.Ledger(str(root))
        (root / "sys/devices/system/cpu").mkdir(parents=True)

    def policy(self, number: int, value: str, **files: str) -> pathlib.Path:
        folder = self.root / f"sys/devices/system/cpu/cpufreq/policy{number}"
        folder.mkdir(parents=True)
        usual = {
            "scaling_governor": value,
            "affected_cpus": str(number),
            "scaling_driver": "acpi-cpufreq",
            "scaling_available_governors": AVAILABLE,
        }
        for name, text in {**usual, **files}.items():
            (folder / name).write_text(text + "\n")
        return folder

    def lease(self, wanted: str = "performance") -> governor.GovernorLease:
        return governor.GovernorLease(Node(60, ledger=self.ledger, root=str(self.root)), wanted, settle_s=0)

    @property
    def governors(self) -> list[str]:
        return [policy["governor"] for policy in governor.policies(Node(60, root=str(self.root)))]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def write(path: pathlib.Path, name: str, value: str) -> None:
    # As sysfs does: a write replaces the value.
    (path / name).write_text(value)


def test_each_policy_gets_its_own_value_back(machine: Machine) -> None:
    for number, value in enumerate(["powersave", "schedutil", "performance"]):
        machine.policy(number, value)
    with machine.lease() as lease:
        assert lease.state == "switched"
        assert machine.governors == ["performance"] * 3
        assert lease.summary()["before"] == {"powersave": 1, "schedutil": 1, "performance": 1}
    assert machine.governors == ["powersave", "schedutil", "performance"]
    assert lease.given_back == ["restored the governor of 2 policies"]


def test_policies_are_ordered_by_number(machine: Machine) -> None:
    for number in (10, 2, 0):
        machine.policy(number, f"g{number}")
    assert machine.governors == ["g0", "g2", "g10"]


def test_old_kernels_have_a_folder_per_cpu(machine: Machine) -> None:
    cpus = machine.root / "sys/devices/system/cpu"
    folder = machine.policy(0, "powersave")
    (cpus / "cpu0").mkdir()
    (cpus / "cpu1").mkdir()
    folder.rename(cpus / "cpu0/cpufreq")
    (cpus / "cpu1/cpufreq").symlink_to("../cpu0/cpufreq")
    (cpus / "cpufreq").rmdir()
    with machine.lease() as lease:
        assert machine.governors == ["performance"]
        assert [policy["name"] for policy in lease.before] == ["cpu0"]
    assert machine.governors == ["powersave"]


def test_nothing_to_change_writes_no_ledger(machine: Machine) -> None:
    machine.policy(0, "performance")
    with machine.lease() as lease:
        assert lease.state == "already"
        assert not os.path.exists(machine.ledger.path)
    assert lease.given_back == []


@pytest.mark.parametrize(
    ("prepare", "code", "words"),
    [
        (lambda m: None, "no_cpufreq", "virtual machines"),
        (
            lambda m: m.policy(0, "powersave", scaling_available_governors="powersave schedutil"),
            "no_governor",
            "offers",
        ),
        (lambda m: (m.policy(0, "powersave"), os.mkdir(m.ledger.path)), "state_dir", "recorded"),
    ],
)
def test_what_cannot_be_switched_is_named_and_nothing_changed(
    machine: Machine, prepare: t.Callable[[Machine], object], code: str, words: str
) -> None:
    prepare(machine)
    before = machine.governors
    with machine.lease() as lease:
        assert lease.state == "not_switched" and lease.reason_code == code
        assert lease.reason and words in lease.reason
        assert machine.governors == before
    assert machine.governors == before


def test_one_policy_that_refuses_undoes_the_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.policy(0, "powersave")
    refusing = machine.policy(1, "powersave")
    real = governor._write

    def write_or_refuse(path: str, name: str, value: str) -> None:
        if path == str(refusing):
            raise OSError(30, "Read-only file system")
        real(path, name, value)

    monkeypatch.setattr(governor, "_write", write_or_refuse)
    with machine.lease() as lease:
        assert lease.state == "not_switched" and lease.reason_code == "read_only"
        assert machine.governors == ["powersave", "powersave"]


def test_a_value_that_is_not_ours_any_more_stays(machine: Machine) -> None:
    changed = machine.policy(0, "powersave")
    machine.policy(1, "powersave")
    with machine.lease() as lease:
        write(changed, "scaling_governor", "schedutil")
    assert machine.governors == ["schedutil", "powersave"]
    assert lease.given_back[0] == "restored the governor of 1 policy"
    assert "policy0 is left at schedutil: it was changed" in lease.given_back[1]


def test_a_cpu_that_went_offline_is_named(machine: Machine) -> None:
    gone = machine.policy(0, "powersave")
    with machine.lease() as lease:
        (gone / "scaling_governor").unlink()
    assert lease.given_back == ["policy0 is not restored to powersave: its CPUs are offline"]


def test_the_energy_preference_follows_back(machine: Machine) -> None:
    folder = machine.policy(0, "powersave", energy_performance_preference="balance_performance")
    with machine.lease():
        write(folder, "energy_performance_preference", "performance")  # as the driver does
    assert (folder / "energy_performance_preference").read_text() == "balance_performance"


def test_the_janitor_restores_what_a_killed_guardian_left(machine: Machine) -> None:
    machine.policy(0, "powersave")
    machine.lease().take()
    assert machine.ledger.undo() == ["restored the governor of 1 policy"]
    assert machine.governors == ["powersave"]
    assert not os.path.exists(machine.ledger.path)


def test_after_a_reboot_nothing_is_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.policy(0, "powersave")
    machine.lease().take()
    monkeypatch.setattr(session, "boot_id", lambda: "another boot")
    assert "rebooted" in machine.ledger.undo()[0]
    assert machine.governors == ["performance"]
    assert not os.path.exists(machine.ledger.path)


def test_a_governor_lease_without_a_ledger_is_refused() -> None:
    with pytest.raises(ValueError, match="ledger"):
        governor.GovernorLease(Node(60))
