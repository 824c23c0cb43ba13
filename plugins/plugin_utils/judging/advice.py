# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next step of a technician for each reason code of a verdict that is no PASS.

The reason of a verdict says what was found; the advice is the next step of whoever is to repair it. A plane brings that of its own codes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import reason_codes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation

# More steps than these are no advice.
MOST = 3

_AGAIN = "Measure the node again; if it stays, take the node out of service and give the evidence to its vendor."
_ALONE = "Stop the other work on the node, or wait for its end, and measure again."
_INSTALL = "Install the program on the node or in the image, or name its path in the variables of the stage, and measure again."
_READ_LOG = "Read the tool's output below, correct what it names, and measure again."
_RUN_AGAIN = "Nothing was measured: run again on this node."
_SETTINGS = "Compare the settings of the node with those of a node that passes, make them equal, and measure again."
_SLOW = "Compare temperatures, clocks, links and error counters with those of a node that passes; if it stays, replace the part."

ADVICE: t.Mapping[str, str] = {
    # Defects that a test has shown.
    "wrong_results": "Take the node out of service. Run the vendor's diagnostic, then replace the part that it names.",
    "gpu_lost": "Read the GPU's last messages in the kernel log and cut the power of the node; if it is lost again, reseat or replace it.",
    "ecc": "Reset the GPU or restart the node so that pending remaps are made; replace the GPU if errors come back or a remap failed.",
    "not_trained": "Run the tests of single GPUs on this node: wrong arithmetic of one of them is the usual cause.",
    "diagnostic_failed": "Follow what the vendor's diagnostic says in its output; replace the part if it fails again after a restart.",
    # Defects that a health check has shown.
    "bmc_fault": "Read the event log of the management controller and replace the part that it names.",
    "clock_off": "Start the time service of the machine (chrony or ntpd) and wait until it is synchronised.",
    "disk": "Save what is on the disk and replace it.",
    "fabric": "Restart the service that manages the links between the GPUs, and look at the state of all GPUs of the fabric.",
    "fault_passed": "Find the part in the event log; replace it, or load the machine again and see whether the fault comes back.",
    "file_system": "Unmount the file system and check it (fsck); look in the kernel log for errors of the disk below it.",
    "mount_differs": "Mount it as on the other nodes; /etc/fstab or the units of systemd say how this node does.",
    "mount_full": "Remove what is no longer needed, or name another file system in acceptance_storage.",
    "mount_missing": "Mount it, and see in the system's log why the machine did not when it started.",
    "mount_read_only": "Look in the kernel log for the error that made it read-only; repair the disk or the server, and mount it again.",
    "mount_stale": "Unmount it (umount -l) and mount it again; look at its server if it comes back.",
    "gpu_fault": "Look the error up in docs/xids.md, reset the GPU or restart the node, and replace the GPU if it comes back.",
    "nvlink_domain": "Look at the links of the tray and at its switch trays, and compare what the finding names with the other trays.",
    "nvlink_domain_small": "Measure all trays of the rack in one run, or set acceptance_nvlink_domain_trays.",
    "imex": "Look at the service and the log of IMEX on the node, and at its list of nodes; all trays of a domain have the same.",
    "imex_owner": "Let one system start IMEX, and say in stack_imex which one.",
    "gpu_reset": "Drain the node and reset the GPU, or restart the node.",
    "host_memory": "Replace the memory module that the evidence names.",
    "machine_check": "Read the event log of the management controller; replace the processor or the module that it names if it comes back.",
    "nic_fault": "Clean or replace the cable and the transceiver; if it stays with another cable, replace the NIC.",
    "npu_alarm": "Look the alarm up in the manual of its vendor, reset the device, and replace it if the alarm comes back.",
    "nvlink": "Reset all GPUs of the node together or restart it; if the link stays down, replace the GPU or its board.",
    "pcie_error": "Reseat the card and its riser; if errors come back in another slot, replace the card.",
    "pcie_speed": "Reseat the card and look at the speed that the firmware setup allows for its slot.",
    "pcie_unstable": "Reseat the card, its riser or cable; if errors stay, replace the retimer, the riser or the card.",
    "pcie_width": "Reseat the card and its riser; if the link stays narrow in another slot, replace the card.",
    # Numbers that are too low.
    "above_physics": "Look at how it was measured: clock of the machine, version of the tool, and the hardware that it says it has.",
    "below_floor": _SLOW,
    "below_warn": _SLOW,
    "below_neighbours": _SLOW,
    "below_siblings": "Compare cable, slot, temperature and clocks with the others of its node; swap it with one of them.",
    "no_peer_access": "Look at the links between the GPUs, the service that manages them, and ACS and IOMMU of the slots; measure again.",
    "late_data": "Look at the mount options (actimeo, nocto, noac) and at the clocks and locks of the server; measure again.",
    "sweep_dip": "Compare the settings that choose algorithm and protocol, and the tool's versions, with those of a node that passes.",
    "regression": "Look at what changed on the node since (page of the node, What changed), and measure again.",
    "later_attempt": "Measure again, several times: what passes only sometimes has a loose contact, or is disturbed by something.",
    "not_repeatable": "Run the tests of single GPUs on this node, and look for memory errors: the same seed must give the same numbers.",
    "unsteady": "Look at temperature, power and other work on the node during the test, and measure again.",
    "straggler": "Run the tests of single GPUs on the named node: its GPU, its processor or its data is slower than the others.",
    "temperature": "Look at fans, cold plates, coolant and the air in front of the node; renew the thermal paste if only one GPU is hot.",
    "throttled": "Look at cooling and power supplies of the node: the evidence names what held the GPU back.",
    "power_unused": "Look at power cables, power limits and locked clocks of the GPU, and compare with its siblings.",
    "link_slow": "Reseat the card or the cable of the named link, and measure again.",
    "bad_rail": "Look at the named port: clean or replace cable and transceiver, then the port of the switch, then the NIC.",
    "localised": "Take the named part out of the group and measure the group again; repair the part by itself.",
    "errors_counted": "Find the part whose counter rose in the evidence; clean or replace its cable, or reseat it.",
    "evidence": "Look the errors up that were counted during the test; repair the part that they name, and measure again.",
    "loaded_since": "Resume the run, which looks at the machine again.",
    "rebooted": "Find out why the node restarted: power supply, temperature, or a panic in the log of the boot before.",
    "rank_hung": "Look at the node and GPU that is named: its driver's log, its links, and whether its process still runs.",
    "rank_died": "Look at the end of the tool's output and in the kernel log of the named node for why the process died.",
    # Settings and versions.
    "drift": "Make the named facts those of the other nodes: a version, a setting, or a part that is missing or of another kind.",
    "driver_too_old": "Install a driver that is new enough for the tool, or a tool that was built for this driver.",
    "firmware": "Bring the firmware of the node to the version that the others have.",
    "versions_differ": "Install the same version on all nodes of the group.",
    "settings_differ": _SETTINGS,
    "sides_differ": _SETTINGS,
    "mtu": "Set the same MTU at both ends and on the switches between them.",
    "cable_missing": "Plug in the cable that the finding names, or reseat it at both ends, and measure again.",
    "cable_swapped": "Exchange the two cables that the finding names at their switch, and measure again.",
    "cable_unknown": "Compare the plan of the cables with the names of nodes, ports and switches that the finding has.",
    "cable_wrong": "Plug the cable in where the finding says that it belongs, and measure again.",
    "subnet_manager": "Start one subnet manager in the fabric, or stop all but one, and measure again.",
    "unknown_device": "Name the adapters that may be in the fabric in fabric_map_others, and unplug the others.",
    "rail_order": "Cable or name the rails in the same order on all nodes.",
    "floating_image": "Name the image by a fixed tag or by its digest.",
    "health": "Follow the findings of the health check.",
    "identity_changed": "Find out which machine has this name: check the address in the inventory, and run again on it.",
    "duplicate_identity": "Remove one of the two names of this machine from the inventory; cloned machines need machine ids of their own.",
    "gpu_count": "Look for the missing GPU in the list of PCI devices; if fewer are intended, set acceptance_gpu_count.",
    "gpu_invisible": "Look at the variables and the device plugin that choose which GPUs a process sees.",
    "gpu_state": "Read the state of the GPU with its vendor's tool, and restart the node if it does not answer.",
    "port_down": "Look at the cable, at the port of the switch and at the configuration of the port.",
    "port_errors": "Clean or replace the cable or its module, reset the counters, and look whether they grow again.",
    "port_unused": "Connect the port, or leave it out by the variables of the stage if it is not used.",
    "gid_changed": "Look at why addresses of the port change, such as a restarted network service, and run again.",
    "no_gid": "Give the port an address of the network that the variables of the stage name.",
    "no_answer": "Restart the part that is named, or its driver, and measure again; a part that still does not answer has failed.",
    "no_address": "Set acceptance_fabric_address or acceptance_fabric_network for the node.",
    "name_resolution": "Add the name to the DNS or to /etc/hosts of the node.",
    "other_way": "Look at which device the tool has used in its output, and at the variables that choose it.",
    "path_unknown": "Measure a machine that is known to be good and set acceptance_expectations, or run gpufleet.acceptance.baseline.",
    "no_expectation": "Set a floor in acceptance_expectations, or run gpufleet.acceptance.baseline on machines that are known to be good.",
    "soft_expectation": "Look at whether the softer floor of the inventory is meant; remove it if not.",
    "expired_waiver": "Repair what the waiver was for, or renew it with its ticket.",
    "waived": "Nothing now: the ticket of the waiver is where it is followed.",
    # Things that are worth a look.
    "bmc_event": "Read the event log of the management controller.",
    "clock_free": "Install and start a time service (chrony or ntpd).",
    "clock_offset": "Look at the source of the machine's time service.",
    "clocks_locked": "Unlock the clocks of the GPU unless the limit is meant.",
    "cpu_stalled": "Look in the kernel log at what the processor was doing, and update the kernel or the driver that it names.",
    "diagnostic_warned": "Read the warning in the output of the vendor's diagnostic.",
    "dimm_differs": "Exchange the module for one like the others.",
    "dimm_lost": "Reseat or replace the module that the firmware has switched off.",
    "dimm_slow": "Compare the speed with the order and with what the processor can do; look at the firmware's memory settings and its log.",
    "dimm_unbalanced": "Look whether the empty slots should have modules; reseat or replace what the firmware does not see.",
    "disk_space": "Remove what is not needed from the file system, or enlarge it.",
    "disk_worn": "Plan to replace the disk.",
    "ecc_corrected": "Watch whether the number grows, and have the GPU looked at by its vendor if it does.",
    "ecc_off": "Switch ECC on and restart the node.",
    "ecc_past": "Nothing now; watch whether the number of errors grows.",
    "hardware_corrected": "Watch whether it comes back; look at cooling if the processor was too hot.",
    "host_memory_corrected": "Watch whether the number of errors grows; replace the module if it does.",
    "not_mounted": "Mount the file system, or take its entry out of /etc/fstab.",
    "nic_event": "Look at the cooling and the power of the slot of the NIC that the evidence names, and watch whether it comes back.",
    "past_error": "Find out whether the part was repaired since; if nobody did, measure the node under load.",
    "gpu_elsewhere": "Give the GPU to the host's driver, or to the job or container that measures, or exclude it from what is accepted.",
    "mig_partly": "Switch MIG off on the named GPUs and measure the node as a whole, or accept that its other GPUs were not measured here.",
    "nvlink_error": "Reset the GPUs so that the counters begin anew, and look at board, tray or cables if they grow again.",
    "pcie_corrected": "Reseat the card and its riser, and watch whether the number of errors grows.",
    "pcie_nonfatal": "Reseat the card and its riser, and watch whether the number of errors grows.",
    "pcie_slow": "Look at the speed of the link under load; if it stays slow, reseat the card.",
    "pcie_slot": "Put the card into a faster slot, or look up the speed of the slot.",
    "power_limit": "Set the power limit of the GPU to its default unless the limit is meant.",
    "unreadable_state": "Compare the versions of driver and firmware with those of a GPU that reports the state.",
    "xid": "Look the error up in docs/xids.md; an application may have caused it.",
    "xid_own": _READ_LOG,
    "xid_unknown": "Look the error up at the vendor, and watch whether it comes back.",
    # What was not measured.
    "acl_failed": "Look at the versions of driver and runtime on the node, and whether the user may open the devices.",
    "cuda_failed": "Look at the versions of driver and runtime on the node, and whether the user may open the devices.",
    "bmc_unreadable": "Look at the address, the user's rights and the certificate of the management controller, and run again.",
    "torch_missing": "Install PyTorch for this node, or name the Python that has it in the variables of the stage.",
    "tool_missing": _INSTALL,
    "tool_not_executable": "Make the program executable, or name another one in the variables of the stage.",
    "tool_failed": _READ_LOG,
    "usage": _READ_LOG,
    "bad_output": "Use a version of the tool that the documentation of the stage names.",
    "incomplete_output": _RUN_AGAIN,
    "no_result": "Look in its raw log, and where it was started, at how the test ended; correct the cause, and measure again.",
    "no_number": "Look at the tool's output for why it printed no number.",
    "unchecked": "Use a build of the tool that checks its results.",
    "reduced_size": "Choose smaller sizes in the variables of the stage, or free memory of the GPUs.",
    "min_bw": "Remove the tool's own limit from the environment: this collection judges by its expectations.",
    "not_mpi": "Use a build of the tool with MPI.",
    "rank_mismatch": "Look at the launcher's host file and options in the tool's output.",
    "launch_failed": "Look at what the launcher says in its output: SSH between the nodes, its version, the hosts that it names.",
    "no_launcher": "Install a launcher that docs/launchers.md names.",
    "agent_lost": _RUN_AGAIN,
    "member": "Look at why the named node did not take part, and run again on the group.",
    "rendezvous": "Look at the network between the named nodes: addresses, firewalls and ports.",
    "partner": "Look at the other node of the pair: it did not connect.",
    "busy_gpu": _ALONE,
    "foreign_process": _ALONE,
    "busy_host": _ALONE,
    "busy_run": "Wait for the end of the other run, or cancel it.",
    "port_in_use": "Stop what uses the port, or choose another one in the variables of the stage.",
    "case_failed": "Read the assertion and the evidence of the case.",
    "check_mode": "Run without check mode.",
    "clock_skew": "Synchronise the clock of the node with that of the API server.",
    "credentials": "Renew the credentials for the cluster.",
    "no_permission": "Give the user the right that is named.",
    "no_sudo": "Allow the user to become root, or connect as root.",
    "no_python": "Install python3 on the node or in the image.",
    "state_dir": "Make the state directory writable, or name another one in acceptance_root.",
    "read_only": "Make the file system writable: look in the kernel log for why it is not.",
    "disk_full": "Free space on the node.",
    "out_of_memory": "Stop the other work on the node, or choose smaller sizes.",
    "timeout": "Look at what the node was doing; raise the time limit in the variables of the stage if it was only slow.",
    "interrupted": _RUN_AGAIN,
    "not_run": _RUN_AGAIN,
    "incomplete": "Look at why parts were not measured, and run again on this node.",
    "lost_node": "Look at whether the node is up and can be reached, and run again on it.",
    "unreachable": "Look at whether the node is up, and at its address and keys in the inventory.",
    "guardian_lost": _RUN_AGAIN,
    "module_failed": "Read the error; run again with -vvv if it does not say enough.",
    "bad_measurement": _RUN_AGAIN,
    "forged_frame": "Find out which program on the node writes results that are not its own.",
    "raw_changed": "The evidence was changed after it was written: run again.",
    "tampered": "The journal was changed after it was written: run again.",
    "unresolved": _AGAIN,
    "evidence_unreadable": "Give the run what it needs to read error counters, such as root, and measure again.",
    "no_sample": "Look at whether the exporter or tool of the value runs on the node.",
    "preflight": "Meet the requirement that is named, and run again.",
    "own_test": _READ_LOG,
    "unsupported": "Leave the test out for this hardware by the variables of the stage.",
    "no_gpu": "Look for the GPUs in the list of PCI devices and for the driver; set acceptance_gpu_count: 0 if the node has none.",
    "no_gpudirect": "Load the kernel module for peer memory, or use a driver with DMA-BUF.",
    "no_loopback": "Test the port against another node.",
    "no_rdma": "Look for the devices in the list of PCI devices and for their driver.",
    "no_governor": "Set the governor of the stage's variables to an empty text, or use another driver of the processor's frequency.",
    "no_cpufreq": "Set the governor of the stage's variables to an empty text: it is left as it is.",
    "diagnostic_skipped": "Read in the diagnostic's output why it left the test out.",
    "false_alarm": "Read the reason, correct it, and run the diagnostic again.",
    "node_absent": "Look at whether the node has joined the cluster.",
    **reason_codes.ADVICE,
}


_MEANT = "if it is meant so, say so in stack_golden"
# What to do about a fact that deviates, by its name; OF_FACTS has the facts that are parts of a machine, others are installed or set.
_SET = f"Install the version or set the setting that the other nodes have; {_MEANT}."
OF_FACTS: t.Mapping[str, str] = {
    "dimms": f"Reseat the memory module of the named slot; replace it if the firmware still does not see all of it; {_MEANT}.",
    "memory_gib": "Compare the memory modules with those of the other nodes slot by slot, and reseat or replace what is missing.",
    "nvme_disks": f"Reseat the disk that is missing, and replace it if it does not come back; {_MEANT}.",
    "gpu_count": "Look for the missing GPU in the list of PCI devices and reseat it; if fewer are intended, set acceptance_gpu_count.",
    "gpu_pcie": "Reseat the GPU and its riser; if the link stays slow or narrow in another slot, replace the GPU.",
    "nic_count_*": f"Look for the missing NIC in the list of PCI devices; reseat or replace it; {_MEANT}.",
    "free_disk_gib_*": ADVICE["disk_space"],
    "clock_offset_s": ADVICE["clock_offset"],
}
_UNREADABLE = "Give the run what it needs to read the fact (its reason says what is missing), and measure again."


def of(verdicts: t.Iterable[Verdict], drift: t.Mapping[str, t.Sequence[Deviation]]) -> list[str]:
    """Return what to do about these verdicts, for the worst first, at most MOST steps. `drift` has the deviating facts by node."""
    ranked = sorted(verdicts, key=lambda verdict: -SEVERITY[verdict.verdict])
    steps = (step for verdict in ranked for step in _steps(verdict, drift))
    return list(dict.fromkeys(step for step in steps if step))[:MOST]


def _steps(verdict: Verdict, drift: t.Mapping[str, t.Sequence[Deviation]]) -> t.Iterable[str]:
    """Return the steps of one verdict; of facts that deviate, one for each kind of fact, the grave ones first."""
    items = drift.get(verdict.subject.id, ()) if verdict.reason_code == "drift" else ()
    if not items:
        return (ADVICE.get(verdict.reason_code or "", ""),)
    return [_of_fact(item) for item in sorted(items, key=lambda item: item.get("severity") != "fail")]


def _of_fact(item: Deviation) -> str:
    if item["found"].startswith("unreadable"):
        return _UNREADABLE
    return next((step for pattern, step in OF_FACTS.items() if fnmatch.fnmatchcase(item["item"], pattern)), _SET)
