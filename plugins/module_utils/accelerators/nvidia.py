# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs, by nvidia-smi.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import glob
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import (
    base,
    board_memory,
    chassis,
    cuda,
    nccl_settings,
    nvlink_domain,
    on_bus,
    xids,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi, nvlink_counters
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import installed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import cuda_driver, memory_kernels, product_kernel

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
# Models that come on a baseboard only, with PCIe 5 and 16 lanes to its switch or CPU: no machine is built with less (NVIDIA HGX platforms
# from Hopper on). HGX A100 was sold with hosts of PCIe 3 too, and cards go into any slot.
ON_BOARDS = re.compile(r"NVIDIA (H100 80GB HBM3|H200|H800|H20(-3e)?|B200|B300\b.*)")

# Models whose memory always has ECC counters (datasheets).
HAS_ECC = re.compile(
    r"NVIDIA (GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|A30|A40|A10|A10G|A16|A2|L4|L20|L40|L40S)\b.*"
    r"|(Tesla|NVIDIA) (V100S?|T4|P100)\b.*"
)

# Models with HBM since Ampere, whose memory has spare rows: their driver reports how many are used (NVIDIA GPU Memory Error Management).
HAS_ROWS = re.compile(r"NVIDIA (GB200|GB300|GH200|B200|B300|H100|H200|H800|H20|A100|A800|A30)\b.*")

ECC_OFF = "ECC is off: memory errors go unnoticed; nvidia-smi -e 1 and a reboot switch it on"

# States that every driver reports or lacks: a reading that failed is one of a GPU or driver that is not in order.
VITAL_STATES = ("memory errors", "row remapping", "page retirement", "memory repair", "ECC mode", "NVLink fabric", "recovery action")

# {class of a counter of NVLinks: (what it is called, how many a healthy GPU may have)}, of all links of a GPU together.
LINK_ERRORS = {
    nvlink_counters.LOST: ("lost or damaged packets", base.Allowance(ever=10, daily=1, spread=10)),
    nvlink_counters.RETRAINED: ("links trained anew", base.Allowance(ever=10, daily=0.1, spread=10)),
    nvlink_counters.RESENT: ("packets sent again", base.Allowance(ever=1000, daily=100, spread=100)),
}

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
    glance = ("--query-gpu=index,uuid,utilization.gpu,clocks.sm,power.draw", "--format=csv,noheader")
    option = "nvidia_smi"
    visible = "CUDA_VISIBLE_DEVICES"
    visible_by_uuid = True
    torch = "cuda"
    torch_build, torch_build_word = "cuda", "CUDA"
    torch_blas: t.Mapping[str, str] = {"Cublas": "cuBLAS", "Cublaslt": "cuBLASLt", "Default": "cuBLAS/cuBLASLt", "": "cuBLAS"}
    products = ("torch", "cublas")
    collectives = "nccl"
    collective_tests, collective_library = "nccl-tests", "NCCL"
    driver = base.Driver(
        "libcuda", "CUDA driver", (cuda_driver,), (memory_kernels,), (product_kernel,),
        frozenset(str(bit) for bit, name in THROTTLE.items() if name in BAD_THROTTLE),
    )  # fmt: skip
    device_files = r"/dev/nvidia\d+"
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
    units: t.Mapping[str, str] = {"fabric_manager_state": "nvidia-fabricmanager.service", "imex_service": nvlink_domain.UNIT}
    support: t.Mapping[str, tuple[str, ...]] = {
        "nvidia-smi.xml": ("-q", "-x"), "nvidia-smi-topo.txt": ("topo", "-m"), "nvidia-smi-nvlink.txt": ("nvlink", "-s"),
        "nvidia-smi-nvlink-errors.txt": ("nvlink", "-e"),
    }  # fmt: skip
    # Where it hangs, its own text advises these options. Debian has it outside of PATH.
    bug_report = base.BugReport(
        "nvidia-bug-report.sh", ("--output-file",), ".gz", ("--safe-mode", "--extra-system-data"),
        ("/usr/bin/nvidia-bug-report.sh", "/usr/lib/nvidia/current/nvidia-bug-report.sh"),
    )  # fmt: skip
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

    def __init__(self, node: Node, program: str) -> None:
        super().__init__(node, program)
        self._tree = Tree(node)
        # What link_errors() read last: counters of NVLinks, those that could not be read among them.
        self._link_counters: dict[str, dict[str, t.Any]] = {}
        # Evidence codes of what a sample of some GPU lacked.
        self._unsampled: set[str] = set()

    def snapshot(self) -> base.Snapshot:
        snapshot = _snapshot(self.node.run, self.program)
        here: bool | None = None
        for g in snapshot["gpus"]:
            # A driver may not know the hypervisor.
            if g["virtual"] is None:
                here = self._tree.is_virtual() if here is None else here
                g["virtual"] = here
            if g["slot_known"] is None:
                g["slot_known"] = not g["virtual"]
        return {**snapshot, "kind": self.kind}

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
        return None if links is None else {**self.links_failed(snapshot), **self.links_down(snapshot, links)}

    def links_failed(self, snapshot: base.Snapshot) -> dict[str, base.Problem]:
        """Return the problem of each GPU with a link that was lost and could not be recovered, by the counters that were read last."""
        return {
            uuid: ("nvlink", f"{words}: reset the GPUs, then check board, tray or cables")
            for uuid, counters in self._link_counters.items()
            for words in _counted(counters, nvlink_counters.FAILED)
        }

    def links_unreadable(self, snapshot: base.Snapshot) -> dict[str, base.Problem]:
        problems = {}
        for g in without_mig(snapshot["gpus"]):
            board = board_of(g, snapshot["gpus"])
            if board:
                words = f"nvidia-smi nvlink -s lists no NVLink, and the model has {board[0]}: nobody knows whether they are up"
                problems[g["uuid"]] = ("unreadable_state", words)
        return problems

    def siblings(self, snapshot: base.Snapshot) -> dict[str, list[base.Problem]]:
        found = siblings(snapshot["gpus"], self._days())
        for uuid, problems in link_problems(snapshot["gpus"], self._link_counters, self._days()).items():
            found.setdefault(uuid, []).extend(problems)
        return found

    def _days(self) -> float | None:
        """Return for how many days the machine is up, and the driver is loaded at most; None if that cannot be read."""
        try:
            return float((self._tree.text("/proc/uptime") or "").split()[0]) / 86400
        except (ValueError, IndexError):
            return None

    def unseen(self, snapshot: base.Snapshot) -> list[str]:
        return [address for address in unseen(self.node.root, snapshot) if not self._not_ours(address)]

    def _not_ours(self, address: str) -> str:
        """Return why this process may not use a GPU that the driver has; empty if it may, and then the GPU's silence is a fault."""
        names = {on_bus.place(name): name for name in self._tree.names(f"/{DRIVER_GPUS}")}
        name = names.get(on_bus.place(address))
        if name is None:
            # A container's runtime has laid its own list of GPUs over that of the driver.
            own_list = re.search(r"^\S+ /proc/driver/nvidia(?:/\S*)? ", self._tree.text("/proc/mounts") or "", re.MULTILINE)
            return "the container's list of GPUs does not have it" if own_list else ""
        minor = re.search(r"Device Minor:\s*(\d+)", self._tree.text(f"/{DRIVER_GPUS}/{name}/information") or "")
        return on_bus.withheld(self._tree, f"/dev/nvidia{minor.group(1)}") if minor else ""

    def bus(self, snapshot: base.Snapshot) -> on_bus.Bus:
        if self._is_elsewhere(snapshot):
            return on_bus.Bus([], {})
        shown = {str(g["bdf"]) for g in snapshot["gpus"] if g["bdf"]}
        devices = self._on_bus()
        # Those that only the driver has are found by unseen().
        known = {*shown, *self.unseen(snapshot)}
        return on_bus.compare(self._tree, devices, known, ("nvidia",), self.word, os.path.basename(self.program), self._not_ours)

    def _on_bus(self) -> list[on_bus.OnBus]:
        excluded = {on_bus.place(address) for address in _excluded(self.node.root)}
        devices = on_bus.devices(self._tree, "0x10de", ("0x0300", "0x0302", "0x1200"))
        return [device for device in devices if on_bus.place(device.address) not in excluded]

    def present(self) -> list[on_bus.OnBus]:
        return on_bus.usable(self._tree, self._on_bus(), ("nvidia",), self._not_ours)

    def _is_elsewhere(self, snapshot: base.Snapshot) -> bool:
        """Return True if a simulated tool shows GPUs that the machine it runs on does not have, and nothing plants a bus beside it."""
        return bool(snapshot.get("simulated")) and not os.path.isdir(self.node.path("/sys"))

    def places(self, snapshot: base.Snapshot) -> chassis.Places | None:
        if self._is_elsewhere(snapshot):
            return None
        product = self._tree.text("/sys/class/dmi/id/product_name") or ""
        by_product = chassis.by_product(product)
        if by_product or self._tree.is_virtual() or any(g["virtual"] for g in snapshot["gpus"]):
            return by_product
        switches = [
            self._tree.text(f"{on_bus.DEVICES}/{device.address}/device") or ""
            for device in on_bus.devices(self._tree, "0x10de", ("0x0680",))
        ]
        models = {str(g["name"]) for g in snapshot["gpus"]}
        fabric = {str(g["fabric"]["state"] or "") for g in snapshot["gpus"]}
        modules = {int(g["module"]) for g in snapshot["gpus"] if g["module"] is not None}
        return chassis.by_board(models.pop() if len(models) == 1 else "", switches, fabric, modules)

    def facts(self, snapshot: base.Snapshot, links: base.Links | None) -> dict[str, t.Any]:
        gpus = snapshot["gpus"]

        def each(read: t.Callable[[dict[str, t.Any]], t.Any]) -> list[t.Any]:
            return sorted({value for value in map(read, gpus) if value is not None and not isinstance(value, Absent)})

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
            "gpu_pcie": each(lambda g: f"gen{absent.plain(g['pcie']['gen_max'])} x{absent.plain(g['pcie']['width'])}"),
            "gpu_fabric": each(lambda g: g["fabric"]["state"]),
            "gpu_nvlinks": sorted({link_words(states) for states in (links or {}).values()}) or None,
        }

    def link_domain(self, snapshot: base.Snapshot, owner: str) -> base.LinkDomain | None:
        if nvlink_domain.trays_by_design(str(g["name"] or "") for g in snapshot["gpus"]) is None:
            return None
        domain = nvlink_domain.Domain(self.node, snapshot, os.path.dirname(self.program), owner)
        return base.LinkDomain(domain.context(), domain.facts(), domain.problems, domain.not_looked_for)

    @classmethod
    def memory_of_model(cls, name: str) -> int | None:
        return board_memory.of_model(name)

    @classmethod
    def host_link(cls, device: base.Device) -> tuple[int | None, int | None] | None:
        return host_link(device)

    @classmethod
    def is_on_board(cls, device: base.Device, devices: t.Sequence[base.Device]) -> bool:
        return board_of(device, devices) is not None

    @classmethod
    def settings(cls, node: Node, env: t.Mapping[str, t.Any]) -> dict[str, str]:
        return nccl_settings.of_machine(node, env)

    @classmethod
    def domain(cls, snapshot: base.Snapshot) -> str:
        return domain_of(snapshot)

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
        try:
            bits = int(cells[4], 16)
            throttle = {name for bit, name in THROTTLE.items() if bits & bit}
        except ValueError:
            self._unsampled.add("throttle")
        if not isinstance(works, (int, float)):
            self._unsampled.add("pcie_link")  # nobody knows whether it worked
        busy = isinstance(works, (int, float)) and works >= WORKS_PERCENT and "gpu_idle" not in throttle
        return base.DeviceSample(cells[0], values, throttle, busy)

    def sampled(self, device: base.Device, loads: t.Mapping[str, base.Load], snapshot: base.Snapshot) -> list[base.Problem]:
        load = loads.get(device["uuid"])
        if load is None:
            return []
        alike = [g for g in snapshot["gpus"] if g["name"] == device["name"] and g["uuid"] != device["uuid"]]
        loads_alike = [loads[g["uuid"]] for g in alike if g["uuid"] in loads]
        return [*slow_link(device, load, [*loads_alike, load], [g["pcie"]["width"] for g in alike]), *held_clock(device, load)]

    def unsampled(self, loads: t.Mapping[str, base.Load]) -> list[str]:
        silent = any(not load.counts.get(name) for load in loads.values() for name in ("pcie_gen", "pcie_width"))
        return sorted({*(["pcie_link"] if silent or not loads else []), *self._unsampled})

    def link_errors(self, snapshot: base.Snapshot) -> dict[str, dict[str, int]] | None:
        """GPUs without NVLink have no counters, which is no gap."""
        self._link_counters = {}
        if len(snapshot["gpus"]) < 2:
            return {}
        result = self.node.run([self.program, "nvlink", "-e"], timeout=QUERY_TIMEOUT_S)
        if not result.ok:
            return None
        self._link_counters = nvidia_smi.parse_nvlink_errors(result.out)
        readable = {
            uuid: {
                name: value
                for name, value in counters.items()
                if isinstance(value, int) and nvlink_counters.kind_of(name) != nvlink_counters.RATE
            }
            for uuid, counters in self._link_counters.items()
        }
        whole = [g["uuid"] for g in without_mig(snapshot["gpus"]) if board_of(g, snapshot["gpus"])]
        return readable if all(readable.get(uuid) for uuid in whole) else None

    def logged(self, line: str) -> base.Logged | None:
        """An Xid of a GPU, or an SXid of an NVSwitch."""
        event = xids.read(line)
        if event is None:
            return None
        # An action that the driver asked for is done with when it asks for another one, or for none.
        name = event.name if event.name == xids.RECOVERY_ACTION else f"{event.name} {event.of.name}"
        words = f"{event.words()} ({event.line})"
        return base.Logged(event.where, name, event.of.code, event.of.own_code, event.pid, words, event.until_load)

    def takes_back(self, line: str) -> base.TakenBack | None:
        taken = xids.takes_back(line)
        return base.TakenBack(*taken) if taken else None


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
    problems += [("fabric", words) for words in _fabric(g["fabric"], nvlink_domain.trays_by_design([str(g["name"] or "")]) is not None)]
    problems += [*_width(g), *_settings(g), *_slot(g), *_unreadable(g)]
    return sorted(problems, key=lambda problem: problem[0] in reasons.MILD)


def _width(g: dict[str, t.Any]) -> list[base.Problem]:
    """Return the problem of a link with fewer lanes than GPU and slot have, as the driver reports it; if it does not report what they can
    have, than its model has. In a virtual machine the driver reports what the GPU alone can have: siblings() judges its width."""
    width, maximum, slot = g["pcie"]["width"], g["pcie"]["width_max"], slots.of(g["name"] or "")
    if isinstance(width, Absent) or not width or g["virtual"]:
        return []
    if not isinstance(maximum, Absent) and maximum:
        words = f"the PCIe link is x{width} and can be x{maximum}: reseat the GPU or its riser"
        return [("pcie_width", words)] if width < maximum else []
    if slot and width < slot.lanes and not SUPERCHIP.match(g["name"] or ""):
        words = f"the PCIe link is x{width} and the GPU has x{slot.lanes}; the driver does not report what its slot has"
        return [("pcie_width", f"{words}: reseat the GPU or its riser")]
    return []


def _repaired(g: dict[str, t.Any]) -> list[base.Problem]:
    """Rows and pages of memory that were replaced by spare ones, few or many."""
    problems = []
    rows = absent.at_least((g["remapped_rows"]["correctable"], g["remapped_rows"]["uncorrectable"]))
    if base.above(rows, base.ROWS_REPAIRED):
        problems.append(("ecc", f"{rows} memory rows are remapped, more than {base.ROWS_REPAIRED}: replace the GPU"))
    elif base.above(rows, 0):
        problems.append(("ecc_past", f"{rows} memory rows are remapped, of {base.ROWS_REPAIRED} that are no defect"))
    if base.above(g["remapped_rows"]["used_up"], 0):
        banks = g["remapped_rows"]["used_up"]
        problems.append(("ecc_past", f"{banks} banks of its memory have no spare row left: the next error there cannot be repaired"))
    pages = absent.at_least((g["retired_pages"]["single_bit"], g["retired_pages"]["double_bit"]))
    if base.above(pages, PAGES_RETIRED - 1):
        problems.append(("ecc", f"{pages} memory pages are retired, {PAGES_RETIRED} or more: replace the GPU"))
    elif base.above(pages, 0):
        problems.append(("ecc_past", f"{pages} memory pages are retired, fewer than {PAGES_RETIRED}"))
    return problems


def _settings(g: dict[str, t.Any]) -> list[base.Problem]:
    """Settings that make a GPU slower or less safe than it was delivered. Which they must be, golden values say (stack_golden)."""
    problems = []
    if g["ecc_mode"] == "Disabled" and HAS_ECC.fullmatch(g["name"] or ""):
        problems.append(("ecc_off", ECC_OFF))
    limit, default = absent.plain(g["power"]["limit_w"]), absent.plain(g["power"]["default_limit_w"])
    if limit is not None and default is not None and limit < default - POWER_SLACK_W:
        problems.append(("power_limit", f"the power limit is {limit:g} W, by default {default:g} W: nvidia-smi -pl {default:.0f} sets it"))
    clock, normal = absent.plain(g["application_clock"]["now"]), absent.plain(g["application_clock"]["default"])
    if clock is not None and normal is not None and clock < normal:
        problems.append(("clocks_locked", f"the application clock is {clock} MHz, by default {normal} MHz: nvidia-smi -rac resets it"))
    return problems


def _slot(g: dict[str, t.Any]) -> list[base.Problem]:
    """Return the problems of a slot of an older PCIe generation, or with fewer lanes, than its GPU has: the GPU's generation as the
    driver reports it, else that of its model; the lanes of its model. Of a card that may be how the machine is built; of a GPU on a
    baseboard it is a fault, on all of them too. A virtual machine does not see the slot."""
    if SUPERCHIP.match(g["name"] or ""):
        return []
    is_fault = bool(ON_BOARDS.fullmatch(g["name"] or "")) and not g["virtual"]
    of_lanes, of_speed = ("pcie_width", "pcie_speed") if is_fault else ("pcie_slot", "pcie_slot")
    board = ", and no baseboard of this model has less" if is_fault else ""
    slot, problems = slots.of(g["name"] or ""), []
    width = absent.plain(g["pcie"]["width_max"])
    if slot and width and width < slot.lanes:
        words = f"the PCIe link can be x{width:g} in its slot, and the GPU x{slot.lanes}{board}"
        problems.append((of_lanes, f"{words}: see slot, riser and cable"))
    device = absent.plain(g["pcie"]["gen_device"]) or (slot.generation if slot else 0)
    slot_max, expected = absent.plain(g["pcie"]["gen_max"]), min(device, HOSTS_PCIE)
    if slot_max and slot_max < expected:
        words = f"the PCIe link can be generation {slot_max:g} in its slot, and the GPU {expected:g}{board}"
        problems.append((of_speed, f"{words}: see the slot's setting in the BIOS, riser and cable"))
    return problems


def _unreadable(g: dict[str, t.Any]) -> list[base.Problem]:
    """Return the problem of a GPU that does not report what it would be judged by: UNKNOWN if a reading failed, a WARN if the driver lacks
    the value or may not read it. ECC that is off has another problem; a GPU that MIG partitions reports its errors with its parts."""
    if g["lost"]:
        return []
    problems: list[base.Problem] = []
    failed = [cell for cell in g["unreadable"] if cell["failed"] and not cell["may_not"] and cell["about"] in VITAL_STATES]
    is_off = g["ecc_mode"] == "Disabled"
    others = [cell for cell in g["unreadable"] if cell not in failed and not (cell["about"] == "memory errors" and is_off)]
    for code, cells in (("gpu_state", failed), ("unreadable_state", others)):
        if cells:
            about = ", ".join(dict.fromkeys(cell["about"] for cell in cells))
            texts = ", ".join(f"{cell['cell']} reads {cell['reads']}" for cell in cells[:4])
            problems.append((code, f"nvidia-smi could not read all of its {about}: {texts}{' ...' if len(cells) > 4 else ''}"))
    name, named = g["name"] or "", {cell["about"] for cell in g["unreadable"]}
    has_mig = (g["mig"] or "").lower() == "enabled"
    unread = isinstance(g["ecc"]["volatile_uncorrected"], Absent) and "memory errors" not in named
    if HAS_ECC.fullmatch(name) and g["ecc_mode"] != "Disabled" and not has_mig and unread:
        words = "the driver does not report its memory errors, and the model has ECC: see nvidia-smi -q -d ECC"
        problems.append(("unreadable_state", words))
    rows = (g["remapped_rows"][cell] for cell in ("correctable", "uncorrectable", "pending", "failure"))
    if HAS_ROWS.fullmatch(name) and "row remapping" not in named and all(isinstance(cell, Absent) for cell in rows):
        words = "the driver does not report which rows of its memory are remapped, and the model has spare rows"
        problems.append(("unreadable_state", f"{words}: see nvidia-smi -q -d ROW_REMAPPER"))
    return problems


def siblings(gpus: t.Sequence[dict[str, t.Any]], days: float | None = None) -> dict[str, list[base.Problem]]:
    """Return {GPU UUID: problems} of GPUs that have less, tell less, or have more errors than other GPUs of the same model in the node, and
    of counters of errors that are too high for the `days` since the machine was started.

    GPUs with MIG report less by themselves: only their PCIe links and counters are compared.
    """
    whole = without_mig(gpus)
    by_uuid: dict[str, list[base.Problem]] = {}
    for g in gpus:
        if not g["uuid"]:
            continue
        alike = [sibling for sibling in gpus if sibling["name"] == g["name"] and sibling is not g and sibling["uuid"]]
        problems = _sibling_problems(g, [sibling for sibling in alike if sibling in whole]) if g in whole else []
        problems += [*_links_of_siblings(g, alike), *_standing(g, alike, days)]
        if problems:
            by_uuid[g["uuid"]] = problems
    return by_uuid


def _links_of_siblings(g: dict[str, t.Any], alike: t.Sequence[dict[str, t.Any]]) -> list[base.Problem]:
    """Return the problems of the PCIe link of a GPU beside those of its siblings."""
    problems: list[base.Problem] = []
    for name, words in (("width_max", "x{:g}"), ("gen_max", "generation {:g}")):
        own, best = absent.plain(g["pcie"][name]), max((absent.plain(sibling["pcie"][name]) or 0 for sibling in alike), default=0)
        if own and own < best:
            current = words.format(own)
            problems.append(("pcie_slot", f"the PCIe link can be {current} and that of another GPU of its model {words.format(best)}"))
    if g["virtual"] and not problems:
        problems += hidden_width(g, absent.plain(g["pcie"]["width"]), [absent.plain(sibling["pcie"]["width"]) for sibling in alike], "")
    return problems


def hidden_width(
    g: dict[str, t.Any], width: float | None, alike: t.Sequence[float | None], when: str
) -> list[base.Problem]:
    """Return the problem of the width of a link in a virtual machine, which hides what the slot has: a GPU with fewer lanes than another
    one of its model is a fault; if all have as many, so is the machine built; of a lone one nobody knows."""
    slot = slots.of(g["name"] or "")
    maximum = absent.plain(g["pcie"]["width_max"]) or (slot.lanes if slot else 0)
    if not width or not maximum or width >= maximum:
        return []
    widest = max((other or 0 for other in alike), default=0)
    if width < widest:
        words = f"the PCIe link is x{width:g}{when}, and that of another GPU of its model x{widest:g}"
        return [("pcie_width", f"{words}: ask who runs the host of this virtual machine to reseat the GPU or its riser")]
    if widest:
        return []
    words = f"the PCIe link is x{width:g}{when} and the GPU has x{maximum:g}, unless its slot has no more"
    return [("pcie_slot", f"{words}, which a virtual machine does not see")]


def _standing(g: dict[str, t.Any], alike: t.Sequence[dict[str, t.Any]], days: float | None) -> list[base.Problem]:
    """Return the problems of counters of corrected errors that are high without rising."""
    problems: list[base.Problem] = []
    for group, name, code, words, allowance in (
        ("ecc", "volatile_corrected", "ecc_corrected", "corrected memory errors since the driver was loaded", base.CORRECTED),
        ("ecc", "aggregate_corrected", "ecc_corrected", "corrected memory errors in the GPU's life", base.CORRECTED_IN_LIFE),
        ("pcie", "replays", "pcie_corrected", "PCIe replays since the driver was loaded", base.REPLAYS),
    ):
        why = allowance.problem(g[group][name], [sibling[group][name] for sibling in alike], days)
        if why and not any(known == code for known, _words in problems):
            problems.append((code, f"{g[group][name]} {words}; {why}"))
    return problems


def _counted(counters: t.Mapping[str, t.Any], kind: str) -> list[str]:
    """Return in words what the counters of one class have counted, without those that counted nothing."""
    counts = {name: value for name, value in counters.items() if nvlink_counters.kind_of(name) == kind}
    texts = [f"{value} {name}" for name, value in counts.items() if not isinstance(value, Absent) and value]
    return [f"NVLink counters since the driver was loaded: {', '.join(texts)}"] if texts else []


def link_problems(
    gpus: t.Sequence[dict[str, t.Any]], counters: t.Mapping[str, t.Mapping[str, t.Any]], days: float | None
) -> dict[str, list[base.Problem]]:
    """Return {GPU UUID: problems} of counters of NVLinks that are high without rising: each class together, and rates of bit errors. A
    counter that could be read on no link is a state that is not known, unless a driver prints it for no GPU."""
    found: dict[str, list[base.Problem]] = {}
    names = {g["uuid"]: g["name"] for g in gpus if g["uuid"] in counters}
    readable = {name for of in counters.values() for name, value in of.items() if not isinstance(value, Absent)}
    for uuid, model in names.items():
        problems: list[base.Problem] = []
        of_alike = [counters[other] for other, name in names.items() if name == model and other != uuid]
        for kind, (words, allowance) in LINK_ERRORS.items():
            own, *others = (_highest(of, kind) for of in (counters[uuid], *of_alike))
            why = allowance.problem(own, others, days)
            if why:
                (texts,) = _counted(counters[uuid], kind)
                problems.append(("nvlink_error", f"{own} {words} on its NVLinks; {why} ({texts})"))
        for name, value in counters[uuid].items():
            is_rate = nvlink_counters.kind_of(name) == nvlink_counters.RATE
            if is_rate and base.above(value, nvlink_counters.WORST_RATE):
                words = f"{value:.1g} is the worst {name.replace('_', ' ')} of its NVLinks, above {nvlink_counters.WORST_RATE:.0e}"
                problems.append(("nvlink_error", f"{words}: a healthy link has next to none"))
        unread = sorted(name for name, value in counters[uuid].items() if isinstance(value, Absent) and name in readable)
        if unread:
            problems.append(("unreadable_state", f"nvidia-smi nvlink -e does not tell its {', '.join(unread)}, and those of other GPUs"))
        if problems:
            found[uuid] = problems
    return found


def _highest(counters: t.Mapping[str, t.Any], kind: str) -> absent.Value:
    """Return the highest counter of a class: some count the same events under two names."""
    values = [value for name, value in counters.items() if nvlink_counters.kind_of(name) == kind and not isinstance(value, Absent)]
    return max(values) if values else Absent("no counter of this class can be read")


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
    modes = {sibling["ecc_mode"] for sibling in alike}
    if g["ecc_mode"] == "Disabled" and "Enabled" in modes and not HAS_ECC.fullmatch(g["name"] or ""):
        problems.append(("ecc_off", f"{ECC_OFF}; it is on for another GPU of its model"))
    own_memory = absent.plain(g["memory_total_mib"])
    memory = max((absent.plain(sibling["memory_total_mib"]) or 0 for sibling in alike if sibling["ecc_mode"] == g["ecc_mode"]), default=0)
    if own_memory is not None and own_memory < base.MEMORY_SHARE * memory:
        problems.append(("gpu_state", f"it has {own_memory} MiB of memory, and another GPU of its model {memory} MiB"))
    places = collections.Counter(_place_in_fabric(sibling) for sibling in (g, *alike) if _place_in_fabric(sibling))
    own_place = _place_in_fabric(g)
    if own_place and any(count >= places[own_place] for place, count in places.items() if place != own_place):
        words = " and ".join(place for place in places if place != own_place)
        problems.append(("fabric", f"its place in the NVLink fabric is {own_place}, that of other GPUs of the node {words}"))
    top, best = absent.plain(g["clocks"]["max_sm"]), max((absent.plain(sibling["clocks"]["max_sm"]) or 0 for sibling in alike), default=0)
    if top is not None and top < best:
        problems.append(("clocks_locked", f"its SM clock is {top:g} MHz at most, that of another GPU of its model {best:g} MHz"))
    silent = {
        words: None for path, words in TOLD
        if isinstance(_at(g, path), Absent) and any(not isinstance(_at(sibling, path), Absent) for sibling in alike)
    }  # fmt: skip
    unread_of_alike = [{cell["cell"] for cell in sibling["unreadable"]} for sibling in alike]
    for cell in g["unreadable"]:
        if not cell["may_not"] and cell["about"] in VITAL_STATES and any(cell["cell"] not in unread for unread in unread_of_alike):
            silent[f"{cell['cell']} ({cell['about']})"] = None
    if silent:
        problems.append(("gpu_state", f"it does not report its {', '.join(silent)}, and other GPUs of its model do"))
    return problems


# What a GPU reports if the others of its model in the node do: the path of the value in a device, and its name for people.
TOLD: tuple[tuple[tuple[str, ...], str], ...] = (
    (("ecc", "volatile_uncorrected"), "memory errors"),
    (("ecc", "unrepairable"), "memory beyond repair"),
    (("remapped_rows", "uncorrectable"), "remapped rows"),
    (("remapped_rows", "pending"), "pending repairs"),
    (("remapped_rows", "failure"), "failed row remaps"),
    (("retired_pages", "double_bit"), "retired pages"),
    (("pcie", "width"), "PCIe width"),
    (("pcie", "gen_max"), "highest PCIe generation"),
    (("pcie", "replays"), "PCIe replays"),
    (("temperature_c",), "temperature"),
    (("power", "draw_w"), "power"),
    (("power", "limit_w"), "power limit"),
    (("power", "default_limit_w"), "default power limit"),
    (("clocks", "max_sm"), "highest SM clock"),
    (("clocks", "sm"), "SM clock"),
    (("clocks", "mem"), "memory clock"),
    (("memory_total_mib",), "memory"),
)


def _at(g: dict[str, t.Any], path: t.Sequence[str]) -> t.Any:
    value: t.Any = g
    for name in path:
        value = value[name]
    return value


def _place_in_fabric(g: dict[str, t.Any]) -> str:
    """Return the NVLink domain and the partition of a GPU, `cluster 0d1f..., clique 1`; empty if its fabric is not set up, or none."""
    fabric = g["fabric"]
    cluster = (fabric["cluster"] or "").strip("0-") and fabric["cluster"]
    if (fabric["state"] or "").lower() != "completed" or not (cluster or fabric["clique"]):
        return ""
    return f"cluster {cluster or 'none'}, clique {fabric['clique'] or 'none'}"


def slow_link(
    g: dict[str, t.Any], load: base.Load, alike: t.Sequence[base.Load], widths: t.Sequence[t.Any] = ()
) -> list[base.Problem]:
    """Return the problem of a PCIe link that was slower or narrower under load than GPU and slot allow. Idle links run slower. If the
    slot is hidden, as in a virtual machine, the links of other GPUs of the model are the reference (`alike`: under load, `widths`: as the
    driver reports them), and what the link was itself before; no slot of such a GPU is two generations older."""
    problems: list[base.Problem] = []
    slot = slots.of(g["name"] or "")
    idle, width = absent.plain(g["pcie"]["width"]), absent.plain(g["pcie"]["width_max"]) or (slot.lanes if slot else 0)
    slot_max = absent.plain(g["pcie"]["gen_max"]) or (min(slot.generation, HOSTS_PCIE) if slot else 0)
    if SUPERCHIP.match(g["name"] or "") and isinstance(g["pcie"]["width_max"], Absent):
        width = slot_max = 0
    if not g["virtual"]:
        narrow = load.under("pcie_width", width) if width else []
        if narrow:
            problems.append(("pcie_width", f"the PCIe link is x{narrow[0]:g} under load and can be x{width}: reseat the GPU or its riser"))
    else:
        narrow = load.under("pcie_width", idle) if idle else []
        if narrow:
            words = f"the PCIe link is x{narrow[0]:g} under load and was x{idle} before: reseat the GPU or its riser"
            problems.append(("pcie_width", words))
        else:
            highest = [sibling.highest("pcie_width") for sibling in alike if sibling is not load]
            problems += hidden_width(g, load.highest("pcie_width"), [*highest, *map(absent.plain, widths)], " under load")
    slow = load.under("pcie_gen", slot_max) if slot_max else []
    if not slow:
        return problems
    words = f"the PCIe link is generation {slow[0]:g} under load and can be {slot_max}"
    fastest = max((sibling.highest("pcie_gen") or 0 for sibling in alike), default=0)
    certain = g["slot_known"] is not False or slow[0] < fastest or slow[0] <= slot_max - 2
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
    limits = [clock for clock in map(absent.plain, (g["clocks"]["max_sm"], g["application_clock"]["default"])) if clock]
    if load.samples < 2 or top is None or not limits or EXPLAINED & set(load.throttle):
        return []
    if top >= CLOCK_SHARE * min(limits):
        return []
    words = f"the SM clock was at most {top:g} MHz under load, of {min(limits)} MHz, and neither power nor temperature held it"
    return [("clocks_locked", f"{words}: nvidia-smi -rgc unlocks it")]


def _fabric(fabric: dict[str, t.Any], is_rack: bool) -> list[str]:
    """Return the defects of a GPU's place in its NVSwitch fabric. `Not Started` is no defect on a board: drivers report it without an
    NVSwitch, too. With one, CUDA refuses to start with error 802, which the check `cuda` names. `is_rack`: the fabric is managed by a
    switch tray."""
    problems = []
    state = (fabric["state"] or "").lower()
    if state and state not in ("completed", "not supported", *(() if is_rack else ("not started",))):
        advice = "see the fabric manager of its switch trays" if is_rack else "start nvidia-fabricmanager of the driver's version"
        problems.append(f"the NVLink fabric is {fabric['state']}: {advice}")
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


def domain_of(snapshot: dict[str, t.Any]) -> str:
    """Return the NVLink domain of a node's GPUs that goes beyond the node, as `CLUSTER/CLIQUE`; empty if the driver reports none."""
    domains = {(g["fabric"]["cluster"] or "", g["fabric"]["clique"] or "") for g in snapshot["gpus"]}
    cluster, clique = domains.pop() if len(domains) == 1 else ("", "")
    return "" if nvlink_domain.is_zero(cluster) else f"{cluster}/{clique}"


def host_link(g: dict[str, t.Any]) -> tuple[int | None, int | None] | None:
    """Return the PCIe generation and width that a GPU and its slot can do; None for a superchip, whose CPU is reached by NVLink-C2C. A
    virtual machine hides the slot: then it has as many lanes as the link, and hidden_width() says what that may mean."""
    if SUPERCHIP.match(g["name"] or ""):
        return None
    generation, width, maximum = (absent.plain(g["pcie"][name]) for name in ("gen_max", "width", "width_max"))
    lanes = width if g["virtual"] and width else maximum
    return None if generation is None and lanes is None else (_whole(generation), _whole(lanes))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


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
    listed = {on_bus.place(g["bdf"] or "") for g in snapshot["gpus"]}
    excluded = set(_excluded(root))
    paths = sorted(glob.glob(os.path.join(root, DRIVER_GPUS, "*")))
    return [name for name in map(os.path.basename, paths) if name not in excluded and on_bus.place(name) not in listed]


DRIVER_GPUS = "proc/driver/nvidia/gpus"


def _excluded(root: str) -> list[str]:
    """Return the PCI addresses of GPUs that the driver was told to leave out (its parameter NVreg_ExcludedGpus)."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, DRIVER_GPUS, "*"))):
        with contextlib.suppress(OSError), open(os.path.join(path, "information"), encoding="utf-8", errors="replace") as source:
            if any(line.replace(" ", "").split() == ["GPUExcluded:", "Yes"] for line in source):
                found.append(os.path.basename(path))
    return found
