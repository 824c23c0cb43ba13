# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs, by nvidia-smi.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import installed, reasons, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, cuda, nccl_settings, xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

# The first query after boot without persistence mode initialises every GPU, some 2 s each.
QUERY_TIMEOUT_S = 60.0
# A tool that had less time says nothing of the devices: loading the driver alone may take seconds on a machine without persistence.
ANSWER_S = 30.0
# What the sampler asks for. The last is the older name of its field; drivers of both generations answer to it.
SAMPLED = (
    "uuid", "clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active",
    "utilization.gpu", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
SERIES = {1: "sm_clock", 2: "power", 3: "temperature", 6: "pcie_gen", 7: "pcie_width"}
INTERVAL_MS = 1000
# From this utilisation on a GPU works. It is the share of the last second or less in which a kernel ran.
WORKS_PERCENT = 50
# Bits of the active reasons (nvml.h, nvmlClocksEventReason*).
THROTTLE = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
# Those that no machine in order shows under load, and the driver's own counter of the time spent in them.
BAD_THROTTLE = {
    "hw_slowdown": None,
    "sw_thermal_slowdown": "sw_therm_slowdown",
    "hw_thermal_slowdown": "hw_therm_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
}
# Reasons for a clock below the highest that lie in the load or in the cooling, which other checks judge; the last is no work at all.
EXPLAINED = frozenset(
    ("sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "gpu_idle")
)
# A clock below this share of what the settings allow, under load and without such a reason, is held there (`nvidia-smi -lgc`).
CLOCK_SHARE = 0.9
# The PCIe generation of nearly all hosts there are (2026), whatever a GPU could do: no news where the slot's speed is hidden.
HOSTS_PCIE = 5
# A power limit is set in whole watts.
POWER_SLACK_W = 1.0
# A link below this share of its model's rate was trained to a lower one; what drivers print of whole links differs by 6 %.
LINK_SHARE = 0.9
# How many pages of V100 and older may be retired before NVIDIA replaces the GPU (Dynamic Page Retirement, RMA policy).
PAGES_RETIRED = 60

# NVLinks of models that are soldered to a board, their rate in GB/s, and how many GPUs of the board must be there for each link to be
# connected to a switch or another GPU: with a part of a board without switches the links to the others are down. Sources as of
# judging/physics.py, whose numbers these are (a test holds them against each other). Bridged cards (H100 NVL, H200 NVL, A100 PCIe ...)
# may have none, and of GH200 it depends on the machine.
BOARDS: tuple[tuple[str, int, float, int], ...] = (
    (r"NVIDIA H100 80GB HBM3|NVIDIA H200|NVIDIA H20(-3e)?", 18, 25.0, 4),
    (r"NVIDIA H800", 8, 25.0, 4),
    (r"NVIDIA (B200|B300|GB200|GB300)( .*)?", 18, 50.0, 4),
    (r"NVIDIA A100-SXM.*", 12, 25.0, 4),
    (r"NVIDIA A800-SXM.*", 8, 25.0, 4),
    (r"(Tesla|NVIDIA) V100-SXM.*", 6, 25.0, 8),
)

# Grace superchips, whose GPU and CPU are joined by NVLink-C2C.
SUPERCHIP = re.compile(r"NVIDIA G[HB]\d")

# Models whose memory always has ECC counters (datasheets).
HAS_ECC = re.compile(
    r"NVIDIA (GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|A30|A40|A10|A10G|A16|A2|L4|L20|L40|L40S)\b.*"
    r"|(Tesla|NVIDIA) (V100S?|T4|P100)\b.*"
)

Run = t.Callable[..., t.Any]


# The number that NCCL gives as its version, on a line of its own.
ASK_NCCL = """
try:
    import ctypes
    number = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    print("NCCL", number.value)
except (OSError, AttributeError):
    pass
"""


class Nvidia(base.Accelerator):
    kind = "nvidia"
    plural = "NVIDIA GPUs"
    brands: t.Mapping[str, str] = {"Tesla": "NVIDIA"}
    tool = "nvidia-smi"
    option = "nvidia_smi"
    visible = "CUDA_VISIBLE_DEVICES"
    visible_by_uuid = True
    torch = "cuda"
    collectives = "nccl"
    # Display and 3D controllers.
    pci = ("0x10de", ("0x0300", "0x0302"))
    container: t.Mapping[str, t.Sequence[str]] = {
        "docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all"), "apptainer": ("--nv",),
    }  # fmt: skip
    runtime_all: t.Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    runtime_none: t.Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "void"}
    resource = "nvidia.com/gpu"
    selector = "nvidia.com/gpu.present=true"
    peer_memory = ("nvidia_peermem", "nv_peer_mem")
    modules = (*peer_memory, "gdrdrv")
    perftest_device, perftest_dmabuf = "--use_cuda_bus_id", "--use_cuda_dmabuf"
    programs: t.Mapping[str, str] = {"fabric_manager": "nv-fabricmanager", "container_nvidia-ctk": "nvidia-ctk"}
    units: t.Mapping[str, str] = {"fabric_manager_state": "nvidia-fabricmanager.service"}
    library_facts = ("cuda*", "nccl*")
    pod_facts = ("fabric_manager", "fabric_manager_state", "nccl_python", "nccl_loaded")
    image_facts = ("nccl_system", "driver_kind")
    python_script = ASK_NCCL
    link_code = "nvlink_error"
    link = "NVLink"
    links_code = "nvlink"
    log_code = "xid"
    bad_throttle = BAD_THROTTLE
    sample_s = INTERVAL_MS / 1000

    def snapshot(self) -> base.Snapshot:
        return {**_snapshot(self.node.run, self.program), "kind": self.kind}

    def health(self, device: base.Device) -> list[tuple[str, str]]:
        return health(device)

    def links(self, snapshot: base.Snapshot) -> base.Links | None:
        """Return parse_nvlink_status's dict; empty for a single GPU, None if nvidia-smi fails."""
        if len(snapshot["gpus"]) < 2:
            return {}
        result = self.node.run([self.program, "nvlink", "-s"], timeout=QUERY_TIMEOUT_S)
        return (nvidia_smi.parse_nvlink_status(result.out) or None) if result.ok else None

    def links_down(self, snapshot: base.Snapshot, links: base.Links) -> dict[str, base.Problem]:
        down = {**links_down(links), **links_missing(snapshot["gpus"], links)}
        listed = {g["name"] for g in snapshot["gpus"] if g["uuid"] in links}
        silent = [g["uuid"] for g in without_mig(snapshot["gpus"]) if g["name"] in listed and g["uuid"] not in links]
        words = "nvidia-smi nvlink -s does not list it, and lists other GPUs of its model"
        return {**{uuid: ("nvlink", text) for uuid, text in down.items()}, **{uuid: ("gpu_state", words) for uuid in silent}}

    def links_beside(self, snapshot: base.Snapshot) -> dict[str, base.Problem] | None:
        links = self.links(snapshot)
        return None if links is None else self.links_down(snapshot, links)

    def links_unreadable(self, snapshot: base.Snapshot) -> dict[str, base.Problem]:
        problems = {}
        for g in without_mig(snapshot["gpus"]):
            board = board_of(g, snapshot["gpus"])
            if board:
                words = f"nvidia-smi nvlink -s lists no NVLink, and the model has {board[0]}: nobody knows whether they are up"
                problems[g["uuid"]] = ("unreadable_state", words)
        return problems

    def siblings(self, snapshot: base.Snapshot) -> dict[str, list[base.Problem]]:
        return siblings(snapshot["gpus"])

    def unseen(self, snapshot: base.Snapshot) -> list[str]:
        return unseen(self.node.root, snapshot)

    def facts(self, snapshot: base.Snapshot, links: base.Links | None) -> dict[str, t.Any]:
        gpus = snapshot["gpus"]

        def each(read: t.Callable[[dict[str, t.Any]], t.Any]) -> list[t.Any]:
            return sorted({value for value in map(read, gpus) if value is not None})

        return {
            "driver": snapshot["driver"],
            "cuda_driver": snapshot["cuda"],
            "gpu_memory_mib": each(lambda g: g["memory_total_mib"]),
            "vbios": each(lambda g: g["vbios"]),
            "gpu_gsp_firmware": each(lambda g: g["gsp_firmware"]),
            "gpu_persistence": each(lambda g: g["persistence"]),
            "gpu_ecc_mode": each(lambda g: g["ecc_mode"]),
            "gpu_mig": each(lambda g: g["mig"]),
            "gpu_compute_mode": each(lambda g: g["compute_mode"]),
            "gpu_power_limit_w": each(lambda g: g["power"]["limit_w"]),
            "gpu_application_clock_mhz": each(lambda g: g["application_clock"]["now"]),
            "gpu_max_sm_clock_mhz": each(lambda g: g["clocks"]["max_sm"]),
            "gpu_pcie": each(lambda g: f"gen{g['pcie']['gen_max']} x{g['pcie']['width']}"),
            "gpu_fabric": each(lambda g: g["fabric"]["state"]),
            "gpu_nvlinks": sorted({link_words(states) for states in (links or {}).values()}) or None,
        }

    @classmethod
    def settings(cls, node: Node, env: t.Mapping[str, t.Any]) -> dict[str, str]:
        return nccl_settings.of_machine(node, env)

    @classmethod
    def domain(cls, snapshot: base.Snapshot) -> str:
        return nvlink_domain(snapshot)

    @classmethod
    def software(cls, node: Node) -> dict[str, t.Any]:
        facts: dict[str, t.Any] = {"nccl_system": installed.libraries(node, "libnccl.so.2.*", "/usr/local/cuda/lib64")}
        kind = installed.read(node, "/proc/driver/nvidia/version")
        if kind:
            facts["driver_kind"] = "open" if "Open Kernel Module" in kind else "proprietary"
        return facts

    @classmethod
    def configuration(cls, node: Node, login: t.Mapping[str, str]) -> dict[str, str]:
        return nccl_settings.in_files(node.read, login.get("NCCL_CONF_FILE"))

    @classmethod
    def python_facts(cls, packages: t.Mapping[str, str], lines: t.Sequence[str]) -> dict[str, t.Any]:
        number = next((line.split()[1] for line in lines if re.match(r"NCCL \d+$", line)), None)
        return {
            "nccl_python": next((packages[name] for name in sorted(packages) if name.startswith("nvidia-nccl")), None),
            "nccl_loaded": nccl_version(int(number)) if number else None,
        }

    def start(self) -> base.Start:
        # Numbers its devices as nvidia-smi does.
        return base.Start("CUDA", cuda.ASK_CUDA, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "cuda_failed", cuda.problem)

    def sampling(self) -> list[str]:
        query = [f"--query-gpu={','.join(SAMPLED)}", "--format=csv,noheader,nounits", "-lms", str(INTERVAL_MS)]
        return [self.program, *query]

    def sample(self, line: str, snapshot: base.Snapshot) -> base.DeviceSample | None:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(SAMPLED) or cells[0] not in {g["uuid"] for g in snapshot["gpus"]}:
            return None
        read = {name: nvidia_smi.csv_cell(cells[place]) for place, name in SERIES.items()}
        values = {name: value for name, value in read.items() if isinstance(value, (int, float))}
        works = nvidia_smi.csv_cell(cells[5])
        throttle: set[str] = set()
        with contextlib.suppress(ValueError):
            bits = int(cells[4], 16)
            throttle = {name for bit, name in THROTTLE.items() if bits & bit}
        busy = isinstance(works, (int, float)) and works >= WORKS_PERCENT and "gpu_idle" not in throttle
        return base.DeviceSample(cells[0], values, throttle, busy)

    def sampled(self, device: base.Device, loads: t.Mapping[str, base.Load], snapshot: base.Snapshot) -> list[base.Problem]:
        load = loads.get(device["uuid"])
        if load is None:
            return []
        alike = [loads[g["uuid"]] for g in snapshot["gpus"] if g["name"] == device["name"] and g["uuid"] in loads]
        return [*slow_link(device, load, alike), *held_clock(device, load)]

    def unsampled(self, loads: t.Mapping[str, base.Load]) -> list[str]:
        silent = any(not load.counts.get(name) for load in loads.values() for name in ("pcie_gen", "pcie_width"))
        return ["pcie_link"] if silent or not loads else []

    def link_errors(self, snapshot: base.Snapshot) -> dict[str, dict[str, int]] | None:
        """GPUs without NVLink have no counters, which is no gap."""
        if len(snapshot["gpus"]) < 2:
            return {}
        result = self.node.run([self.program, "nvlink", "-e"], timeout=QUERY_TIMEOUT_S)
        return nvidia_smi.parse_nvlink_errors(result.out) if result.ok else None

    def logged(self, line: str) -> base.Logged | None:
        """An Xid of a GPU, or an SXid of an NVSwitch."""
        event = xids.read(line)
        if event is None:
            return None
        # An action that the driver asked for is done with when it asks for another one, or for none.
        name = event.name if event.name == xids.RECOVERY_ACTION else f"{event.name} {event.of.name}"
        return base.Logged(event.where, name, event.of.code, event.of.own_code, event.pid, f"{event.words()} ({event.line})")


def _snapshot(run: Run, program: str) -> dict[str, t.Any]:
    result = run([program, "-q", "-x"], timeout=QUERY_TIMEOUT_S)
    if result.missing:
        code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
        return _error(code, f"{program}: {result.missing}; install the NVIDIA driver, or set acceptance_nvidia_smi")
    if result.cut_short(min(ANSWER_S, QUERY_TIMEOUT_S)):
        return _error("timeout", f"{program} was ended before it answered: it had {result.ended_after(QUERY_TIMEOUT_S)}")
    if result.timed_out:
        reason = f"{program} did not answer in {result.ended_after(QUERY_TIMEOUT_S)}: a GPU or its driver hangs, see dmesg"
        return _error("gpu_lost", reason)
    snapshot = nvidia_smi.parse_xml(result.out)
    if snapshot["outcome"] == "measured" and result.rc:
        code, reason = nvidia_smi.failure(result.err) or _status(program, result)
        snapshot.update(outcome="error", reason_code=code, reason=reason)
    elif snapshot["reason_code"] in ("bad_output", "incomplete_output"):
        failure = nvidia_smi.failure(f"{result.out}\n{result.err}") or (_status(program, result) if result.rc else None)
        if failure:
            snapshot.update(reason_code=failure[0], reason=failure[1])
    return snapshot


def _status(program: str, result: t.Any) -> tuple[str, str]:
    words = " ".join((result.err or result.out[:1000]).split())[:200]
    return "tool_failed", f"{program} ended with status {result.rc}: {words}"


def _error(code: str, reason: str) -> dict[str, t.Any]:
    return dict(nvidia_smi.parse_xml(""), reason_code=code, reason=reason)


def health(g: dict[str, t.Any]) -> list[tuple[str, str]]:
    """Return the defects of one GPU of a snapshot as (reason code, words), the gravest first; empty if there are none.

    PCIe width is judged at any load, the generation is not: an idle link runs slower to save power.
    MIG is a setting, not a fault: it is a fact, and refusal() says what it makes meaningless.
    """
    problems = []
    if g["lost"]:
        problems.append(("gpu_lost", g["lost"]))
    problems += [*base.lifetime(g), *_repaired(g)]
    for group, name, words in (
        ("ecc", "unrepairable", "memory errors beyond repair: replace the GPU"),
        ("remapped_rows", "failure", "a row remap has failed: replace the GPU"),
        ("remapped_rows", "pending", "a repair (row remap, memory channel or TPC) is pending: reset the GPU"),
        ("retired_pages", "pending", "a page retirement is pending: reset the GPU"),
    ):
        if g[group][name] == "Yes":
            problems.append(("ecc", words))
    if g["recovery_action"]:
        problems.append(("gpu_reset", f"the driver asks for a recovery action: {g['recovery_action']}"))
    width, maximum = g["pcie"]["width"], g["pcie"]["width_max"]
    if width and maximum and width < maximum:
        problems.append(("pcie_width", f"the PCIe link is x{width} and can be x{maximum}: reseat the GPU or its riser"))
    problems += [("fabric", words) for words in _fabric(g["fabric"])]
    problems += [*_settings(g), *_slot(g), *_unreadable(g)]
    return sorted(problems, key=lambda problem: problem[0] in reasons.MILD)


def _repaired(g: dict[str, t.Any]) -> list[base.Problem]:
    """Rows and pages of memory that were replaced by spare ones, few or many."""
    problems = []
    rows = (g["remapped_rows"]["correctable"] or 0) + (g["remapped_rows"]["uncorrectable"] or 0)
    if rows > base.ROWS_REPAIRED:
        problems.append(("ecc", f"{rows} memory rows are remapped, more than {base.ROWS_REPAIRED}: replace the GPU"))
    elif rows:
        problems.append(("ecc_past", f"{rows} memory rows are remapped, of {base.ROWS_REPAIRED} that are no defect"))
    pages = (g["retired_pages"]["single_bit"] or 0) + (g["retired_pages"]["double_bit"] or 0)
    if pages >= PAGES_RETIRED:
        problems.append(("ecc", f"{pages} memory pages are retired, {PAGES_RETIRED} or more: replace the GPU"))
    elif pages:
        problems.append(("ecc_past", f"{pages} memory pages are retired, fewer than {PAGES_RETIRED}"))
    return problems


def _settings(g: dict[str, t.Any]) -> list[base.Problem]:
    """Settings that make a GPU slower or less safe than it was delivered. Which they must be, golden values say (stack_golden)."""
    problems = []
    if g["ecc_mode"] == "Disabled":
        problems.append(("ecc_off", "ECC is off: memory errors go unnoticed; nvidia-smi -e 1 and a reboot switch it on"))
    limit, default = g["power"]["limit_w"], g["power"]["default_limit_w"]
    if limit is not None and default is not None and limit < default - POWER_SLACK_W:
        problems.append(("power_limit", f"the power limit is {limit:g} W, by default {default:g} W: nvidia-smi -pl {default:.0f} sets it"))
    clock, normal = g["application_clock"]["now"], g["application_clock"]["default"]
    if clock is not None and normal is not None and clock < normal:
        problems.append(("clocks_locked", f"the application clock is {clock} MHz, by default {normal} MHz: nvidia-smi -rac resets it"))
    return problems


def _slot(g: dict[str, t.Any]) -> list[base.Problem]:
    """Return the problems of a slot of an older PCIe generation, or with fewer lanes, than its GPU has: the GPU's generation as the
    driver reports it, else that of its model; the lanes of its model."""
    if SUPERCHIP.match(g["name"] or ""):
        return []
    slot, problems = slots.of(g["name"] or ""), []
    width = g["pcie"]["width_max"]
    if slot and width and width < slot.lanes:
        problems.append(("pcie_slot", f"the PCIe link can be x{width} in its slot, and the GPU x{slot.lanes}: see slot, riser and cable"))
    device = g["pcie"]["gen_device"] or (slot.generation if slot else 0)
    slot_max, expected = g["pcie"]["gen_max"], min(device, HOSTS_PCIE)
    if slot_max and slot_max < expected:
        words = f"the PCIe link can be generation {slot_max} in its slot, and the GPU {expected}"
        problems.append(("pcie_slot", f"{words}: see the slot's setting in the BIOS, riser and cable"))
    return problems


def _unreadable(g: dict[str, t.Any]) -> list[base.Problem]:
    """Return the problem of a GPU that does not report its memory errors although its model has ECC. ECC that is off has another one."""
    if not HAS_ECC.fullmatch(g["name"] or "") or g["ecc_mode"] == "Disabled" or g["ecc"]["volatile_uncorrected"] is not None:
        return []
    return [("unreadable_state", "the driver does not report its memory errors, and the model has ECC: see nvidia-smi -q -d ECC")]


def siblings(gpus: t.Sequence[dict[str, t.Any]]) -> dict[str, list[base.Problem]]:
    """Return {GPU UUID: problems} of GPUs that have less, or tell less, than other GPUs of the same model in the node.

    GPUs with MIG are left out.
    """
    unpartitioned = without_mig(gpus)
    by_uuid = {}
    for g in unpartitioned:
        problems = _sibling_problems(g, [sibling for sibling in unpartitioned if sibling["name"] == g["name"] and sibling is not g])
        if problems:
            by_uuid[g["uuid"]] = problems
    return by_uuid


def without_mig(gpus: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the GPUs that have a UUID and are not partitioned by MIG."""
    return [g for g in gpus if g["uuid"] and (g["mig"] or "").lower() != "enabled"]


def _sibling_problems(g: dict[str, t.Any], alike: t.Sequence[dict[str, t.Any]]) -> list[base.Problem]:
    """Return the problems of one GPU beside others of its model."""
    problems: list[base.Problem] = []
    states = {(sibling["fabric"]["state"] or "").lower() for sibling in alike}
    own_state = (g["fabric"]["state"] or "").lower()
    if "completed" in states and own_state in ("", "not started", "not supported"):
        state = g["fabric"]["state"] or "not reported"
        problems.append(("fabric", f"the NVLink fabric is {state}, and Completed for another GPU of its model"))
    memory = max((sibling["memory_total_mib"] or 0 for sibling in alike if sibling["ecc_mode"] == g["ecc_mode"]), default=0)
    if g["memory_total_mib"] is not None and g["memory_total_mib"] < base.MEMORY_SHARE * memory:
        problems.append(("gpu_state", f"it has {g['memory_total_mib']} MiB of memory, and another GPU of its model {memory} MiB"))
    if g["ecc"]["volatile_uncorrected"] is None and any(sibling["ecc"]["volatile_uncorrected"] is not None for sibling in alike):
        problems.append(("gpu_state", "its memory errors are not reported, those of other GPUs of its model are"))
    for name, words in (("width_max", "x{:g}"), ("gen_max", "generation {:g}")):
        best = max((sibling["pcie"][name] or 0 for sibling in alike), default=0)
        if g["pcie"][name] and g["pcie"][name] < best:
            current = words.format(g["pcie"][name])
            problems.append(("pcie_slot", f"the PCIe link can be {current} and that of another GPU of its model {words.format(best)}"))
    return problems


def slow_link(g: dict[str, t.Any], load: base.Load, alike: t.Sequence[base.Load]) -> list[base.Problem]:
    """Return the problem of a PCIe link that was slower or narrower under load than GPU and slot allow. Idle links run slower. If the
    slot's speed is hidden, as in a virtual machine, the links of other GPUs of the model are the reference; no slot of such a GPU is two
    generations older."""
    problems: list[base.Problem] = []
    width, slot_max = g["pcie"]["width_max"], g["pcie"]["gen_max"]
    narrow = load.under("pcie_width", width) if width else []
    if narrow:
        problems.append(("pcie_width", f"the PCIe link is x{narrow[0]:g} under load and can be x{width}: reseat the GPU or its riser"))
    slow = load.under("pcie_gen", slot_max) if slot_max else []
    if not slow:
        return problems
    words = f"the PCIe link is generation {slow[0]:g} under load and can be {slot_max}"
    fastest = max((sibling.highest("pcie_gen") or 0 for sibling in alike), default=0)
    certain = g["slot_known"] or slow[0] < fastest or slow[0] <= slot_max - 2
    if not certain and slow[0] >= HOSTS_PCIE:
        return problems
    if certain:
        problems.append(("pcie_speed", f"{words}: reseat the GPU or its riser, and see the slot's setting in the BIOS"))
    else:
        problems.append(("pcie_slot", f"{words}, unless its slot is no faster, which a virtual machine does not see"))
    return problems


def held_clock(g: dict[str, t.Any], load: base.Load) -> list[base.Problem]:
    """Return the problem of a clock that stayed low under load although neither power nor temperature limited it: it is locked."""
    top = load.highest("sm_clock")
    limits = [clock for clock in (g["clocks"]["max_sm"], g["application_clock"]["default"]) if clock]
    if load.samples < 2 or top is None or not limits or EXPLAINED & set(load.throttle):
        return []
    if top >= CLOCK_SHARE * min(limits):
        return []
    words = f"the SM clock was at most {top:g} MHz under load, of {min(limits)} MHz, and neither power nor temperature held it"
    return [("clocks_locked", f"{words}: nvidia-smi -rgc unlocks it")]


def _fabric(fabric: dict[str, t.Any]) -> list[str]:
    """Return the defects of a GPU's place in its NVSwitch fabric. `Not Started` is no defect: drivers report it without an NVSwitch, too.
    With one, CUDA refuses to start with error 802, which the check `cuda` names."""
    problems = []
    state = (fabric["state"] or "").lower()
    if state and state not in ("completed", "not started", "not supported"):
        problems.append(f"the NVLink fabric is {fabric['state']}: start nvidia-fabricmanager of the driver's version")
    if state == "completed" and (fabric["status"] or "success").lower() not in ("success", "nvml_success"):
        problems.append(f"the NVLink fabric was set up with the error {fabric['status']}")
    if (fabric["health"] or "healthy").lower() not in ("healthy", "not supported"):
        problems.append(f"the NVLink fabric is {fabric['health']}")
    if (fabric["bandwidth"] or "").lower() == "degraded":
        problems.append("the NVLink fabric's bandwidth is degraded")
    if fabric["faults"]:
        problems.append(f"the health of the NVLink fabric has {', '.join(fabric['faults'])}")
    return problems


def nccl_version(number: int) -> str:
    """Return the version in ncclGetVersion's number: 2803 is 2.8.3, and 22809 is 2.28.9 (nccl.h, NCCL_VERSION)."""
    major, remainder = (number // 1000, number % 1000) if number < 10000 else (number // 10000, number % 10000)
    return f"{major}.{remainder // 100}.{remainder % 100}"


def nvlink_domain(snapshot: dict[str, t.Any]) -> str:
    """Return the NVLink domain of a node's GPUs that goes beyond the node, as `CLUSTER/CLIQUE`; empty if the driver reports none."""
    domains = {(g["fabric"]["cluster"] or "", g["fabric"]["clique"] or "") for g in snapshot["gpus"]}
    cluster, clique = domains.pop() if len(domains) == 1 else ("", "")
    return f"{cluster}/{clique}" if cluster.strip("0-") and cluster.upper() != "N/A" else ""


def host_link(g: dict[str, t.Any]) -> tuple[int | None, int | None] | None:
    """Return the PCIe generation and width that a GPU and its slot can do; None for a superchip, whose CPU is reached by NVLink-C2C."""
    return None if SUPERCHIP.match(g["name"] or "") else (g["pcie"]["gen_max"], g["pcie"]["width_max"])


def link_words(states: list[float | None]) -> str:
    """`18 x 26.562 GB/s`: the links that are up."""
    up = [speed for speed in states if speed]
    return " + ".join(f"{up.count(speed)} x {speed:g} GB/s" for speed in sorted(set(up))) or "none"


def links_down(by_uuid: dict[str, list[float | None]]) -> dict[str, str]:
    """Return {GPU UUID: words} of GPUs with fewer or slower links up than the best GPU of the node. The driver does not report how many
    there should be: it lists the unused links of a GPU without NVSwitch as inactive, too."""
    total = {uuid: sum(speed or 0 for speed in states) for uuid, states in by_uuid.items()}
    best = max(total, key=lambda uuid: total[uuid], default="")
    return {
        uuid: f"NVLink: {link_words(by_uuid[uuid])} up, on another GPU of this node {link_words(by_uuid[best])}"
        for uuid in by_uuid
        if total[uuid] < total[best]
    }


def links_missing(gpus: t.Sequence[dict[str, t.Any]], by_uuid: dict[str, list[float | None]]) -> dict[str, str]:
    """Return {GPU UUID: words} of GPUs with fewer links up at their rate than their model has, if all are surely connected (BOARDS)."""
    missing = {}
    for g in gpus:
        board = board_of(g, gpus)
        if board is None or g["uuid"] not in by_uuid:
            continue
        links, rate = board
        if sum(1 for speed in by_uuid[g["uuid"]] if speed and speed >= LINK_SHARE * rate) < links:
            model = f"the model has {links} links of {rate:g} GB/s"
            words = f"NVLink: {link_words(by_uuid[g['uuid']])} up, {model}: reset the GPUs, then check board, tray or cables"
            missing[g["uuid"]] = words
    return missing


def board_of(g: dict[str, t.Any], gpus: t.Sequence[dict[str, t.Any]]) -> tuple[int, float] | None:
    """Return the number of NVLinks of a GPU and their rate in GB/s, if its model is soldered to a board and all of them are surely
    connected (BOARDS); else None. `gpus` are all of the node."""
    board = next(((links, rate, min_gpus) for pattern, links, rate, min_gpus in BOARDS if re.fullmatch(pattern, g["name"] or "")), None)
    if board is None:
        return None
    links, rate, min_gpus = board
    connected = sum(g["name"] == gpu["name"] for gpu in gpus) >= min_gpus or (g["fabric"]["state"] or "").lower() == "completed"
    return (links, rate) if connected else None


def unseen(root: str, snapshot: dict[str, t.Any]) -> list[str]:
    """Return the PCI addresses of GPUs that the kernel driver has and nvidia-smi does not show, without GPUs excluded on purpose. In a
    container the driver lists only the container's own GPUs."""
    listed = {_bdf(g["bdf"] or "") for g in snapshot["gpus"]}
    missing = []
    for path in sorted(glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*"))):
        try:
            with open(os.path.join(path, "information"), encoding="utf-8", errors="replace") as source:
                excluded = any(line.replace(" ", "").split() == ["GPUExcluded:", "Yes"] for line in source)
        except OSError:
            excluded = False
        if not excluded and _bdf(os.path.basename(path)) not in listed:
            missing.append(os.path.basename(path))
    return missing


def _bdf(text: str) -> str:
    """Driver and nvidia-smi write the PCI domain in 4 and in 8 digits."""
    domain, _colon, remainder = text.lower().partition(":")
    return f"{domain[-4:]}:{remainder}"
