# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The soft-RoCE rig is what its README says."""

from __future__ import annotations

import subprocess
import time

import pytest
from rigs import common
from rigs.rdma.rdma import GOVERNORS, Guests

pytestmark = [pytest.mark.rdma, pytest.mark.long]


def write_bw(guests: Guests, server: str, client: str, rail: int, iterations: int = 100) -> float:
    """Bandwidth in Gb/s between two guests; 0.0 where the pair did not get to a row."""
    test = ["timeout", "-k", "5", "60", "ib_write_bw", "-F", "-d", f"mlx5_{rail}", "-x", "1", "-s", "65536"]
    test += ["-n", str(iterations), "--report_gbits"]
    listener = subprocess.Popen(guests.ssh(server, *test), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while ":4853 " not in guests.inside(server, "cat", "/proc/net/tcp", "/proc/net/tcp6"):  # 18515, listening
        assert time.monotonic() < until
        time.sleep(0.1)
    command = guests.ssh(client, *test, guests.rail_address(server, rail))
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    listener.wait(90)
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["65536"]]
    return float(rows[0][3]) if rows else 0.0


def test_a_pair_on_both_rails_and_a_slow_link(rig_rdma: Guests) -> None:
    rates = [write_bw(rig_rdma, "rdma-01", "rdma-02", rail) for rail in (0, 1)]
    assert min(rates) > 0.01, rates
    rig_rdma.slow("rdma-02", 1, "5mbit")
    try:
        slow = write_bw(rig_rdma, "rdma-01", "rdma-02", 1, 20)
        assert 0 < slow < 0.2 * rates[1], (slow, rates)
        slow = write_bw(rig_rdma, "rdma-02", "rdma-01", 1, 20)
        assert 0 < slow < 0.2 * rates[1], (slow, rates)
    finally:
        rig_rdma.fast("rdma-02", 1)
    assert write_bw(rig_rdma, "rdma-01", "rdma-02", 1) > 3 * slow


def test_governors_are_real(rig_rdma: Guests) -> None:
    assert [rig_rdma.governors(guest)[0] for guest in rig_rdma.hosts] == list(GOVERNORS)
    assert rig_rdma.governors("rdma-04") == ["performance", "performance"]
    rig_rdma.set_governor("rdma-04", "powersave", cpu=1)
    assert rig_rdma.governors("rdma-04") == ["performance", "powersave"]
    rig_rdma.set_governor("rdma-04", "performance", cpu=1)
    with pytest.raises(common.RigError):
        rig_rdma.set_governor("rdma-01", "turbo")
    assert rig_rdma.governors("rdma-01") == ["powersave"]


def test_port_down_and_packets_lost(rig_rdma: Guests) -> None:
    def state() -> str:
        return rig_rdma.inside("rdma-02", "cat", "/sys/class/infiniband/mlx5_1/ports/1/state").strip()

    rig_rdma.link_down("rdma-02", 1)
    try:
        assert state() == "1: DOWN"
    finally:
        rig_rdma.link_up("rdma-02", 1)
    until = time.monotonic() + 60
    while state() != "4: ACTIVE":
        assert time.monotonic() < until
    rig_rdma.lose("rdma-03")
    try:
        assert not common.answers_ssh(rig_rdma.address("rdma-03"))
    finally:
        rig_rdma.heal("rdma-03")
    assert common.answers_ssh(rig_rdma.address("rdma-03"), timeout=60)


def test_mtu(rig_rdma: Guests) -> None:
    active = "ibv_devinfo -d mlx5_0 | grep active_mtu"
    assert "4096" in rig_rdma.inside("rdma-03", "sh", "-c", active)
    rig_rdma.set_mtu("rdma-03", 0, 1500)
    assert "1024" in rig_rdma.inside("rdma-03", "sh", "-c", active)
    rig_rdma.set_mtu("rdma-03", 0, 4200)


def test_power_cut_keeps_the_disk_and_what_the_guest_is_born_with(rig_rdma: Guests) -> None:
    rig_rdma.inside("rdma-03", "sh", "-c", "touch /var/lib/kept /tmp/lost && sync /var/lib")
    rig_rdma.set_governor("rdma-03", "performance")
    boot = rig_rdma.inside("rdma-03", "cat", "/proc/sys/kernel/random/boot_id")
    rig_rdma.power_off("rdma-03")
    assert rig_rdma.status()["rdma-03"] == "down"
    rig_rdma.power_on("rdma-03")
    assert rig_rdma.inside("rdma-03", "cat", "/proc/sys/kernel/random/boot_id") != boot
    assert rig_rdma.inside("rdma-03", "sh", "-c", "ls /var/lib/kept; test ! -e /tmp/lost") == "/var/lib/kept\n"
    assert rig_rdma.governors("rdma-03") == ["ondemand"]
    rig_rdma.inside("rdma-03", "rm", "/var/lib/kept")
