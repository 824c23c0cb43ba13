# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between probes and the accelerators of a node, the same for every kind.

Each device is a dict with the keys of parsers/nvidia_smi.parse_xml; a number that could not be read is Absent (answer/absent.py), a text
None; neither is healthy. Devices other than GPUs also have
`word` (their name for people) and `idle_mib` (MiB of memory in use on an idle device).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import chassis, on_bus
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

Device = t.Dict[str, t.Any]
# What snapshot() gives: {"outcome", "reason_code", "reason", "kind", "driver", "cuda", "simulated", "gpus": [Device]}.
Snapshot = t.Dict[str, t.Any]
# What a kind knows of the links between its devices; only the kind itself looks into it.
Links = t.Dict[str, t.Any]
# What is wrong with something, as (reason code, words).
Problem = t.Tuple[str, str]


# More remapped rows than this are a defect by themselves: of nodes with 1 to 10 remapped rows 5.6 % had become slower, of those with
# more 83.3 % (SuperBench, USENIX ATC 2024).
ROWS_REPAIRED = 10
# A device with less than this share of the memory of its siblings has lost a part of it.
MEMORY_SHARE = 0.99


class DeviceSample(t.NamedTuple):
    """One line of the sampler about a device: values of SERIES of state/evidence.py, why it was throttled, and whether it works."""

    uuid: str
    values: dict[str, float]
    throttle: t.AbstractSet[str]
    busy: bool = False


@dataclasses.dataclass
class Load:
    """The samples of one device under load. The first sample of a load is left out, so that clocks and links have had the time to wake up.
    `counts[name]` counts each value, `throttle` each reason."""

    samples: int = 0
    counts: dict[str, collections.Counter[float]] = dataclasses.field(default_factory=dict)
    throttle: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, sample: DeviceSample) -> None:
        self.samples += 1
        self.throttle.update(sample.throttle)
        for name, value in sample.values.items():
            self.counts.setdefault(name, collections.Counter())[value] += 1

    def highest(self, name: str) -> float | None:
        return max(self.counts[name]) if self.counts.get(name) else None

    def under(self, name: str, limit: float) -> list[float]:
        """Return the values below a limit if at least two samples and a tenth of all samples are below it; else an empty list."""
        low = {value: count for value, count in self.counts.get(name, {}).items() if value < limit}
        return sorted(low) if sum(low.values()) >= max(2.0, 0.1 * self.samples) else []


class Logged(t.NamedTuple):
    """An error of a device in the kernel's log. `where`: its PCI address, None if the line has none. `code`: the reason code; `own_code`:
    the reason code if the process `pid` belongs to our own test. Of lines with the same `name` about a device only the last one counts.
    `until_load`: the error ends when the driver is loaded again, since it then asks the device again."""

    where: str | None
    name: str
    code: str
    own_code: str
    pid: int | None
    words: str
    until_load: bool = False


class TakenBack(t.NamedTuple):
    """The errors that a line of the kernel's log ends, of those that hold until the driver is loaded: all of those before it, or, whenever
    they were logged, those of the device at the PCI address `where`, which is none of this host's."""

    where: str | None


_Data = t.TypeVar("_Data")


def standing(entries: t.Iterable[tuple[Logged | TakenBack, _Data]]) -> list[tuple[Logged, _Data]]:
    """Return the errors of a log that no line takes back, each with its data. `entries` are in the order of the log."""
    errors: list[tuple[Logged, _Data]] = []
    foreign: set[str | None] = set()
    for entry, data in entries:
        if isinstance(entry, Logged):
            errors.append((entry, data))
        elif entry.where is None:
            errors = [(error, of) for error, of in errors if not error.until_load]
        else:
            foreign.add(entry.where)
    return [(error, of) for error, of in errors if not (error.until_load and error.where and error.where in foreign)]


class LinkDomain(t.NamedTuple):
    """The domain of links that goes beyond a node, as the node sees it. `context`: plain data by which the nodes of one domain are put
    together and compared. `facts`: flat facts. `problems`: what is wrong on this node itself. `not_looked_for`: {code: words}."""

    context: dict[str, t.Any]
    facts: dict[str, t.Any]
    problems: list[Problem]
    not_looked_for: dict[str, str]


class Start(t.NamedTuple):
    """The script that starts the runtime of a kind in a child, as that may hang or crash. After each step it prints a line of `runtime` and
    a JSON object. problem(report, count) returns the defect that the last object shows, as (reason code, reason)."""

    runtime: str
    script: str
    env: dict[str, str]
    code: str
    problem: t.Callable[[dict[str, t.Any], int | None], Problem | None]


class Driver(t.NamedTuple):
    """How a test copies and computes on the devices by their driver alone, without PyTorch: gpu_memory and soak.

    `library`: the driver's library (context `backend`). `words`: the driver for people, with its version behind it. `api`: modules of
    workloads/ that have together the names of workloads/cuda_driver.py. `memory`, `products`: those with the names of
    workloads/memory_kernels.py and product_kernel.py; without `products` soak cannot load the devices. Each of the three is in the order
    in which it is packed. `bad_throttle`: the throttle reasons, by their names in a sample's sensors, that no machine in order shows under
    load.
    """

    library: str
    words: str
    api: tuple[types.ModuleType, ...]
    memory: tuple[types.ModuleType, ...]
    products: tuple[types.ModuleType, ...] = ()
    bad_throttle: t.AbstractSet[str] = frozenset()


class BugReport(t.NamedTuple):
    """The maker's program that collects what its support asks for, and writes it to a file. It may hang on the GPU that it is about.

    `options` are followed by the path of the file, to which the program adds `suffix`. `safe` are added where it is tried again after it
    hung. `places` are paths at which it stands besides PATH."""

    program: str
    options: tuple[str, ...]
    suffix: str
    safe: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


class Accelerator:
    """One kind of accelerators, by its tool on a node.

    The class attributes are everything that the rest of the collection must know of a kind: shared code reads them and names no kind.
    """

    kind = ""
    # What people call one device, and the devices of the kind.
    word = "GPU"
    article = "a"
    plural = ""
    # {first word of a model's name: its maker}, of words that are no maker.
    brands: t.Mapping[str, str] = {}
    # The program that shows the devices, and the option of probe modules that says where it is (`acceptance_` before it is the variable).
    tool = ""
    option = ""
    # Options by which the tool shows within a second how busy its devices are; empty if it cannot.
    glance: tuple[str, ...] = ()
    # The variable by which a process sees some devices only, and whether it names them by UUID (else by index).
    visible = ""
    visible_by_uuid = False
    # The type of the devices in PyTorch, the package that adds it to PyTorch (empty: PyTorch has it), PyTorch's backend of collectives,
    # and the operations and element types that a healthy backend may lack.
    torch = ""
    torch_plugin = ""
    collectives = ""
    lacks: tuple[str, ...] = ()
    # Which of the builds of PyTorch that have this type is meant: the name of its version in torch.version (`cuda`, `hip`), what people
    # call it, and the names of the libraries of matrix products as torch.backends.cuda.preferred_blas_library() has them.
    torch_build = ""
    torch_build_word = ""
    torch_blas: t.Mapping[str, str] = {}
    # By what gemm multiplies matrices, the first that a node has: `torch`, or a name of LIBRARIES in workloads/gemm.py. Empty: not at all.
    products: tuple[str, ...] = ()
    # Programs in the form of nccl-tests (`all_reduce_perf`), by the name of their package, and the library that they measure. Empty: none.
    collective_tests = ""
    collective_library = ""
    # How gpu_memory and soak reach the devices; None if they cannot.
    driver: Driver | None = None
    # PCI vendor, and the beginnings of the PCI classes of the devices; None if no RDMA device of the host is to be chosen by its
    # distance from them.
    pci: tuple[str, tuple[str, ...]] | None = None
    # Pattern of the device files of the devices.
    device_files = ""
    # Options that hand all devices to a container, by engine; variables by which a runtime hands over all of them, or none.
    container: t.Mapping[str, t.Sequence[str]] = {}
    runtime_all: t.Mapping[str, str] = {}
    runtime_none: t.Mapping[str, str] = {}
    # The resource that a pod asks for on Kubernetes, and the selector of nodes that have the devices.
    resource = ""
    selector = ""
    # The container runtime that clusters have for the kind shows all devices to a pod that requests none, by `runtime_all`. False: only the
    # device plugin hands over device files, unless a runtime class of the cluster does.
    shown_without_request = True
    # Kernel modules through which NICs reach the devices' memory, and those with others that matter to RDMA.
    peer_memory: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    # Options by which perftest takes its buffers from the memory of a device: with what perftest_number() returns behind it; and the one
    # that is added where no module of peer_memory is loaded. Empty if it cannot.
    perftest_device = ""
    perftest_dmabuf = ""
    # Programs and systemd units that belong to the kind: {fact: program}, {fact: unit}.
    programs: t.Mapping[str, str] = {}
    units: t.Mapping[str, str] = {}
    # Facts that say something about a pod (its Python), or about its image, and nothing about the node.
    pod_facts: tuple[str, ...] = ()
    image_facts: tuple[str, ...] = ()
    # What goes with a part that is sent back: {name of a file: options of the tool that prints it}, and the maker's own program, if any.
    support: t.Mapping[str, tuple[str, ...]] = {}
    bug_report: BugReport | None = None
    # Patterns of the facts about its libraries: a difference between nodes breaks jobs or makes them slower.
    library_facts: tuple[str, ...] = ()
    # Python text that prints lines about the kind's libraries, run in the node's Python behind all other questions.
    python_script = ""
    # The evidence code of errors on links, and what people call such a link.
    link_code = "link_errors"
    link = "link"
    # The evidence code for a state of links that cannot be read.
    links_code = "links"
    # The evidence code of device errors in the kernel's log; empty if the driver writes none that can be read.
    log_code = ""
    # Throttle reasons that no machine in order shows under load, and the device's own counter of the time spent in each, if it has one.
    bad_throttle: t.Mapping[str, str | None] = {}
    # Seconds between two samples of a device.
    sample_s = 1.0

    def __init__(self, node: Node, program: str) -> None:
        self.node = node
        self.program = program

    @classmethod
    def perftest_number(cls, node: Node, slot: str) -> str | None:
        """Return how `perftest_device` names the device at a PCI address; None if that is not known on this node."""
        return slot

    def is_installed(self) -> bool:
        """Return True if the node has what shows the devices: the tool, unless a kind can do without it."""
        return bool(self.node.which(self.program))

    def snapshot(self) -> Snapshot:
        """The state of all devices of this kind, or an error that names the cause."""
        raise NotImplementedError

    def health(self, device: Device) -> list[Problem]:
        """Return the defects of one device as (reason code, words), the gravest first; empty if there are none."""
        raise NotImplementedError

    def links(self, snapshot: Snapshot) -> Links | None:
        """Return the links of the devices; None if they cannot be read."""
        raise NotImplementedError

    def links_down(self, snapshot: Snapshot, links: Links) -> dict[str, Problem]:
        """Return {UUID: (reason code, words)} of devices with fewer or slower links than the best device of the node, or fewer than their
        model certainly has."""
        raise NotImplementedError

    def links_unreadable(self, snapshot: Snapshot) -> dict[str, Problem]:
        """Return the problem, by UUID, of each device whose model has links for certain, where links() could read none."""
        return {}

    def links_failed(self, snapshot: Snapshot) -> dict[str, Problem]:
        """Return the problem, by UUID, of each device whose link was lost, as the counters say that link_errors() read last. What counters
        that are high without a loss mean, siblings() says."""
        return {}

    def links_beside(self, snapshot: Snapshot) -> dict[str, Problem] | None:
        """Return links_down() for the comparison before and after each test: None if the links cannot be read, {} if reading them takes too
        long and the counters of link_errors() show the same."""
        return {}

    def siblings(self, snapshot: Snapshot) -> dict[str, list[Problem]]:
        """Return the defects that only the other devices of the same model in the node show, by UUID."""
        return {}

    def unseen(self, snapshot: Snapshot) -> list[str]:
        """Devices that the kernel driver has and the tool does not show."""
        return []

    def bus(self, snapshot: Snapshot) -> on_bus.Bus:
        """Return the devices of the kind that the PCI bus has and the tool does not show."""
        return on_bus.Bus([], {})

    def present(self) -> list[on_bus.OnBus]:
        """Return the devices of the kind that the PCI bus has for this process, whether or not a tool or a driver shows them."""
        return []

    def places(self, snapshot: Snapshot) -> chassis.Places | None:
        """Return how many devices the machine has places for, by what it is; None if nothing tells it."""
        return None

    def facts(self, snapshot: Snapshot, links: Links | None) -> dict[str, t.Any]:
        """Return the facts that must be the same on every node of a cluster, without the identities of the devices."""
        raise NotImplementedError

    def link_domain(self, snapshot: Snapshot, owner: str) -> LinkDomain | None:
        """Return the domain of links that goes beyond the node; None if the links of these devices stay in the node. `owner`: who starts
        the services that the domain needs, one of nvlink_domain.OWNERS."""
        return None

    def start(self) -> Start:
        """Return the script that starts the runtime."""
        raise NotImplementedError

    # What a test is started with ------------------------------------------------------------------------------------

    @classmethod
    def visible_names(cls, devices: t.Sequence[Device]) -> list[str]:
        """Return what the variable `visible` calls these devices."""
        return [str(device["uuid"] if cls.visible_by_uuid else device["index"]) for device in devices]

    @classmethod
    def torch_order(cls) -> dict[str, t.Any]:
        """Return what a workload must know of the kind to use its devices by PyTorch, as plain data."""
        return {"plugin": cls.torch_plugin, "build": cls.torch_build, "build_word": cls.torch_build_word, "blas": dict(cls.torch_blas)}

    # What a device should be ----------------------------------------------------------------------------------------

    @classmethod
    def memory_of_model(cls, name: str) -> int | None:
        """Return the MiB of memory that the tool shows of a healthy device of a model; None if that is not known."""
        return None

    @classmethod
    def host_link(cls, device: Device) -> tuple[int | None, int | None] | None:
        """Return the PCIe generation and width that a device and its slot can do, each None if it cannot be read; None if the device is
        reached by another link than PCIe."""
        generation, lanes = (plain(device["pcie"][name]) for name in ("gen_max", "width_max"))
        return None if generation is None and lanes is None else (_whole(generation), _whole(lanes))

    @classmethod
    def is_on_board(cls, device: Device, devices: t.Sequence[Device]) -> bool:
        """Return True if links of a board join a device to the others of the node (`devices`) for certain, by what its model is."""
        return False

    # What the rest of a run needs of the kind ------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the variables that the kind's libraries need where the login or the image does not set them."""
        return {}

    @classmethod
    def settings(cls, node: Node, env: t.Mapping[str, t.Any]) -> dict[str, str]:
        """Return the settings of the kind's collective library that a machine has by itself, without those that `env` sets."""
        return {}

    @classmethod
    def domain(cls, snapshot: Snapshot) -> str:
        """Return the name of the domain of links that goes beyond the node; empty if there is none."""
        return ""

    @classmethod
    def software(cls, node: Node) -> dict[str, t.Any]:
        """Return facts about the kind's software, of a node that may have none of it: what is missing is None."""
        return {}

    @classmethod
    def configuration(cls, node: Node, login: t.Mapping[str, str]) -> dict[str, str]:
        """Return the settings in the configuration files of the kind's libraries; `login` is the environment of a login."""
        return {}

    @classmethod
    def python_facts(cls, packages: t.Mapping[str, str], lines: t.Sequence[str]) -> dict[str, t.Any]:
        """Return facts from the versions of the Python packages and from the lines that `python_script` printed."""
        return {}

    # Evidence --------------------------------------------------------------------------------------------------------

    def sampling(self) -> list[str]:
        """The command line that samples the devices until it is ended."""
        raise NotImplementedError

    def sample(self, line: str, snapshot: Snapshot) -> DeviceSample | None:
        """Return the sample in a line of the sampler; None if the line has none."""
        raise NotImplementedError

    def link_errors(self, snapshot: Snapshot) -> dict[str, dict[str, int]] | None:
        """Return {UUID: {kind of error: count}}; None if the counters cannot be read, {} if there are no links."""
        raise NotImplementedError

    def sampled(self, device: Device, loads: t.Mapping[str, Load], snapshot: Snapshot) -> list[Problem]:
        """Return the defects of one device that its samples under load show; `loads` has those of all devices, by UUID."""
        return []

    def unsampled(self, loads: t.Mapping[str, Load]) -> list[str]:
        """Return the evidence codes of what sampled() would judge and could not: the tool does not report it, or, if `loads` is empty, no
        sample is of a device under load."""
        return []

    def takes_back(self, line: str) -> TakenBack | None:
        """Return what a line of the kernel's log takes back of errors that hold until the driver is loaded; None if it takes nothing
        back."""
        return None

    def logged(self, line: str) -> Logged | None:
        """Return the device error that a line of the kernel's log reports, None if it reports none."""
        return None


def device_of(tool: str, **known: t.Any) -> Device:
    """Return a device with all keys that shared code reads, those in `known` with their values. Of the others a number is Absent, since
    `tool` does not report it, and a text is None."""
    unknown = Absent(f"{tool} does not report it")
    texts = (
        "index", "uuid", "serial", "name", "architecture", "bdf", "vbios", "gsp_firmware", "persistence", "mig", "compute_mode", "lost",
        "recovery_action", "ecc_mode", "virtual", "module", "board_part_number",
    )  # fmt: skip
    numbers = {
        "ecc": ("volatile_uncorrected", "volatile_corrected", "aggregate_uncorrected", "aggregate_corrected"),
        "clocks": ("sm", "mem", "max_sm"), "application_clock": ("now", "default"), "power": ("draw_w", "limit_w", "default_limit_w"),
        "pcie": ("gen", "gen_max", "gen_device", "width", "width_max", "replays"),
    }  # fmt: skip
    return {
        **dict.fromkeys(texts),
        **{group: dict.fromkeys(names, unknown) for group, names in numbers.items()},
        "ecc": {**dict.fromkeys(numbers["ecc"], unknown), "unrepairable": None},
        "memory_total_mib": unknown, "memory_used_mib": unknown, "utilization": unknown, "temperature_c": unknown,
        "remapped_rows": dict.fromkeys(("correctable", "uncorrectable", "pending", "failure")),
        "retired_pages": dict.fromkeys(("single_bit", "double_bit", "pending")),
        "place": dict.fromkeys(("chassis", "tray", "slot", "module")),
        "fabric": dict.fromkeys(("state", "status", "health", "bandwidth", "faults", "cluster", "clique")),
        "throttle_reasons": [], "throttle_us": {}, "processes": [], "unreadable": [], "slot_known": False,
        **known,
    }  # fmt: skip


def lifetime(device: Device) -> list[Problem]:
    """Return the defects that a device's counters of memory errors show: those since the driver was loaded are a defect, those
    of its life were repaired where
    nothing is pending and the rows that were remapped are few."""
    ecc, word = device["ecc"], device.get("word", "GPU")
    now, ever = ecc["volatile_uncorrected"], ecc["aggregate_uncorrected"]
    if above(now, 0):
        return [("ecc", f"{now} uncorrectable memory errors since the driver was loaded")]
    if above(ever, 0):
        words = f"{ever} uncorrectable memory errors in the {word}'s life"
        since = "none of them since the driver was loaded" if now == 0 else "those since the driver was loaded cannot be read"
        return [("ecc_past", f"{words}, {since}; the driver does not report when")]
    return []


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def above(value: Value | None, limit: float) -> bool:
    """Return True if a value could be read and is above a limit."""
    return value is not None and not isinstance(value, Absent) and value > limit


class Allowance(t.NamedTuple):
    """How many errors that hardware repaired by itself a healthy device may have counted: `ever` of them, and `daily` more for each day
    since the driver can have been loaded (the uptime of the machine). A device has too many also if it has more than `spread` of them and
    TIMES_SIBLINGS times as many as the median of its siblings, whatever the time."""

    ever: float
    daily: float
    spread: float

    def problem(self, count: Value, siblings: t.Sequence[Value], days: float | None, kind: str = "GPUs") -> str | None:
        """Return why a count is too high, None if it is not. `kind` is the word for the siblings."""
        if isinstance(count, Absent):
            return None
        others = sorted(value for value in siblings if not isinstance(value, Absent))
        if others and count > self.spread and count > TIMES_SIBLINGS * others[(len(others) - 1) // 2]:
            return f"other {kind} of its model in the node have {others[(len(others) - 1) // 2]:g}"
        # The same words before and after a test.
        if count > self.ever + self.daily * (days or 0.0):
            more = f" and {self.daily:g} for each day since the machine was started" if self.daily else ""
            return f"a healthy one has fewer than {self.ever:g}{more}"
        return None


TIMES_SIBLINGS = 10
# Corrected errors of memory: healthy memory shows next to none; a row with many is remapped. PCIe replays: as the machine's own links
# (host/pci.py, CORRECTABLE_PER_DAY), and some while links train.
CORRECTED = Allowance(ever=1000, daily=100, spread=100)
CORRECTED_IN_LIFE = Allowance(ever=100_000, daily=0, spread=10_000)
REPLAYS = Allowance(ever=1000, daily=100, spread=100)
