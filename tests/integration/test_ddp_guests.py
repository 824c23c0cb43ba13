# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage ddp over emulated guests with a kernel of their own, one of which is paused in the midst of a training."""

from __future__ import annotations

import concurrent.futures
import time
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.ddp import OPTIONS
from rigs import common, pytorch
from rigs.rdma.rdma import Guests, Options

pytestmark = [pytest.mark.rdma, pytest.mark.long]
# An emulated processor imports PyTorch in minutes, and torchrun of PyTorch 1.13 waits for five minutes at its exit for a node that is lost.
IMPORT_S = 240
SLOW: dict[str, t.Any] = {
    "backend": "gloo", "python": pytorch.PYTHON, "elements": 1024, "rounds": 1, "types": ["float32"], "sizes": "64K:64K",
    "collectives": ["all_reduce"], "iterations": 2, "warmup": 1, "fill_seconds": 0.0, "steps": 1000000, "width": 16, "batch": 16,
    "join_timeout": 900.0, "collective_timeout": 60.0, "localise": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def guests(rig_rdma: Guests) -> t.Iterator[Guests]:
    """Two guests with memory for PyTorch."""
    common.need_packages(pytorch.PACKAGES)
    rig_rdma.down()
    rig_rdma.up(2, dict.fromkeys(("rdma-01", "rdma-02"), Options(memory_mib=1024)))
    yield rig_rdma
    rig_rdma.down()
    rig_rdma.up(4, {"rdma-04": Options(cpus=2)})


def train(guests: Guests) -> list[dict[str, t.Any]]:
    """Return the answer of the head of a group that reaches its nodes by SSH: this test is the head."""
    members = [{"name": guest, "address": guests.address(guest), "hostname": guest, "gpus": 1} for guest in guests.hosts]
    validated = ArgumentSpecValidator(OPTIONS).validate({**SLOW, "members": members, "ssh_args": ["-F", str(guests.ssh_config)]})
    assert not validated.error_messages, validated.error_messages
    params = validated.validated_parameters
    params["checks"] = ddp.default_checks(params)
    return list(ddp.probe(params, Node(1800)))


def commands(guests: Guests, guest: str) -> list[str]:
    lines = guests.inside(guest, "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null; true")
    return [line for line in lines.splitlines() if "ddp.py" in line]


def test_a_guest_that_is_paused_in_the_midst_of_a_training_is_named(guests: Guests) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(train, guests)
        until = time.monotonic() + 1200
        while not any("order.json" in line for line in commands(guests, "rdma-02")):
            assert time.monotonic() < until and not answer.done()
            time.sleep(5)
        time.sleep(IMPORT_S)
        guests.pause("rdma-02")
        try:
            seen = answer.result(timeout=900)
        finally:
            guests.go_on("rdma-02")
    (trained,) = (one for one in seen if one["check"] == "training")
    assert trained["reason_code"] == "rank_hung", trained["reason"]
    assert trained["reason"].startswith("rank 1 on rdma-02, last in training step"), trained["reason"]
    until = time.monotonic() + 180
    while left := [line for guest in guests.hosts for line in commands(guests, guest)]:
        assert time.monotonic() < until, left
        time.sleep(5)
