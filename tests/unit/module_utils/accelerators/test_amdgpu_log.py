# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of amdgpu in the kernel's log, in the forms of its source and of readers that AMD publishes."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amdgpu_log, base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import kernel
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

AT = "0000:c1:00.0"
GPU = f"amdgpu {AT}: amdgpu: "


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{17} socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block", "ecc"),
        ("socket: 0, die: 1, 2 uncorrectable hardware errors detected in total in gfx block", "ecc"),
        ("1 uncorrectable hardware errors detected in umc block", "ecc"),
        ("socket: 0, die: 1, 2 new correctable hardware errors detected in umc block, no user action is needed", "ecc_past"),
        ("2 new deferred hardware errors detected in umc block", "ecc"),
        ("1 uncorrectable hardware errors detected in xgmi_wafl block", "nvlink"),
        ("1 uncorrectable hardware errors detected in pcie_bif block", "gpu_fault"),
        ("uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "gpu_fault"),
        ("Poison is created", "ecc"),
        ("poison is consumed by client 12, kick off gpu reset flow", "ecc"),
        ("Accelerator Check Architecture events logged", "xid"),
        ("aca entry[00].STATUS=0xdc2040000000011b", "xid"),
        ("Saved bad pages 128 reaches threshold value 128", "ecc"),
        ("GPU reset begin!", "gpu_reset"),
        ("GPU reset(2) failed", "gpu_lost"),
        ("Mode2 reset failed", "gpu_lost"),
        ("GPU reset(2) succeeded!", "xid"),
        ("ring sdma0.0 timeout, signaled seq=1, emitted seq=3", "gpu_fault"),
        ("qcm fence wait loop timeout expired", "gpu_fault"),
        ("Failed to evict process queues", "gpu_fault"),
        ("The cp might be in an unrecoverable state due to an unsuccessful queues preemption", "gpu_fault"),
        ("[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770, for process x pid 4242 thread x pid 4242)", "xid"),
        ("VM_L2_PROTECTION_FAULT_STATUS:0x00840051", "xid"),
        ("Fatal error during GPU init", "gpu_lost"),
        ("hw_init of IP block <gfx_v9_4_3> failed -22", "gpu_lost"),
        ("device lost from bus!", "gpu_lost"),
        ("WARN: GPU is throttled, expect performance decrease", "xid"),
        ("Runlist is getting oversubscribed due to too many queues. Expect reduced ROCm performance.", "xid"),
        ("psp gfx command LOAD_TA(0x1) failed and response status is (0x7)", "xid"),
    ],
)
def test_a_line_of_each_kind(message: str, code: str) -> None:
    for prefix in (GPU, f"amdgpu {AT}: "):
        event = amdgpu_log.read(prefix + message)
        assert event and (event.of.code, event.where) == (code, AT), message
        assert event.of.code in reasons.ALL and message[8:40].strip() in event.line


@pytest.mark.parametrize(
    "line",
    [
        f"{GPU}no uncorrectable hardware errors detected in umc block",
        f"{GPU}0 correctable hardware errors detected in umc block",
        f"{GPU}RAS INFO: ras initialized successfully, hardware ability[77f7f] ras_mask[77f7f]",
        f"{GPU}Using BACO for runtime pm",
        "kfd kfd: amdgpu: added device 1002:74a1",
        "[drm] Initialized i915 1.6.0 for 0000:00:02.0 on minor 0",
        "[drm:intel_dp_start [i915]] *ERROR* failed to enable link training",
        "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.",
        "pcieport 0000:c0:01.1: AER: Uncorrected (Fatal) error received",
        "",
    ],
)
def test_a_line_that_is_no_error_of_the_driver(line: str) -> None:
    assert amdgpu_log.read(line) is None


def test_errors_of_the_slot_are_left_to_the_machine() -> None:
    line = f"amdgpu {AT}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)"
    found = kernel.read(line)
    assert amdgpu_log.read(line) is None and found and found.code == "pcie_error"


@pytest.mark.parametrize(
    "line", [f"amdgpu: probe of {AT} failed with error -22", f"amdgpu {AT}: probe with driver amdgpu failed with error -22"]
)
def test_a_gpu_that_did_not_start_is_lost_until_the_driver_is_loaded_again(line: str) -> None:
    event = amdgpu_log.read(line)
    assert event and (event.where, event.of.code, event.until_load) == (AT, "gpu_lost", True)
    assert amdgpu_log.is_load("[drm] amdgpu kernel modesetting enabled.") and not amdgpu_log.is_load(line)
    accelerator = registry.make("amd", Node(1))
    logged, loaded = accelerator.logged(line), accelerator.takes_back("[drm] amdgpu kernel modesetting enabled.")
    assert logged and loaded and base.standing([(logged, 1), (loaded, 2)]) == []


def test_a_reset_that_succeeded_stands_instead_of_its_begin() -> None:
    begun, done = (amdgpu_log.read(f"{GPU}{words}") for words in ("GPU reset begin!", "GPU reset(4) succeeded!"))
    assert begun and done and begun.name == done.name and done.of.code in reasons.MILD


def test_a_fault_of_our_own_test_is_told_from_others() -> None:
    event = amdgpu_log.read(f"{GPU}[gfxhub0] page fault (src_id:0 ring:0 vmid:1 pasid:3, for process python3 pid 4242 thread x pid 4243)")
    assert event and (event.pid, event.of.own_code) == (4242, "xid_own")


def test_a_queue_that_hung_is_named_by_drm_without_an_address() -> None:
    event = amdgpu_log.read("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3")
    assert event and (event.where, event.name) == (None, "ring timeout")
