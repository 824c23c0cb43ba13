# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines that break while a run works them: looked at by the probe of `host_health`, measured by that of `gemm` over simulated tools, and
looked at again, as on a machine behind SSH and as in a pod that sees its node; judged as in a run. Nothing is reached over a network."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import time
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gemm, host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.gemm import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples
from harness.machine_tree import DISK, NIC, ROOT_OF_NIC, MachineTree
from rigs.simulated import nodes

NAME = "gpu-01"
FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "host-health"
CHECKS = ("memory", "pcie", "storage", "bmc", "kernel")
BOOT, STAT = "proc/sys/kernel/random/boot_id", "proc/stat"
Event = t.Callable[[MachineTree], t.Any]
FINE, WARN, REFUSED = frozenset({"PASS"}), frozenset({"WARN"}), frozenset({"FAIL", "UNKNOWN"})
PLANES = ("ssh", "kubernetes")


class Plant(t.NamedTuple):
    """What happens to a machine `before` the run, `during` gemm and `after` it. The worst verdict must be one of `verdicts`, on the planes
    where it can be seen."""

    what: str
    verdicts: frozenset[str]
    during: Event = lambda _machine: None
    after: Event = lambda _machine: None
    before: Event = lambda _machine: None
    planes: t.Sequence[str] = PLANES


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def log(*lines: str) -> Event:
    return lambda machine: [machine.log(line) for line in lines]


def remove(path: str) -> Event:
    def event(machine: MachineTree) -> None:
        target = machine.path(path)
        shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()

    return event


def supply(*words: str, sensor: str = "Presence detected") -> Event:
    """What the controller logs of a power supply, now, and what its sensor says then."""

    def event(machine: MachineTree) -> None:
        now = time.strftime("%m/%d/%y | %H:%M:%S UTC", time.gmtime())
        lines = "".join(f"  {number:x} | {now} | Power Supply PSU2 Status | {text}\n" for number, text in enumerate(words, 20))
        sensors = recorded("sdr-elist-healthy.txt").replace("| 10.2 | Presence detected", f"| 10.2 | {sensor}")
        machine.controller(sensors, machine.path("sel").read_text() + lines)

    return event


def boot(name: str, seconds_ago: float) -> Event:
    def event(machine: MachineTree) -> None:
        machine.write(BOOT, f"{name}\n")
        machine.write(STAT, f"cpu 1 2\nbtime {int(time.time() - seconds_ago)}\n")

    return event


def renamed(machine: MachineTree) -> None:
    os.rename(machine.path("sys/block/sda"), machine.path("sys/block/sdb"))


LOST, BACK = "Power Supply AC lost | Asserted", "Power Supply AC lost | Deasserted"
CHECK = "mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 7: be00000000010091"
PLANTS = (
    Plant("nothing happens", FINE),
    Plant("a kernel that says many things", FINE, log("usb 1-1: new device", "EXT4-fs (sda2): re-mounted")),
    Plant("20 corrected PCIe errors", FINE, lambda m: m.errors(NIC, correctable=20)),
    Plant("an interface that goes to a container", FINE, remove("sys/class/net/eth0")),
    Plant("a clock that is set", FINE, lambda m: m.write(STAT, f"cpu 1 2\nbtime {int(time.time() - 90)}\n")),
    Plant("a container with a boot id of its own", FINE, after=lambda m: m.write(BOOT, "another\n")),
    Plant("an old fault of the controller's log", WARN, before=lambda m: m.controller(
        recorded("sdr-elist-healthy.txt"), "   1 | 01/01/20 | 06:54:08 UTC | Power Supply PSU2 Status | Failure detected | Asserted\n")),
    Plant("a fault that was over before the run", FINE, before=supply(LOST, BACK)),
    # Six of six were accepted.
    Plant("a machine check", REFUSED, log(CHECK)),
    Plant("a fatal PCIe error in the log", REFUSED, log("pcieport 0000:30:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x")),
    Plant("a fatal PCIe error by its counter", REFUSED, lambda m: m.errors(ROOT_OF_NIC, fatal={"SDES": 1})),
    Plant("40,000 corrected PCIe errors", REFUSED, lambda m: m.errors(NIC, correctable=40_000)),
    Plant("a NIC whose firmware died", REFUSED, log("mlx5_core 0000:31:00.0: poll_health:840: device's health compromised")),
    Plant("a NIC that is gone", REFUSED, remove(f"sys/bus/pci/devices/{NIC}")),
    Plant("an NVMe disk that is down", REFUSED, log("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff")),
    Plant("an NVMe disk that is dead", REFUSED, lambda m: m.write("sys/class/nvme/nvme0/state", "dead\n")),
    Plant("an NVMe disk that is gone", REFUSED, remove("sys/class/nvme/nvme0")),
    Plant("a power supply that failed", REFUSED, supply("Failure detected | Asserted", sensor="Presence detected, Failure detected")),
    Plant("a power supply that lost its input", REFUSED, supply(LOST, sensor="Presence detected, Power Supply AC lost")),
    Plant("a failure in the controller's log alone", REFUSED, supply("Failure detected | Asserted")),
    # Their siblings.
    Plant("a power supply that lost its input for a moment", WARN, supply(LOST, BACK)),
    Plant("200 corrected PCIe errors", WARN, lambda m: m.errors(NIC, correctable=200)),
    Plant("a corrected machine check", WARN, log("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010092")),
    Plant("corrected memory errors", WARN, lambda m: m.edac(2, corrected=5)),
    Plant("a link that was lost for a moment", WARN, lambda m: m.write("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "1\n")),
    Plant("an uncorrectable memory error", REFUSED, lambda m: m.edac(2, uncorrected=1)),
    Plant("memory taken out of use", REFUSED, log("Memory failure: 0x1a2b3c: recovery action for dirty LRU page: Recovered")),
    Plant("lost PCIe data", REFUSED, lambda m: m.errors(NIC, nonfatal={"CmpltTO": 2})),
    Plant("a port without a link", REFUSED, lambda m: m.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")),
    Plant("a hardware error by the firmware", REFUSED, log("{1}[Hardware Error]: event severity: fatal")),
    Plant("a file system that shut itself down", REFUSED, log("XFS (nvme0n1p1): Corruption of in-memory data detected.  Shutting down")),
    # Behind the last load.
    Plant("a machine check behind gemm", REFUSED, after=log(CHECK)),
    Plant("an uncorrectable memory error behind gemm", REFUSED, after=lambda m: m.edac(2, uncorrected=1)),
    Plant("a fatal PCIe error behind gemm", REFUSED, after=lambda m: m.errors(ROOT_OF_NIC, fatal={"SDES": 1})),
    Plant("a link that trained down", REFUSED, after=lambda m: m.device(NIC, current_link_width=8)),
    Plant("a disk that says that it fails", REFUSED, after=lambda m: m.disk(recorded("smartctl-nvme-bad.json"), 8), planes=["ssh"]),
    Plant("a disk that is gone from the bus", REFUSED, after=remove(f"sys/bus/pci/devices/{DISK}")),
    Plant("an array that lost a disk", REFUSED, after=lambda m: m.write("sys/block/md0/md/degraded", "1\n")),
    Plant("a controller that answers no more", REFUSED, after=lambda m: m.tool("ipmitool", "exit 1")),
    Plant("one fault more than before the run", REFUSED, before=lambda m: m.edac(2, corrected=5), after=lambda m: m.edac(2, 5, 1)),
    Plant("a SATA disk that is gone", REFUSED, before=lambda m: m.scsi("sda", "0x010601", wwid="naa.5000c500a1b2c3d4", model="ST8000NM"),
          after=remove("sys/block/sda")),
    Plant("a SATA disk that has another name after it came back", FINE,
          before=lambda m: m.scsi("sda", "0x010601", wwid="naa.5000c500a1b2c3d4", model="ST8000NM"), after=renamed),
    Plant("a power supply that is no longer listed", REFUSED, after=lambda m: m.controller(
        "".join(line for line in recorded("sdr-elist-healthy.txt").splitlines(True) if "| 10.2 |" not in line))),
    # Restarts.
    Plant("a restart between two stages", REFUSED, after=boot("b", 1)),
    Plant("a restart during gemm", REFUSED, boot("b", 1)),
    Plant("a restart of a machine whose clock is wrong then", REFUSED, after=boot("b", 9e6)),
)  # fmt: skip


class _Worked(Node):
    """The machine, to which something happens when the first workload has run."""

    event: t.Callable[[], t.Any] | None = None

    def run(self, argv: list[str], *args: t.Any, **kwargs: t.Any) -> t.Any:
        result = super().run(argv, *args, **kwargs)
        if self.event and kwargs.get("stdin"):
            self.event()
            self.event = None
        return result


def _machine(folder: pathlib.Path) -> MachineTree:
    host = nodes.local(folder, 1)
    machine = MachineTree(pathlib.Path(host["acceptance_root"]))
    remove("sys/bus/pci/devices/0000:17:00.0")(machine)  # the simulated driver has GPUs at other places
    machine.disk(recorded("smartctl-nvme-good.json"))
    machine.controller(recorded("sdr-elist-healthy.txt"))
    machine.write("sys/class/nvme/nvme0/state", "live\n")
    machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    machine.write("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "0\n")
    machine.write("sys/class/net/eth0/device/vendor", "0x15b3\n")
    machine.write("sys/class/net/eth0/carrier", "1\n")
    boot("a", 172800)(machine)
    return machine


def judged(folder: pathlib.Path, plant: Plant, plane: str) -> str:
    """The worst verdict of a machine."""
    machine = _machine(folder)
    plant.before(machine)
    os.environ["PATH"] = f"{machine.root}/bin:/usr/bin:/bin"
    run = Run(folder, samples.RUN)
    run.dir.mkdir()
    tools = folder / "bin"
    given = {"python": str(tools / "python3"), "modes": ["together"], "seconds": 1.0}
    options = t.cast("dict[str, t.Any]", ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters)
    options["checks"] = gemm.default_checks(options)
    looked = {"checks": [{"check": check, "variant": ""} for check in CHECKS], "pcie_corrected": 100.0, "ras_days": 30.0}
    stages: list[tuple[str, t.Any, dict[str, t.Any]]] = [
        ("host_health", host_health.probe, {**looked, "look": "first"}),
        ("gemm", gemm.probe, options),
        ("host_health_after", host_health.probe, {**looked, "look": "after"}),
    ]
    subject = {"kind": "node", "id": NAME, "members": []}
    records: list[dict[str, t.Any]] = []
    items: list[dict[str, t.Any]] = []
    for stage, probe, params in stages:
        node = _Worked(60, root=str(machine.root), tools={"nvidia_smi": str(tools / "nvidia-smi")})
        if stage == "gemm":
            node.event = lambda: plant.during(machine)
        planned = {(check["check"], check["variant"], NAME): {"subject": subject, "attempt": 1} for check in params["checks"]}
        items += [{"stage": stage, "target": NAME, "subject": subject, **check} for check in params["checks"]]
        completer = Completer(run, stage, NAME, plane, t.cast(t.Any, planned))
        records += [completer.complete(one) for one in runner.signed(probe(params, node), node)]
        if stage == "gemm":
            plant.after(machine)
    known = expectations.shipped()
    plan: t.Any = samples.plan([NAME], [stage for stage, _probe, _params in stages], items=items)
    found = verdict.judge(plan, records, lambda *_who: known, stages=registry.shipped().values())
    words = {v["verdict"] for v in found.verdicts}
    worst = next(word for word in ("FAIL", "UNKNOWN", "WARN", "PASS") if word in words)
    assert found.accepted == (worst not in REFUSED), found.why
    return worst


@contextlib.contextmanager
def _on(plane: str) -> t.Iterator[None]:
    """As on a machine behind SSH, or as in a pod."""
    path = os.environ["PATH"]
    if plane == "kubernetes":
        os.environ["GPUFLEET_POD_UID"] = "0"
    try:
        yield
    finally:
        os.environ["PATH"] = path
        os.environ.pop("GPUFLEET_POD_UID", None)


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good machines that are not accepted as they should be."""
    accepts: list[str] = []
    rejects: list[str] = []
    planted = 0
    for number, plant in enumerate(PLANTS):
        for plane in plant.planes:
            with _on(plane):
                worst = judged(folder / f"second-{number}-{plane}", plant, plane)
            planted += plant.verdicts != FINE
            if worst not in plant.verdicts:
                bad = plant.verdicts != REFUSED and worst in REFUSED
                (rejects if bad else accepts).append(f"second: {plant.what} ({plane}): {worst}")
    return planted, accepts, rejects
