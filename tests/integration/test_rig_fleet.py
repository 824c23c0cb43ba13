# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fleet rig is what its README says."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from harness.own_rig import own
from rigs import common
from rigs.fleet.fleet import Fleet, Options

pytestmark = [pytest.mark.fleet, pytest.mark.long]
SPECIAL = {"gpu-02": Options(python=False, sudo=False), "gpu-03": Options(state_size="16k")}


@pytest.fixture(scope="module")
def own_fleet() -> t.Iterator[Fleet]:
    """Hosts that no other test has planted anything on."""
    with own(Fleet) as fleet:
        yield fleet


@pytest.fixture
def fleet(own_fleet: Fleet) -> t.Iterator[Fleet]:
    own_fleet.up(3, SPECIAL)
    yield own_fleet
    for host in own_fleet.hosts:
        assert not [argv for argv in own_fleet.processes(host).values() if "sleep" in argv[0]]


def ssh(fleet: Fleet, host: str, *argv: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(fleet.ssh(host, *argv), check=False, capture_output=True, text=True, timeout=timeout)


def test_hosts_have_identities_of_their_own(fleet: Fleet) -> None:
    files = ("/etc/hostname", "/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/etc/ssh/ssh_host_ed25519_key")
    seen = [tuple(ssh(fleet, host, "cat", file).stdout for host in fleet.hosts) for file in files]
    here = pathlib.Path("/etc/machine-id").read_text()
    for values in seen:
        assert len(set(values)) == len(fleet.hosts)
        assert "" not in values and here not in values
    assert seen[0] == ("gpu-01\n", "gpu-02\n", "gpu-03\n")


def test_files_of_one_host_are_not_those_of_another(fleet: Fleet) -> None:
    for path in [f"{folder}/rig-{os.getpid()}" for folder in ("/root", "/tmp", "/var/lib", "/usr")]:
        assert ssh(fleet, "gpu-01", "touch", path).returncode == 0
        assert ssh(fleet, "gpu-03", "test", "-e", path).returncode == 1
        assert not pathlib.Path(path).exists()


def test_planted_tools_come_first(fleet: Fleet) -> None:
    tool = fleet.plant("gpu-01") / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho planted\n")
    tool.chmod(0o755)
    assert ssh(fleet, "gpu-01", "nvidia-smi").stdout == "planted\n"
    assert ssh(fleet, "gpu-03", "sh", "-c", "nvidia-smi || true").stdout == ""


def test_absences(fleet: Fleet) -> None:
    assert ssh(fleet, "gpu-02", "sh", "-c", "command -v python3 sudo").stdout == ""
    full = ssh(fleet, "gpu-03", "dd", "if=/dev/zero", "of=/var/lib/gpufleet-acceptance/x", "bs=64k", "count=1")
    assert "No space left" in full.stderr
    ssh(fleet, "gpu-03", "rm", "/var/lib/gpufleet-acceptance/x")
    command = ["ssh", "-F", fleet.ssh_config, "-l", "tester", "gpu-01", "sudo -n id -u"]
    user = subprocess.run(command, check=False, capture_output=True, text=True)
    assert user.stdout == "0\n"


def test_a_planted_tree_lies_over_the_hosts_own(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    (tmp_path / "infiniband" / "mlx5_0" / "node_guid").write_text("0002:c903:0000:0001\n")
    fleet.up(4, {**SPECIAL, "gpu-04": Options(overlays=((str(tmp_path), "/sys/class"),))})
    try:
        assert ssh(fleet, "gpu-04", "cat", "/sys/class/infiniband/mlx5_0/node_guid").stdout == "0002:c903:0000:0001\n"
        assert "eth0" in ssh(fleet, "gpu-04", "ls", "/sys/class/net").stdout
        assert ssh(fleet, "gpu-01", "test", "-e", "/sys/class/infiniband/mlx5_0").returncode == 1
    finally:
        fleet.up(3, SPECIAL)


def test_ansible_reaches_the_hosts(fleet: Fleet, root: pathlib.Path) -> None:
    command = [root / ".venv/bin/ansible", "-i", fleet.inventory, "gpu-01,gpu-03", "-m", "ansible.builtin.ping"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout


def test_up_again_leaves_running_hosts_alone(fleet: Fleet) -> None:
    before = {host: fleet.init(host) for host in fleet.hosts}
    fleet.up(4, SPECIAL)
    assert ssh(fleet, "gpu-01", "ssh", "gpu-04", "hostname").stdout == "gpu-04\n"
    fleet.up(3, SPECIAL)
    assert {host: fleet.init(host) for host in fleet.hosts} == before


def test_sshd_killed(fleet: Fleet) -> None:
    detached = "setsid sleep 77 > /dev/null 2>&1 < /dev/null & sleep 78"
    session = subprocess.Popen(fleet.ssh("gpu-01", "sh", "-c", detached), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not {"77", "78"} <= {argv[-1] for argv in fleet.processes("gpu-01").values()}:
        assert time.monotonic() < until
        time.sleep(0.05)
    fleet.kill_sshd("gpu-01")
    assert session.wait(60) == 255
    assert not common.answers_ssh(fleet.address("gpu-01"))
    assert "77" in {argv[-1] for argv in fleet.processes("gpu-01").values()}
    fleet.start_sshd("gpu-01")
    for pid, argv in fleet.processes("gpu-01").items():
        if argv[-1] in ("77", "78"):  # ours alone: the host has a number space of its own
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 20  # on a busy machine a killed process is there for a moment longer
    while {"77", "78"} & {argv[-1] for argv in fleet.processes("gpu-01").values()}:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(("fault", "repair"), [(Fleet.cut, Fleet.heal), (Fleet.freeze, Fleet.thaw)])
def test_host_that_does_not_answer(
    fleet: Fleet, fault: t.Callable[[Fleet, str], None], repair: t.Callable[[Fleet, str], None]
) -> None:
    fault(fleet, "gpu-01")
    try:
        assert not common.answers_ssh(fleet.address("gpu-01"), timeout=0.5)
    finally:
        repair(fleet, "gpu-01")
    assert ssh(fleet, "gpu-01", "hostname").stdout == "gpu-01\n"


def test_reboot_keeps_var_lib_only(fleet: Fleet) -> None:
    ssh(fleet, "gpu-01", "touch", "/var/lib/kept", "/tmp/lost")
    boot = ssh(fleet, "gpu-01", "cat", "/proc/sys/kernel/random/boot_id").stdout
    fleet.power_off("gpu-01")
    assert fleet.status()["gpu-01"] == "down"
    fleet.power_on("gpu-01")
    assert ssh(fleet, "gpu-01", "cat", "/proc/sys/kernel/random/boot_id").stdout != boot
    assert ssh(fleet, "gpu-01", "test", "-e", "/var/lib/kept").returncode == 0
    assert ssh(fleet, "gpu-01", "test", "-e", "/tmp/lost").returncode == 1


def test_down_leaves_nothing_even_of_a_killed_up() -> None:
    fleet = Fleet.reserve()
    fleet.up(2)
    (fleet.folder("gpu-02") / "launcher").unlink()  # killed between the start of a host and its record
    (fleet.folder("gpu-01") / "host.conf").unlink()
    pids = [fleet.init(host) for host in ("gpu-01", "gpu-02")]
    fleet.down()
    assert not [pid for pid in pids if pid and common.start_time(pid)]
    assert not [link for link in common.links() if link.startswith(f"gfr{fleet.instance}")]
    assert {path.name for path in fleet.state.iterdir()} == {"lock", "reserved"}


def test_the_hosts_of_another_state_folder_are_left_alone(tmp_path: pathlib.Path) -> None:
    """Links and namespaces are the machine's, whatever folder a fleet keeps its files in."""
    with own(Fleet) as ours:
        ours.up(1)
        stranger = Fleet(ours.instance)
        stranger.state = tmp_path
        for act in (lambda: stranger.up(1), stranger.down):
            with pytest.raises(common.RigError, match=f"{ours.bridge} is the bridge of the rig in {ours.state}"):
                act()
        assert ours.status() == {"gpu-01": "up"}


def test_a_host_that_is_made_again_has_the_address_that_its_neighbours_know(own_fleet: Fleet) -> None:
    own_fleet.up(3, SPECIAL)
    before = own_fleet.inside("gpu-03", "cat", "/sys/class/net/eth0/address")
    own_fleet.up(2, {"gpu-02": SPECIAL["gpu-02"]})
    own_fleet.up(3, SPECIAL)
    assert own_fleet.inside("gpu-03", "cat", "/sys/class/net/eth0/address") == before


def test_64_hosts() -> None:
    with own(Fleet) as fleet:
        fleet.up(64)
        assert set(fleet.status().values()) == {"up"}
