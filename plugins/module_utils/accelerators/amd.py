# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD Instinct GPUs, by amd-smi; without amd-smi by what the kernel shows in /sys.

A partitioned GPU (modes other than SPX) is several devices. Its mode is a part of the name of their model, `AMD Instinct MI300X CPX/NPS4`:
expectations of whole GPUs are not those of parts.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import (
    amd_products,
    amd_sampler,
    amd_sysfs,
    amdgpu_log,
    base,
    hip,
    nccl_settings,
    on_bus,
    xgmi,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, installed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import (
    hip_driver,
    hip_kernels,
    hip_products,
    hip_sensors,
    memory_kernels,
)

# amd-smi of ROCm 7.14 and later gives a GPU that hangs up after 60 s, and says so; older ones wait for ever.
QUERY_TIMEOUT_S = 75.0
# A tool that had less time says nothing of the devices: it asks every GPU in turn, and loads the driver's firmware first.
ANSWER_S = 30.0
# sudo and systemd drop it from PATH.
ROCM_BIN = "/opt/rocm/bin"
SYSFS = "/sys"
# Microseconds of one step of the firmware's counters of throttling, which count once in each of its cycles.
STEP_US = 1000
# From this share of the last second on a GPU works.
WORKS_PERCENT = 50
INTERVAL_S = 1.0
# GT/s of a lane -> generation of PCIe.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# A power limit is set in whole watts.
POWER_SLACK_W = 1.0
# At this number of bad pages the driver refuses the GPU, and AMD replaces it (amdgpu_ras_eeprom.c, threshold of MI300).
BAD_PAGES = 128
# Causes that no machine in order shows under load, by the name of evidence, and the counter of the firmware. `ppt`, the power limit, is
# none of them: matrix products run at it.
BAD_THROTTLE: dict[str, str | None] = {
    "hw_prochot": "prochot", "socket_thermal": "socket_thermal", "vr_thermal": "vr_thermal", "hbm_thermal": "hbm_thermal",
}  # fmt: skip
NAMES_OF_THROTTLE = {**{counter: name for name, counter in BAD_THROTTLE.items()}, "ppt": "power_limit"}
NO_GROUPS = "amd-smi may not open the device files: the account needs the groups video and render, or root (acceptance_become)"
NO_GROUPS_CONTAINED = (
    "a container whose user is not root needs the groups of the device files, by their numbers on the machine: see docs/amd.md"
)
# States of RAS of a block in which it looks for errors.
RAS_ON = ("ENABLED", "PARITY", "SING_C", "MULT_UC", "POISON")
SETTINGS = ("HSA_", "RCCL_", "HIP_FORCE_", "GPU_MAX_HW_QUEUES")


class Amd(base.Accelerator):
    kind = "amd"
    article = "an"
    plural = "AMD GPUs"
    tool = "amd-smi"
    support: t.Mapping[str, tuple[str, ...]] = {
        f"amd-smi-{name}.json": (name, "--json") for name in ("version", "static", "metric", "bad-pages", "firmware")
    }
    option = "amd_smi"
    # By UUID it does not matter in which order a tool counts.
    visible = "ROCR_VISIBLE_DEVICES"
    visible_by_uuid = True
    torch = "cuda"
    torch_build, torch_build_word = "hip", "ROCm"
    torch_blas: t.Mapping[str, str] = {
        "Cublas": "rocBLAS", "Cublaslt": "hipBLASLt", "Ck": "Composable Kernel", "Default": "rocBLAS/hipBLASLt", "": "rocBLAS/hipBLASLt",
    }  # fmt: skip
    products = ("torch",)
    collectives = "nccl"
    collective_tests, collective_library = "rccl-tests", "RCCL"
    driver = base.Driver(
        "libamdhip64", "HIP", (hip_driver, hip_sensors), (memory_kernels, hip_kernels), (hip_products,), frozenset(BAD_THROTTLE)
    )
    # Display controllers and processing accelerators.
    pci = ("0x1002", ("0x0300", "0x0302", "0x0380", "0x1200"))
    device_files = r"/dev/kfd|/dev/dri/renderD\d+"
    container: t.Mapping[str, t.Sequence[str]] = {
        **dict.fromkeys(
            ("docker", "podman"),
            ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video", "--security-opt", "seccomp=unconfined"),
        ),
        "apptainer": ("--rocm",),
    }
    runtime_all: t.Mapping[str, str] = {"AMD_VISIBLE_DEVICES": "all"}
    runtime_none: t.Mapping[str, str] = {"AMD_VISIBLE_DEVICES": "void"}
    resource = "amd.com/gpu"
    selector = "feature.node.kubernetes.io/amd-gpu=true"
    # The device plugin hands over /dev/kfd and files of /dev/dri, and no other part of AMD's GPU operator does.
    shown_without_request = False
    # Since Linux 5.12 NICs reach the memory by DMA-BUF, without a module.
    peer_memory = ("amdp2p", "ib_peer_mem")
    modules = ("amdgpu", *peer_memory)
    perftest_device, perftest_dmabuf = "--use_rocm", "--use_rocm_dmabuf"
    programs: t.Mapping[str, str] = {"rocminfo": "rocminfo", "rocm_bandwidth_test": "rocm-bandwidth-test"}
    library_facts = ("rocm*", "rccl*")
    pod_facts = ("rccl_python",)
    image_facts = ("rocm", "rccl_system")
    link_code = "nvlink_error"
    link = "XGMI"
    links_code = "nvlink"
    log_code = "xid"
    bad_throttle = BAD_THROTTLE
    sample_s = INTERVAL_S

    def __init__(self, node: Node, program: str) -> None:
        path = f"{ROCM_BIN}/{program}"
        known = "/" in program or not program or node.which(program) or not node.which(path)
        super().__init__(node, program if known else path)
        self._tree = Tree(node)
        self._unsampled: set[str] = set()

    @classmethod
    def perftest_number(cls, node: Node, slot: str) -> str | None:
        """Return the place of a GPU in the order of HIP, that of the driver's topology; of a partitioned GPU that of its first part.
        None if a variable of the environment hides GPUs from perftest, and so changes their places."""
        if any(name in os.environ for name in hip.HIDING):
            return None
        places = [on_bus.place(amd_sysfs.address(properties)) for properties in amd_sysfs.gpus(Tree(node)).values()]
        return str(places.index(on_bus.place(slot))) if on_bus.place(slot) in places else None

    def is_installed(self) -> bool:
        """Return True if amd-smi is there, or if the kernel's driver has a GPU. An empty program says that AMD GPUs are not meant."""
        return bool(self.program) and (bool(self.node.which(self.program)) or bool(amd_sysfs.gpus(self._tree)))

    # The devices -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> base.Snapshot:
        if self.program and not self.node.which(self.program):
            found = amd_sysfs.devices(self._tree)
            if found:
                return self._measured(found, simulated=False, driver=None)
        outputs: dict[str, amd_smi.Output] = {}
        for name in ("static", "metric", "list", "bad-pages", "process", "partition"):
            result = self._ask(name)
            problem = self._refused(name, result)
            # Without the first three nothing is known of the devices; what the others lack is absent.
            if problem and name in ("static", "metric", "list"):
                return self._error(*problem, simulated=any(of.simulated for of in outputs.values()))
            outputs[name] = amd_smi.read(result.out)
        simulated = any(of.simulated for of in outputs.values())
        devices = gathered({name: amd_smi.by_gpu(of.records) for name, of in outputs.items()})
        if not devices:
            return self._error("no_gpu", f"{self.program} shows no GPU", simulated=simulated)
        if any(of.no_groups for of in outputs.values()) and all(_is_dumb(device) for device in devices):
            words = f"{NO_GROUPS}; {NO_GROUPS_CONTAINED}" if container.is_inside() else NO_GROUPS
            return self._error("no_permission", words, simulated=simulated)
        devices, why = self._given(devices)
        if not devices:
            words = f"a container must request GPUs, and {NO_GROUPS_CONTAINED}"
            return self._error("no_permission", f"{self.program} shows GPUs and this container may use none: {why}; {words}", simulated)
        for device in devices:
            if not device["metric"]["throttle"].counts or isinstance(device["metric"]["throttle"].total, Absent):
                self._complete_throttle(devices)
                break
        return self._measured(devices, simulated, None)

    def _given(self, devices: list[dict[str, t.Any]]) -> tuple[list[dict[str, t.Any]], str]:
        """Return the devices that this process may use, and why it may not use the last of the others. amd-smi reads /sys, which shows a
        container all GPUs of its machine."""
        if not container.is_inside():
            return devices, ""
        reasons_of = [(of, self._not_ours(of["identity"]["bdf"] or "")) for of in devices]
        return [of for of, why in reasons_of if not why], next((why for _of, why in reversed(reasons_of) if why), "")

    def _ask(self, *words: str) -> t.Any:
        return self.node.run([self.program, *words, "--json"], timeout=QUERY_TIMEOUT_S)

    def _complete_throttle(self, devices: list[dict[str, t.Any]]) -> None:
        """Read what versions print of throttling only if they are asked for it, under one of two names."""
        for option in ("--violation", "--throttle"):
            result = self._ask("metric", option)
            records = amd_smi.by_gpu(amd_smi.read(result.out).records)
            if result.ok and records:
                for device in devices:
                    device["metric"]["throttle"] = amd_smi.throttled(records.get(device["index"], {}))
                return

    def _refused(self, name: str, result: t.Any) -> base.Problem | None:
        """Return why a subcommand says nothing, as (reason code, reason). The exit status of old versions is 0 for some failures."""
        command = f"{self.program} {name}"
        if result.missing:
            code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
            return code, f"{self.program}: {result.missing}; install ROCm, or set acceptance_amd_smi"
        if result.cut_short(min(ANSWER_S, QUERY_TIMEOUT_S)):
            return "timeout", f"{command} was ended before it answered: it had {result.ended_after(QUERY_TIMEOUT_S)}"
        if result.timed_out:
            return "gpu_lost", f"{command} did not answer in {result.ended_after(QUERY_TIMEOUT_S)}: a GPU or its driver hangs, see dmesg"
        if amd_smi.read(result.out).records and not result.rc:
            return None
        spoken = amd_smi.failure(f"{result.out}\n{result.err}")
        if spoken:
            return spoken
        words = " ".join((result.err or result.out[:1000]).split())[:200]
        if result.rc:
            return "tool_failed", f"{command} ended with status {result.rc}: {words}"
        return "bad_output", f"{command} --json printed no JSON, or JSON that is cut: {words}"

    def _error(self, code: str, reason: str, simulated: bool = False) -> base.Snapshot:
        return {
            "outcome": "error", "reason_code": code, "reason": reason, "kind": self.kind, "driver": None, "cuda": None,
            "simulated": simulated, "gpus": [],
        }  # fmt: skip

    def _measured(self, devices: list[dict[str, t.Any]], simulated: bool, driver: str | None) -> base.Snapshot:
        driver = driver or next((of["static"]["driver"] for of in devices if of["static"]["driver"]), None)
        virtual = None if simulated else self._tree.is_virtual()
        order = sorted(
            (of["index"] for of in devices), key=lambda index: absent.plain(_by_index(devices, index)["identity"]["node_id"]) or index
        )
        _complete_parts(devices)
        serials = [of["static"]["serial"] for of in devices]
        # In the order in which HIP and PyTorch count them.
        gpus = sorted(
            (device(of, order.index(of["index"]), virtual, serials.count(of["static"]["serial"]) > 1, simulated) for of in devices),
            key=lambda g: g["order"],
        )
        lost = [f"GPU {g['index']} ({g['bdf']}): {g['lost']}" for g in gpus if g["lost"]]
        return {
            "outcome": "error" if lost else "measured", "reason_code": "gpu_lost" if lost else None, "reason": "; ".join(lost) or None,
            "kind": self.kind, "driver": driver or self._kernel(), "cuda": None, "simulated": simulated, "gpus": gpus,
        }  # fmt: skip

    def _kernel(self) -> str | None:
        """Return the release of the kernel, which is the version of a driver that came with it."""
        return self._tree.text("/proc/sys/kernel/osrelease")

    def health(self, device: base.Device) -> list[base.Problem]:
        return health(device)

    def siblings(self, snapshot: base.Snapshot) -> dict[str, list[base.Problem]]:
        return siblings(snapshot["gpus"], self._days())

    def _days(self) -> float | None:
        """Return for how many days the machine is up; None if that cannot be read."""
        try:
            return float((self._tree.text("/proc/uptime") or "").split()[0]) / 86400
        except (ValueError, IndexError):
            return None

    # The bus ---------------------------------------------------------------------------------------------------------

    def _is_elsewhere(self, snapshot: base.Snapshot) -> bool:
        """Return True if a simulated tool shows GPUs that the machine it runs on does not have, and nothing plants a bus beside it."""
        return bool(snapshot.get("simulated")) and not os.path.isdir(self.node.path(SYSFS))

    def unseen(self, snapshot: base.Snapshot) -> list[str]:
        """Return the addresses of GPUs that the driver's topology has and amd-smi does not show."""
        if self._is_elsewhere(snapshot):
            return []
        shown = {on_bus.place(str(g["bdf"])) for g in snapshot["gpus"] if g["bdf"]}
        known = [amd_sysfs.address(properties) for properties in amd_sysfs.gpus(self._tree).values()]
        return [address for address in known if on_bus.place(address) not in shown and not self._not_ours(address)]

    def _not_ours(self, address: str) -> str:
        """Return why this process may not use a GPU; empty if it may, and then the GPU's silence is a fault."""
        if on_bus.withheld(self._tree, "/dev/kfd"):
            return on_bus.withheld(self._tree, "/dev/kfd")
        names = [name for name in self._tree.names(f"{amd_sysfs.DEVICES}/{address}/drm") if name.startswith("renderD")]
        return on_bus.withheld(self._tree, f"/dev/dri/{names[0]}") if names else ""

    def _on_bus(self) -> list[on_bus.OnBus]:
        """Return the processing accelerators of AMD, and display controllers of ids that are Instinct GPUs: the graphics of a processor
        that gives a console is none."""
        found = on_bus.devices(self._tree, *t.cast(t.Tuple[str, t.Tuple[str, ...]], self.pci))
        return [
            of for of in found
            if (self._tree.text(f"{on_bus.DEVICES}/{of.address}/class") or "").startswith("0x1200")
            or self._tree.number(f"{on_bus.DEVICES}/{of.address}/device") in amd_products.NAMES
        ]  # fmt: skip

    def present(self) -> list[on_bus.OnBus]:
        return on_bus.usable(self._tree, self._on_bus(), ("amdgpu",), self._not_ours)

    def bus(self, snapshot: base.Snapshot) -> on_bus.Bus:
        if self._is_elsewhere(snapshot):
            return on_bus.Bus([], {})
        shown = {str(g["bdf"]) for g in snapshot["gpus"] if g["bdf"]}
        # Those that only the driver has are found by unseen().
        known = {*shown, *self.unseen(snapshot)}
        return on_bus.compare(self._tree, self._on_bus(), known, ("amdgpu",), self.word, os.path.basename(self.program), self._not_ours)

    # XGMI ------------------------------------------------------------------------------------------------------------

    def links(self, snapshot: base.Snapshot) -> base.Links | None:
        """Return xgmi.Node as a dict: what `topology` and `xgmi` show, else what the kernel's topology has."""
        if len({of["socket"] for of in snapshot["gpus"]}) < 2:
            return {}
        if not self.node.which(self.program):
            between = amd_sysfs.links(self._tree)
            return {"between": between, "ports": {}} if between else None
        topology, ports = self._ask("topology"), self._ask("xgmi")
        between = amd_smi.topology(amd_smi.read(topology.out).records)
        by_gpu = amd_smi.xgmi(amd_smi.read(ports.out).records)
        return {"between": between, "ports": by_gpu} if between or by_gpu else None

    def links_down(self, snapshot: base.Snapshot, links: base.Links) -> dict[str, base.Problem]:
        return xgmi.down(snapshot["gpus"], links) if links else {}

    def links_beside(self, snapshot: base.Snapshot) -> dict[str, base.Problem] | None:
        links = self.links(snapshot)
        return None if links is None else self.links_down(snapshot, links)

    def links_unreadable(self, snapshot: base.Snapshot) -> dict[str, base.Problem]:
        words = "amd-smi topology and xgmi show no link, and the model has {links}: nobody knows whether they are up"
        return {
            g["uuid"]: ("unreadable_state", words.format(links=product.links))
            for g in snapshot["gpus"]
            if (product := amd_products.of_name(g["name"])) and self.is_on_board(g, snapshot["gpus"])
        }

    def link_errors(self, snapshot: base.Snapshot) -> dict[str, dict[str, int]] | None:
        """Return the errors that RAS has counted in the block of the XGMI links; None if it has no such block on a board that has links."""
        if len({of["socket"] for of in snapshot["gpus"]}) < 2:
            return {}
        if self.node.which(self.program):
            result = self._ask("metric", "--ecc-blocks")
            records = amd_smi.by_gpu(amd_smi.read(result.out).records)
            blocks = {index: amd_smi.metric(record)["blocks"] for index, record in records.items()}
        else:
            blocks = {of["index"]: of["metric"]["blocks"] for of in amd_sysfs.devices(self._tree)}
        counted = {g["uuid"]: xgmi.counted(blocks.get(g["index"], {})) for g in snapshot["gpus"]}
        whole = [g["uuid"] for g in snapshot["gpus"] if self.is_on_board(g, snapshot["gpus"]) and not g["partition"]["id"]]
        return counted if all(counted[uuid] for uuid in whole) else None

    # What a device should be -----------------------------------------------------------------------------------------

    @classmethod
    def memory_of_model(cls, name: str) -> int | None:
        product = amd_products.of_name(name)
        return product.memory_mib if product else None

    @classmethod
    def is_on_board(cls, device: base.Device, devices: t.Sequence[base.Device]) -> bool:
        """Return True if the device is of a model on boards, and all eight GPUs of the board are there."""
        return amd_products.of_name(device["name"]) is not None and sum(of["name"] == device["name"] for of in devices) == 8

    @classmethod
    def visible_names(cls, devices: t.Sequence[base.Device]) -> list[str]:
        """Return UUIDs, as ROCr has them; for parts of a GPU, which share that of the GPU, their places in the order of the driver."""
        return [str(of["order"] if of["partition"]["of_several"] or not of["rocr"] else of["rocr"]) for of in devices]

    # Software --------------------------------------------------------------------------------------------------------

    def facts(self, snapshot: base.Snapshot, links: base.Links | None) -> dict[str, t.Any]:
        gpus = snapshot["gpus"]

        def each(read: t.Callable[[dict[str, t.Any]], t.Any]) -> list[t.Any] | None:
            """Return the values of all GPUs; None if the version of amd-smi does not print it."""
            return sorted({value for value in map(read, gpus) if value is not None and not isinstance(value, Absent)}) or None

        return {
            "driver": snapshot["driver"],
            "amd_smi": self._version(),
            "gpu_memory_mib": each(lambda g: g["memory_total_mib"]),
            "vbios": each(lambda g: g["vbios"]),
            "gpu_firmware": self._firmware(),
            "gpu_partition": each(lambda g: partition_words(g["partition"])),
            "gpu_compute_units": each(lambda g: g["compute_units"]),
            "gpu_power_limit_w": each(lambda g: g["power"]["limit_w"]),
            "gpu_ecc_mode": each(lambda g: g["ecc_mode"]),
            "gpu_pcie": each(lambda g: f"gen{absent.plain(g['pcie']['gen_max'])} x{absent.plain(g['pcie']['width'])}"),
            "gpu_xgmi": xgmi.words(links) if links else None,
        }

    def _version(self) -> str | None:
        if not self.node.which(self.program):
            return None
        return amd_smi.version(amd_smi.read(self._ask("version").out).records)["library"]

    def _firmware(self) -> list[str] | None:
        """Return each firmware with its version, once for all GPUs that have the same."""
        if self.node.which(self.program):
            records = amd_smi.by_gpu(amd_smi.read(self._ask("firmware").out).records).values()
            of_gpus = [amd_smi.firmware(record) for record in records]
        else:
            of_gpus = [of["firmware"] for of in amd_sysfs.devices(self._tree)]
        return sorted({f"{name} {version}" for of in of_gpus for name, version in (of or {}).items()}) or None

    @classmethod
    def settings(cls, node: Node, env: t.Mapping[str, t.Any]) -> dict[str, str]:
        found = nccl_settings.of_machine(node, env, "rccl")
        return {**found, **{name: value for name, value in os.environ.items() if name.startswith(SETTINGS) and name not in env}}

    @classmethod
    def software(cls, node: Node) -> dict[str, t.Any]:
        return {
            "rocm": installed.read(node, "/opt/rocm/.info/version"),
            "rccl_system": installed.libraries(node, "librccl.so.1.*", f"{os.path.dirname(ROCM_BIN)}/lib"),
        }

    @classmethod
    def configuration(cls, node: Node, login: t.Mapping[str, str]) -> dict[str, str]:
        return nccl_settings.in_files(node.read, login.get("NCCL_CONF_FILE"), "rccl")

    def start(self) -> base.Start:
        return base.Start("HIP", hip.ASK_HIP, {}, "cuda_failed", hip.problem)

    # Evidence --------------------------------------------------------------------------------------------------------

    def sampling(self) -> list[str]:
        """Return the command line of the sampler: files of the driver, which cost nothing; in their absence amd-smi, again and again."""
        names = [of.address for of in self._on_bus() if of.driver == "amdgpu"] if os.path.isdir(self._tree.path(SYSFS)) else []
        folders = [self._tree.path(f"{on_bus.DEVICES}/{name}") for name in names]
        if self.node.which(self.program) and not all(os.path.exists(f"{folder}/gpu_busy_percent") for folder in folders):
            folders = []
        return [sys.executable, "-c", amd_sampler.SCRIPT, json.dumps({"folders": folders, "tool": self.program, "every_s": INTERVAL_S})]

    def sample(self, line: str, snapshot: base.Snapshot) -> base.DeviceSample | None:
        read = amd_sampler.parse(line)
        if read is None:
            return None
        place = on_bus.place(read.where) if isinstance(read.where, str) else None
        device = next(
            (g for g in snapshot["gpus"] if (g["index"] == read.where if place is None else on_bus.place(str(g["bdf"])) == place)), None
        )
        if device is None:
            return None
        values = {name: float(value) for name, value in read.values.items() if not isinstance(value, Absent)}
        speed = values.pop("speed", None)
        if speed in GENERATIONS:
            values["pcie_gen"] = float(GENERATIONS[speed])
        if read.throttle is None:
            # The counters around the test say how long each cause held the GPU.
            throttle: frozenset[str] = frozenset()
        else:
            throttle = frozenset(NAMES_OF_THROTTLE[cause] for cause in read.throttle)
        busy = values.pop("busy", None)
        if busy is None:
            self._unsampled.add("pcie_link")
        return base.DeviceSample(device["uuid"], values, throttle, busy is not None and busy >= WORKS_PERCENT)

    def sampled(self, device: base.Device, loads: t.Mapping[str, base.Load], snapshot: base.Snapshot) -> list[base.Problem]:
        load = loads.get(device["uuid"])
        if load is None:
            return []
        problems: list[base.Problem] = []
        for name, maximum, code, words in (
            ("pcie_width", device["pcie"]["width_max"], "pcie_width", "x{} under load and can be x{}"),
            ("pcie_gen", device["pcie"]["gen_max"], "pcie_speed", "generation {} under load and can be {}"),
        ):
            top = absent.plain(maximum)
            low = load.under(name, top) if top else []
            if low:
                problems.append((code, f"the PCIe link is {words.format(f'{low[0]:g}', f'{top:g}')}: reseat the GPU's board or its riser"))
        return problems

    def unsampled(self, loads: t.Mapping[str, base.Load]) -> list[str]:
        silent = any(not load.counts.get(name) for load in loads.values() for name in ("pcie_gen", "pcie_width"))
        return sorted({*(["pcie_link"] if silent or not loads else []), *self._unsampled})

    def takes_back(self, line: str) -> base.TakenBack | None:
        return base.TakenBack(None) if amdgpu_log.is_load(line) else None

    def logged(self, line: str) -> base.Logged | None:
        event = amdgpu_log.read(line)
        if event is None:
            return None
        words = f"amdgpu: {event.words()} ({event.line})"
        return base.Logged(event.where, event.name, event.of.code, event.of.own_code, event.pid, words, event.until_load)


def _by_index(devices: t.Sequence[dict[str, t.Any]], index: int) -> dict[str, t.Any]:
    return next(of for of in devices if of["index"] == index)


def gathered(outputs: t.Mapping[str, t.Mapping[int, amd_smi.Record]]) -> list[dict[str, t.Any]]:
    """Return [{"index", "identity", "static", "metric", "pages", "processes"}] from the records of the subcommands by GPU. A GPU that only
    one subcommand shows is one, and what the others say of it is absent."""
    indices = sorted({index for name in ("static", "metric", "list") for index in outputs.get(name, {})})
    found = []
    for index in indices:
        of = {name: outputs.get(name, {}).get(index, {}) for name in ("static", "metric", "list", "bad-pages", "process", "partition")}
        static, identity, modes = amd_smi.static(of["static"]), amd_smi.identity(of["list"]), amd_smi.partition(of["partition"])
        device_id = amd_smi.text(amd_smi.at(of["static"], "asic", "device_id"))
        static["device_id"] = int(device_id, 16) if device_id and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", device_id) else None
        static.update({name: static[name] or modes[name] for name in ("compute", "memory")})
        identity["bdf"] = identity["bdf"] or static["bdf"]
        if isinstance(identity["partition_id"], Absent):
            identity["partition_id"] = amd_smi.number(amd_smi.at(of["static"], "partition", "partition_id"), "partition_id")
        found.append({
            "index": index, "identity": identity, "static": static, "metric": amd_smi.metric(of["metric"]),
            "pages": amd_smi.bad_pages(of["bad-pages"]), "processes": amd_smi.processes(of["process"]),
            "is_empty": {name for name in ("static", "metric") if not _has_values(of[name])},
        })  # fmt: skip
    return found


def _complete_parts(devices: t.Sequence[dict[str, t.Any]]) -> None:
    """Give the parts of a GPU, for which versions print N/A, what is that of the whole GPU: its serial number and its model."""
    first: dict[t.Any, dict[str, t.Any]] = {}
    for of in devices:
        slot = on_bus.place(of["identity"]["bdf"] or "")
        whole = first.setdefault(slot, of["static"])
        if slot and absent.plain(of["identity"]["partition_id"]):
            of["static"].update({name: of["static"][name] or whole[name] for name in ("serial", "name", "device_id", "gfx")})


def _has_values(record: amd_smi.Record) -> bool:
    """Return True if a record has anything beside the index of its GPU that is not N/A."""
    return any(amd_smi.first(record, (key,)) not in (None, [], {}) for key in record if key not in ("gpu", "gpu_id", "simulated"))


def _is_dumb(device: dict[str, t.Any]) -> bool:
    """Return True if a device says neither what memory it has nor what errors."""
    errors = device["metric"]["ecc"]["uncorrectable"]
    memory = (device["static"]["memory_mib"], device["metric"]["memory_total_mib"])
    return isinstance(errors, Absent) and all(isinstance(of, Absent) for of in memory)


def partition_words(partition: t.Mapping[str, t.Any]) -> str | None:
    """Return the partition modes of a device, `CPX/NPS4`; None if neither can be read."""
    if not partition["compute"] and not partition["memory"]:
        return None
    return f"{partition['compute'] or 'unknown'}/{partition['memory'] or 'unknown'}"


def device(
    read: dict[str, t.Any], order: int, virtual: bool | None = None, is_shared: bool = False, simulated: bool = False
) -> base.Device:
    """Return a device from one that gathered() or amd_sysfs gives. `order`: its place in the order of the driver. `is_shared`: other
    devices have its serial number, as the parts of a GPU do."""
    static, metric, identity = read["static"], read["metric"], read["identity"]
    serial, part = _serial(static["serial"]), absent.plain(identity["partition_id"])
    is_part = is_shared or (static["compute"] or "SPX") != "SPX"
    rocr = f"GPU-{serial}" if serial else None
    partition = {"compute": static["compute"], "memory": static["memory"], "id": part or 0, "of_several": is_part}
    name = amd_products.name_of(static["device_id"], static["name"])
    # A whole GPU whose memory is divided has other numbers too.
    if name and (is_part or (static["memory"] or "NPS1") != "NPS1"):
        name = f"{name} {partition_words(partition) or 'partitioned'}"
    uuid = rocr or identity["uuid"] or identity["bdf"]
    throttle, pages = metric["throttle"], read["pages"]
    memory = static["memory_mib"] if not isinstance(static["memory_mib"], Absent) else metric["memory_total_mib"]
    states = static["ras"]
    lost = None
    if {"static", "metric"} <= read.get("is_empty", set()):
        lost = "amd-smi lists it and reads nothing of it: it does not answer"
    return base.device_of(
        "amd-smi", index=read["index"], uuid=f"{uuid}-p{part or 0}" if uuid and is_part else uuid, rocr=rocr, order=order,
        serial=serial, name=name, bdf=identity["bdf"], vbios=static["vbios"], lost=lost, virtual=virtual, slot_known=False,
        architecture=static["gfx"], board_part_number=static["board_part_number"], module=absent.plain(static["oam_id"]),
        socket=serial or (identity["bdf"] or "").rpartition(".")[0], partition=partition, compute_units=static["compute_units"],
        memory_total_mib=memory, memory_used_mib=metric["memory_used_mib"], utilization=metric["busy"],
        temperature_c=metric["temperature_c"], ecc_mode=_ecc_mode(states), ras=states, blocks=metric["blocks"],
        ecc={
            "volatile_uncorrected": metric["ecc"]["uncorrectable"], "volatile_corrected": metric["ecc"]["correctable"],
            "deferred": metric["ecc"]["deferred"], "aggregate_uncorrected": Absent("amd-smi does not report it"),
            "aggregate_corrected": Absent("amd-smi does not report it"), "unrepairable": None,
        },
        pages=pages,
        # Bad pages that were found during a test are a change of this counter.
        remapped_rows={"correctable": None, "uncorrectable": pages["retired"], "pending": None, "failure": None},
        retired_pages={
            "single_bit": None, "double_bit": absent.plain(pages["retired"]),
            "pending": None if isinstance(pages["pending"], Absent) else "Yes" if pages["pending"] else "No",
        },
        clocks={"sm": metric["clock_mhz"], "mem": metric["memory_clock_mhz"], "max_sm": metric["clock_max_mhz"]},
        power={"draw_w": metric["power_w"], "limit_w": static["limit_w"], "default_limit_w": static["max_limit_w"]},
        pcie={
            "gen": _generation(metric["speed"]), **dict.fromkeys(("gen_max", "gen_device"), _generation(static["speed_max"])),
            "width": metric["width"], "width_max": static["width_max"], "replays": metric["replays"],
        },
        throttle_reasons=[NAMES_OF_THROTTLE[cause] for cause in throttle.active],
        throttle_us={cause: _microseconds(count) for cause, count in throttle.counts.items()},
        xgmi_state=metric["xgmi"], processes=read["processes"] or [], simulated=simulated,
    )  # fmt: skip


def _serial(text: str | None) -> str | None:
    """Return a serial number in the form of ROCr's UUIDs, 16 digits, if it is a hexadecimal number; zeros are none."""
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,16})", text or "")
    digits = match.group(1).lower() if match else (text or "")
    return (f"{digits:0>16}" if match else digits) if digits.strip("0") else None


def _generation(speed: Value) -> Value:
    if isinstance(speed, Absent):
        return speed
    return GENERATIONS.get(float(speed), Absent(f"no generation of PCIe has {speed:g} GT/s"))


def _microseconds(steps: Value) -> Value:
    return steps if isinstance(steps, Absent) else steps * STEP_US


def _ecc_mode(states: t.Mapping[str, str] | None) -> str | None:
    """Return whether RAS is on for the memory: the word of another kind's driver for the same."""
    state = (states or {}).get("UMC")
    return None if state is None else "Enabled" if state in RAS_ON else "Disabled" if state == "DISABLED" else None


def by_block(g: base.Device, kind: str) -> str:
    """Return in words in which blocks the errors of a kind are, `UMC 2, GFX 1`; empty if no block says."""
    counts = {block: of[kind] for block, of in g["blocks"].items()}
    return ", ".join(f"{block} {count}" for block, count in sorted(counts.items()) if base.above(count, 0))


def health(g: base.Device) -> list[base.Problem]:
    """Return the defects of one GPU as (reason code, words), the gravest first; empty if there are none."""
    problems: list[base.Problem] = []
    if g["lost"]:
        problems.append(("gpu_lost", g["lost"]))
    problems += [*_errors(g), *_bad_pages(g), *_model(g), *_settings(g), *_unreadable(g)]
    width, maximum = absent.plain(g["pcie"]["width"]), absent.plain(g["pcie"]["width_max"])
    if width and maximum and width < maximum and not g["virtual"]:
        problems.append(("pcie_width", f"the PCIe link is x{width:g} and can be x{maximum:g}: reseat the GPU's board or its riser"))
    # The driver's own file has a number: 0 for none, 1 for one error, 2 for several.
    state = g["xgmi_state"] or ""
    if re.search(r"(?i)multiple|error|^[12]$", state) and not re.search(r"(?i)\bno|no_err|^0$", state):
        problems.append(("nvlink_error", f"its XGMI links have had errors: {g['xgmi_state']}"))
    return sorted(problems, key=lambda problem: problem[0] in reasons.MILD)


def _errors(g: base.Device) -> list[base.Problem]:
    problems: list[base.Problem] = []
    for kind, count, words in (
        ("uncorrectable", g["ecc"]["volatile_uncorrected"], "uncorrectable errors"),
        ("deferred", g["ecc"]["deferred"], "deferred errors (bad data that was not used yet)"),
    ):
        if base.above(count, 0):
            where = by_block(g, kind)
            problems.append(("ecc", f"{count} {words} since the driver was loaded{f' ({where})' if where else ''}"))
        elif by_block(g, kind):  # the sum is missing, or leaves a block out
            problems.append(("ecc", f"{kind} errors since the driver was loaded ({by_block(g, kind)})"))
    return problems


def _bad_pages(g: base.Device) -> list[base.Problem]:
    pages, problems = g["pages"], []
    retired = pages["retired"]
    if base.above(retired, BAD_PAGES - 1):
        problems.append(("ecc", f"{retired} pages of its memory are bad, {BAD_PAGES} or more: AMD replaces the GPU"))
    elif base.above(retired, 0):
        problems.append(("ecc_past", f"{retired} pages of its memory are retired, fewer than {BAD_PAGES}"))
    if base.above(pages["pending"], 0):
        problems.append(("ecc", f"{pages['pending']} bad pages of its memory are still in use: reset the GPUs, or restart the node"))
    if base.above(pages["unreservable"], 0):
        problems.append(("ecc", f"{pages['unreservable']} bad pages of its memory could not be taken out of use: restart the node"))
    return problems


def _model(g: base.Device) -> list[base.Problem]:
    """Return what a whole GPU has less than its model."""
    product = amd_products.of_name(g["name"])
    if product is None:
        return []
    problems: list[base.Problem] = []
    units, memory = absent.plain(g["compute_units"]), absent.plain(g["memory_total_mib"])
    if units is not None and units < product.compute_units:
        problems.append(("gpu_state", f"it has {units} compute units, and its model {product.compute_units}"))
    if memory is not None and product.memory_mib and memory < base.MEMORY_SHARE * product.memory_mib:
        problems.append(("gpu_state", f"it has {memory} MiB of memory, and its model {product.memory_mib}"))
    return problems


def _settings(g: base.Device) -> list[base.Problem]:
    problems: list[base.Problem] = []
    product, limit = amd_products.of_name(g["name"]), absent.plain(g["power"]["limit_w"])
    if product and limit is not None and limit < product.power_w - POWER_SLACK_W:
        words = f"the power limit is {limit:g} W, and that of the model {product.power_w} W: amd-smi set --power-cap sets it"
        problems.append(("power_limit", words))
    if g["ecc_mode"] == "Disabled" and amd_products.INSTINCT.match(g["name"] or ""):
        problems.append(("ecc_off", "RAS of the memory is off: memory errors go unnoticed"))
    return problems


def _unreadable(g: base.Device) -> list[base.Problem]:
    """Return the problem of a GPU of a known model that does not report what it would be judged by. The first part of a partitioned GPU
    reports for all of it."""
    if g["lost"] or g["partition"]["id"] or not amd_products.INSTINCT.match(g["name"] or ""):
        return []
    values = {
        "memory errors": g["ecc"]["volatile_uncorrected"], "memory": g["memory_total_mib"],
        "bad pages": next((of for of in g["pages"].values() if isinstance(of, Absent)), 0),
        "PCIe width": g["pcie"]["width"], "temperature": g["temperature_c"],
    }  # fmt: skip
    silent = {name: value.why for name, value in values.items() if isinstance(value, Absent)}
    if not silent:
        return []
    return [("unreadable_state", f"nobody can say what its {', '.join(silent)} is: {'; '.join(dict.fromkeys(silent.values()))}")]


def siblings(gpus: t.Sequence[base.Device], days: float | None) -> dict[str, list[base.Problem]]:
    """Return {UUID: problems} that only the other GPUs of the node show: another partition mode, less memory or fewer compute units, and
    counters that are high beside theirs."""
    found: dict[str, list[base.Problem]] = {}
    modes = [partition_words(g["partition"]) for g in gpus]
    usual = max(set(modes), key=lambda mode: (modes.count(mode), str(mode))) if modes else None
    for g in gpus:
        alike = [of for of in gpus if of["name"] == g["name"] and of["uuid"] != g["uuid"]]
        problems: list[base.Problem] = []
        own = partition_words(g["partition"])
        if g["name"] is None and any(of["name"] for of in gpus):
            problems.append(("gpu_state", "amd-smi static does not say what it is, and says it of other GPUs"))
        twin = next((of for of in gpus if g["serial"] and of["serial"] == g["serial"] and _slot(of) != _slot(g)), None)
        if twin:
            problems.append(("gpu_state", f"it has the serial number of GPU {twin['index']} at {twin['bdf']}"))
        expected, parts = amd_products.PARTS.get(g["partition"]["compute"] or ""), [of["socket"] for of in gpus].count(g["socket"])
        if expected and not twin and parts < expected:
            problems.append(("gpu_state", f"{parts} of {expected} parts of its GPU are there, whose partition is {own}"))
        if own != usual:
            problems.append(("gpu_state", f"its partition is {own or 'unknown'}, that of other GPUs of the node {usual or 'unknown'}"))
        for key, words in (("memory_total_mib", "MiB of memory"), ("compute_units", "compute units")):
            value, best = absent.plain(g[key]), max((absent.plain(of[key]) or 0 for of in alike), default=0)
            if value is not None and value < base.MEMORY_SHARE * best:
                problems.append(("gpu_state", f"it has {value} {words}, and another GPU of its model {best}"))
        for group, name, code, words, allowance in (
            ("ecc", "volatile_corrected", "ecc_corrected", "corrected errors since the driver was loaded", base.CORRECTED),
            ("pcie", "replays", "pcie_corrected", "PCIe replays since the driver was loaded", base.REPLAYS),
        ):
            why = allowance.problem(g[group][name], [of[group][name] for of in alike], days)
            if why:
                problems.append((code, f"{g[group][name]} {words}; {why}"))
        silent = [
            words for path, words in TOLD
            if isinstance(g[path[0]][path[1]], Absent) and any(not isinstance(of[path[0]][path[1]], Absent) for of in alike)
        ]  # fmt: skip
        if silent and not g["partition"]["id"] and not g["lost"]:
            problems.append(("gpu_state", f"it does not report its {', '.join(silent)}, and other GPUs of its model do"))
        if problems and g["uuid"]:
            found[g["uuid"]] = problems
    return found


def _slot(g: base.Device) -> t.Any:
    """Return the place of a device on the bus without its function, which parts of a GPU have of their own; None if it has no address."""
    return on_bus.place(g["bdf"] or "")


# What a GPU reports if the others of its model in the node do.
TOLD: tuple[tuple[tuple[str, str], str], ...] = (
    (("ecc", "volatile_uncorrected"), "memory errors"),
    (("pages", "retired"), "bad pages"),
    (("pages", "pending"), "bad pages that wait"),
    (("pages", "unreservable"), "bad pages that stay in use"),
    (("pcie", "width"), "PCIe width"),
    (("pcie", "replays"), "PCIe replays"),
    (("power", "draw_w"), "power"),
    (("power", "limit_w"), "power limit"),
    (("clocks", "sm"), "clock"),
)
