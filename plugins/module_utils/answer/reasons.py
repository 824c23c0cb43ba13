# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The closed list of reason codes: why a measurement or a verdict is what it is, and the exception that carries one.

This module util is PRIVATE to the collection. Add a code here before a probe, launcher or the verdict engine uses it; a code of one plane
stands in the module `reason_codes` of its folder, and the controller adds it (plugin_utils/records/reason_codes.py).
"""

from __future__ import annotations

import typing as t

# Outcome `error` with one of these is a defect of the machine: FAIL. Every other error is UNKNOWN.
FATAL = {
    "wrong_results": "the test computed wrong values",
    "gpu_lost": "a GPU has fallen off the bus or its driver lost it",
    "ecc": "uncorrectable memory errors, or a row remap that is pending or failed",
    "not_trained": "the training did not learn, or its numbers were not finite",
    "diagnostic_failed": "a test of the vendor's own diagnostic failed",
}

# Outcome `not_applicable` is accepted only under one of these rules: SKIPPED.
SKIP_RULES = {
    "single_gpu": "NCCL inside a node needs two GPUs; with one the bus bandwidth is 0 by definition",
    "mig_enabled": "MIG is on, whole-GPU numbers do not apply",
    "other_accelerator": "the test is for another kind of accelerators than the node has",
    "not_visible": "nothing that the check reads can be seen from the container or virtual machine, or no tool for it is installed",
    "no_gpu_expected": "the inventory says this machine has no GPU",
    "one_gpu": "the check is of several GPUs of a node, and the node has one",
    "no_mnnvl": "the check is about groups whose NVLink leaves the node, and that of these GPUs does not",
    "no_other_test": "the vendor's diagnostic ran no test besides those that are checks of their own",
    "one_numa_node": "the check is about memory far from a GPU, and all memory of the machine is near it",
    "one_port": "the check is of several RDMA ports of a node, and one is active",
    "no_rdma_expected": "the node has no RDMA device and no hardware for one, or the inventory says so",
    "no_reliable_connection": "no RDMA device of the node has the reliable connections that are measured, such as EFA",
    "sharing_cluster": "the case is for another kind of cluster (gpu_sharing_cluster)",
    "sharing_destructive": "the case disturbs the cluster, and gpu_sharing_destructive does not allow it",
    "sharing_no_node": "no node is set for the case (gpu_sharing_drain_node, gpu_sharing_stress_node)",
    "sharing_not_colocated": "the pods did not share one GPU, however often they were created",
    "sharing_too_short": "the loads ended within the time over which the system holds compute quotas (quota_window_s)",
    "sharing_unsupported": "the system that shares the GPUs lacks a feature of the case",
}

# Outcome `not_applicable` under one of these leaves a part of a node without a measurement that others have: WARN.
SKIP_WARNS = {
    "mig_partly": "MIG is on for some GPUs of the node, and the others were not measured either",
}

ERRORS = {
    "acl_failed": "Ascend's runtime (ACL) cannot be initialised",
    "agent_lost": "the agent that had started a node's ranks ended before they did",
    "bad_measurement": "what the node sent is not a measurement",
    "bad_output": "the tool's output is not of its format",
    "bmc_fault": "the management controller of the machine reports that a part has failed",
    "bmc_unreadable": "the management controller of the machine does not answer by Redfish, or only in part",
    "busy_gpu": "other processes use the GPU",
    "busy_run": "another acceptance run holds the node",
    "check_mode": "nothing is measured in check mode",
    "clock_off": "the clock of a machine is off by more than services between nodes bear",
    "clock_skew": "the clock of a node is too far from the API server's",
    "credentials": "the cluster, or the management controller, does not accept the credentials",
    "cuda_failed": "the runtime of the GPUs (CUDA, HIP) cannot be initialised",
    "diagnostic_skipped": "the vendor's diagnostic did not run a test, or not on all GPUs",
    "disk": "a disk has failed, or says that it is about to fail",
    "disk_full": "no space left on device",
    "driver_too_old": "the driver is older than the CUDA that the tool was built for",
    "duplicate_identity": "two subjects are the same GPU or machine",
    "fabric": "the NVLink fabric that a GPU belongs to is not ready or not whole",
    "false_alarm": "a test of the vendor's diagnostic ended for a reason that says nothing about the GPU",
    "file_system": "a file system is damaged, or read-only without being meant so",
    "forged_frame": "the log of a test holds a result that is not its own",
    "gid_changed": "a GID is not what it was when the test was planned",
    "gpu_count": "the number of GPUs is not the expected one",
    "gpu_fault": "the driver logged an error of a GPU that takes a reset or a repair",
    "gpu_invisible": "GPUs of the node are not visible to the tool",
    "gpu_reset": "the driver asks for a reset of a GPU",
    "gpu_state": "the state of a GPU cannot be read, or is less than that of its siblings",
    "guardian_lost": "the guardian of a lease was lost while it was held",
    "host_memory": "uncorrectable errors of the machine's memory",
    "imex": "IMEX, by which GPUs of one NVLink domain use the memory of other trays, does not work on a node",
    "incomplete_output": "the tool's output is cut",
    "interrupted": "the measurement was interrupted",
    "launch_failed": "the launcher could not start every rank",
    "lost_node": "the node was lost during the measurement",
    "machine_check": "the processor or the firmware reports a hardware error that was not corrected",
    "member": "a node of the group did not take part",
    "min_bw": "the tool itself missed its NCCL_TESTS_MIN_BW",
    "module_failed": "the module could not run on the node",
    "mount_full": "a file system that the inventory names has no space or no inode left",
    "mount_missing": "a file system that the inventory names is not mounted",
    "mount_read_only": "a file system that the inventory names cannot be written",
    "mount_stale": "a file system is mounted, and its server or its program does not know the mount any more",
    "name_resolution": "a name does not resolve on a node",
    "nic_fault": "a NIC, its cable or its transceiver has failed",
    "no_answer": "a part of the machine is there and does not answer, so its state is not known",
    "no_address": "the address of a node that other nodes of its group need is not known",
    "no_cpufreq": "the machine has no CPU frequency control",
    "no_expectation": "no expectation is known for this hardware",
    "no_gid": "no GID of the wanted network and kind",
    "no_governor": "the CPU frequency driver does not take this governor",
    "no_gpu": "no GPU was found",
    "no_launcher": "the cluster has no launcher for groups that works and that the account may use",
    "no_gpudirect": "perftest cannot use the memory of a GPU here",
    "no_loopback": "an RDMA port does not reach itself",
    "no_permission": "not permitted",
    "no_python": "no python3 on the node",
    "no_rdma": "no RDMA device was found",
    "no_result": "a test ended without a result in what it printed",
    "no_sample": "a value that an assertion needs was not measured",
    "no_sudo": "privileges could not be raised",
    "node_absent": "an expected node is not among the cluster's nodes",
    "not_mpi": "the binary is built without MPI: every rank ran alone",
    "not_run": "planned and never measured",
    "npu_alarm": "the driver of an NPU reports a fault",
    "nvlink": "a link between the GPUs of a node (NVLink, XGMI) is down or slow",
    "nvlink_domain": "an NVLink domain, such as a rack, lacks a node, is not the same on all of its nodes, or a node is in none",
    "other_way": "NCCL did not confirm that it used the measured rail and no other path",
    "out_of_memory": "a GPU, or the machine, has not enough memory for the test",
    "path_unknown": "a number is too low, and whether the slots and links of the hardware let it be higher is not known",
    "partner": "the other node of a pair did not connect",
    "pcie_error": "PCIe errors by which data or a device was lost",
    "pcie_unstable": "a PCIe link corrects more errors than the specification allows a link",
    "pcie_speed": "a GPU's PCIe link is slower under load than it can be",
    "pcie_width": "a PCIe link is narrower than it can be",
    "port_down": "an RDMA port is not active",
    "port_in_use": "a TCP port that a test needs is in use",
    "preflight": "a requirement of the stage is missing or differs",
    "raw_changed": "the file with the tool's output is gone or not what was written",
    "rank_died": "a rank was killed, or ended before it was done",
    "rank_hung": "a rank did not come to an operation in which the others waited for it",
    "rank_mismatch": "the ranks in the output are not those that were asked for",
    "read_only": "a file system that has to be written is read-only",
    "rendezvous": "a node did not come to the rendezvous",
    "reduced_size": "the tool reduced the message size that was asked for",
    "state_dir": "the state directory cannot be written",
    "tampered": "the journal was changed after it was written",
    "timeout": "the deadline passed",
    "tool_failed": "the tool ended with an error",
    "tool_missing": "a tool was not found",
    "tool_not_executable": "a tool cannot be executed",
    "torch_missing": "PyTorch is not installed",
    "unchecked": "the tool did not check its results",
    "unreachable": "the node cannot be reached",
    "unresolved": "the evidence does not show the cause",
    "unsupported": "the hardware or the tool does not support this",
    "usage": "the tool printed its usage text",
    "versions_differ": "nodes have different versions of software that must be the same on all",
    "xid_own": "the driver logged an application error of the test itself",
    "xid_unknown": "the driver logged an error whose meaning is not known",
}

# Of these the ones that are a defect where a health check found it (context.findings, or evidence of a test): FAIL. Another health check
# that does not find it any more takes it back, as after a repair.
DEFECTS = (
    "bmc_fault", "clock_off", "disk", "fabric", "file_system", "gpu_fault", "gpu_reset", "host_memory", "imex",
    "machine_check", "mount_full", "mount_missing", "mount_read_only", "mount_stale", "nic_fault", "npu_alarm", "nvlink", "nvlink_domain",
    "pcie_error", "pcie_speed", "pcie_unstable", "pcie_width",
)  # fmt: skip

# What a health check finds that is only worth a look: WARN.
MILD = {
    "bmc_event": "the management controller of the machine has logged an error, or a reading of it is not normal",
    "clock_free": "no service keeps the clock of a machine right",
    "clock_offset": "the clock of a machine is off",
    "clocks_locked": "the clocks of a GPU are held below what it can give",
    "cpu_stalled": "a processor, or a task in the kernel, was stuck for a long time, or the kernel met an error of its own",
    "diagnostic_warned": "a test of the vendor's diagnostic passed with a warning",
    "dimm_differs": "a memory module differs from the others of its machine",
    "dimm_lost": "the machine uses less memory than its modules have",
    "dimm_slow": "memory modules run slower than they are rated, and than platforms usually make them",
    "dimm_unbalanced": "memory modules are spread unevenly over the processors and slots of the machine",
    "disk_space": "a file system is nearly full",
    "disk_worn": "a disk is worn, hot or had errors, and does not say that it fails",
    "ecc_corrected": "more corrected memory errors of a GPU than a healthy one has",
    "ecc_off": "ECC is switched off",
    "ecc_past": "memory errors of the past, repaired and not pending",
    "gpu_elsewhere": "a GPU of the machine is held for virtual machines, or is not given to this process, and was not measured",
    "hardware_corrected": "a hardware error was corrected or ended the boot before, or the processor was too hot",
    "host_memory_corrected": "errors of the machine's memory that were corrected",
    "imex_owner": "nobody starts IMEX, which an NVLink domain needs, or two do",
    "not_mounted": "a file system that /etc/fstab lists, of a network or one that the machine may start without, is not mounted",
    "nic_event": "a NIC was too hot, short of power, did not send for a while, or had a fault that is over",
    "nvlink_domain_small": "an NVLink domain has fewer nodes than its product, and the run has no others of its rack",
    "nvlink_error": "more errors of the links between GPUs (NVLink, XGMI) than healthy links have",
    "fault_passed": "a fault of the machine came and went while the run went on",
    "past_error": "the machine had an uncorrected error before its last boot, and may have been repaired since",
    "pcie_corrected": "more corrected PCIe errors than a healthy link has",
    "pcie_nonfatal": "PCIe errors that were neither fatal nor lost data",
    "pcie_slow": "a PCIe link was slower than both of its ends can be when it was read; it may have slept",
    "pcie_slot": "a PCIe link is slower than the GPU can be, because of its slot or because the slot's speed is not known",
    "port_errors": "more errors of an RDMA port or its cable than a healthy one has",
    "port_unused": "an RDMA port is not active, and nobody says that it should be",
    "power_limit": "the power limit of a GPU is below its default",
    "unreadable_state": "the driver does not report a state that every GPU of this model has",
    "xid": "the driver logged an error of an application",
}

# Reasons that only a verdict carries.
VERDICTS = {
    "fabric": "the NVLink fabric is not set up",
    "foreign_process": "other processes use the GPU",
    "health": "the health check found something",
    "pcie_width": "a PCIe link is narrower than it can be",
    "above_physics": "the value is more than the hardware can give",
    "busy_host": "other programs used the processors of the machine while the number was measured",
    "below_floor": "the value is below what this hardware should give",
    "below_warn": "the value is below the passing band",
    "below_neighbours": "the value is far below that of identical neighbours",
    "cable_missing": "a cable is missing that the plan has, or that most nodes or leaves have",
    "cable_swapped": "two cables are exchanged",
    "cable_unknown": "where a cable leads is not known, or the plan has none there",
    "cable_wrong": "a cable is not plugged in where the plan, or most nodes or leaves, have theirs",
    "below_siblings": "the GPU or port is slower than its siblings in the node",
    "sweep_dip": "some sizes of a sweep are far below what its other sizes, or identical nodes, give",
    "no_peer_access": "a GPU reaches the others through the host's memory only, although it should reach them directly",
    "no_number": "the check has no number, although one is expected or it is no condition",
    "own_test": "a team's own test failed, by its exit status",
    "case_failed": "an assertion of the case does not hold",
    "drift": "the software stack differs from the golden values or from the majority",
    "errors_counted": "more errors were counted under load than the criterion allows",
    "evidence": "errors were counted while the test ran",
    "evidence_unreadable": "the evidence that the stage requires could not be read",
    "expired_waiver": "a waiver for this has expired",
    "soft_expectation": "an expectation of the inventory is far softer than the shipped one that it displaces",
    "incomplete": "parts of the subject were not measured",
    "loaded_since": "a load worked the machine after it was looked at for the last time",
    "localised": "it makes its group miss the floor",
    "identity_changed": "the name was another machine, or had other GPUs, in another stage",
    "late_data": "what one node has written and synced, another one reads more than a second later",
    "later_attempt": "it passed only on a later attempt",
    "power_unused": "a GPU draws less power than its limit allows, at low clocks, and names no reason",
    "rebooted": "the node was started anew during the run",
    "regression": "the value has become worse than the past of its own subject",
    "waived": "a known failure with a ticket",
    "bad_rail": "the matrix of pairs convicts a port, a node or a path",
    "firmware": "the firmware differs",
    "floating_image": "the container image has no tag or the tag latest",
    "link_slow": "a link is narrower or slower than its siblings",
    "mtu": "the MTU differs",
    "rail_order": "the rails are not cabled or named in the same order",
    "mount_differs": "a file system is mounted in another way than on the other nodes",
    "not_repeatable": "the same training with the same seed gave other numbers",
    "temperature": "a GPU is hotter than the other GPUs of its node or of its model",
    "throttled": "a GPU was held back by something else than its power limit",
    "unsteady": "the rate of a GPU under a constant load varied",
    "subnet_manager": "an InfiniBand fabric has no subnet manager, or several that are the master",
    "unknown_device": "an adapter in the fabric belongs to no node of the run",
    "straggler": "a rank computes slower than the others, which wait for it",
    "settings_differ": "a setting that selects an expectation differs from that of identical neighbours",
    "sides_differ": "the two sides of a test do not agree",
}

# A number that is too low, or a time that is too long: what a waiver covers that names no codes.
LOW = ("below_floor", "below_neighbours", "below_siblings")

ALL = {**FATAL, **SKIP_RULES, **SKIP_WARNS, **ERRORS, **MILD, **VERDICTS}
# Those of ALL that planes have brought. Only the controller has any: no probe says one.
BROUGHT: dict[str, str] = {}


def bring(codes: t.Mapping[str, str]) -> None:
    """Add the reason codes of a plane, {code: meaning}, to ALL: an error with one is UNKNOWN. Raise ValueError for a code that exists
    with another meaning."""
    for code, meaning in codes.items():
        if ALL.get(code, meaning) != meaning:
            raise ValueError(f"reason code {code!r} exists: {ALL[code]}")
    ALL.update(codes)
    BROUGHT.update(codes)


class ReasonedError(Exception):
    """A failure with a reason code of this module and a sentence a person can act on."""

    def __init__(self, reason_code: str, reason: str) -> None:
        super().__init__(reason)
        self.reason_code = reason_code
        self.reason = reason
