# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses of a machine, beside what `ip` says of them."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import interfaces

LISTED = f"import json, sys; sys.path[:0] = sys.argv[1:]; from {interfaces.__name__} import addresses; print(json.dumps(addresses()))"


def test_a_network_namespace_with_known_addresses() -> None:
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("makes a network namespace: needs root and iproute2")
    script = (
        "ip link set lo up && ip link add one type veth peer name two && ip link set one up && ip link set two up && "
        "ip addr add 10.1.30.41/24 dev one && ip addr add 10.1.30.42/24 dev one && ip addr add 192.168.9.1/24 dev two && "
        "ip addr add fd00:9::1/64 dev two nodad && ip addr add 169.254.3.3/16 dev two && ip route add default via 192.168.9.254 && "
        f"exec {sys.executable} -c '{LISTED}' {' '.join(sys.path[1:])} .collections"
    )
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found[0] == "192.168.9.1", "that of the default route comes first"
    assert set(found) == {"192.168.9.1", "10.1.30.41", "10.1.30.42", "fd00:9::1"} and len(found) == 4


def test_this_machine_knows_itself() -> None:
    assert all(one not in ("127.0.0.1", "::1") and not one.startswith(("169.254.", "fe80")) for one in interfaces.addresses())


@pytest.mark.parametrize(
    ("bits", "rate"),
    [
        ((), None),
        ((6, 13, 14, 16, 49, 50), None),  # what goes with any port and is no rate
        ((12, 31, 36), 100),
        ((12, 36, 66, 80), 200),
        ((38, 62, 89), 400),  # 400 Gb/s over four lanes, beside slower ones
        ((89, 92, 93), 800),
        ((90, 91, 92, 99, 102), None),
    ],
)
def test_the_fastest_mode_of_a_port(bits: tuple[int, ...], rate: int | None) -> None:
    assert interfaces.fastest(sum(1 << bit for bit in bits)) == rate


def test_an_interface_without_modes_has_no_rate() -> None:
    assert interfaces.most_gbps("lo") is None and interfaces.most_gbps("not-there") is None


def test_a_module_is_in_a_port_if_its_memory_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By struct ethtool_modinfo: the command, the kind of the memory and its length."""
    answer: tuple[int, int] | None = (3, 512)  # ETH_MODULE_SFF_8636

    def ioctl(_fd: int, request: int, room: bytes) -> int:
        assert request == 0x8946
        if answer is None:
            raise OSError(5, "Input/output error")
        name, address = struct.unpack("16sP", room)
        assert name.rstrip(b"\0") == b"ens1np0"
        assert ctypes.c_uint32.from_address(address).value == 0x42
        ctypes.memmove(address + 4, struct.pack("=II", *answer), 8)
        return 0

    monkeypatch.setattr(interfaces.fcntl, "ioctl", ioctl)
    for answer, found in (((3, 512), True), ((1, 256), True), ((0, 0), None), (None, None)):
        assert interfaces.has_module("ens1np0") is found


def test_a_device_without_modules_has_none() -> None:
    assert interfaces.has_module("lo") is None and interfaces.has_module("there-is-none") is None
