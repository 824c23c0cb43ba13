# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs on the PCI bus that nvidia-smi does not show, and how many a machine has places for."""

from __future__ import annotations

import os
import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import chassis, on_bus
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators.ascend import Ascend
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_smi import FakeSmi

NVIDIA, HUAWEI, ASPEED, MATROX, AMD, INTEL = "0x10de", "0x19e5", "0x1a03", "0x102b", "0x1002", "0x8086"
THREE_D, VGA, BRIDGE, AUDIO, PROCESSING = "0x030200", "0x030000", "0x068000", "0x040300", "0x120000"
# The GPUs of the recording.
SHOWN = [f"0000:00:0{number}.0" for number in (6, 7, 8, 9)]


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    fake = FakeSmi(tmp_path, fixtures / "h200-x4")
    fake.write("q.xml", fake.read("q.xml").replace(">Pass-Through<", ">None<").replace("<module_id>", "<module_id>N/A<!-- -->"))
    for number, address in enumerate(SHOWN):
        assert f'<gpu id="0000{address.upper()}' in fake.read("q.xml"), number
        device(fake, address, driver="nvidia")
    write(fake.folder / "sys/class/dmi/id/sys_vendor", "Maker")
    write(fake.folder / "sys/class/dmi/id/product_name", "Server 1")
    write(fake.folder / "proc/cpuinfo", "flags : fpu\n")
    write(fake.folder / "proc/uptime", "86400.00 1.0\n")
    return fake


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def device(
    smi: FakeSmi, address: str, vendor: str = NVIDIA, kind: str = THREE_D, driver: str = "", of: str = "", name: str = "0x2335",
    boot: bool = False,
) -> None:  # fmt: skip
    """A device on the bus. `of`: the physical function of a virtual one."""
    folder = smi.folder / "sys/bus/pci/devices" / address
    write(folder / "vendor", vendor)
    write(folder / "class", kind)
    write(folder / "device", name)
    if boot:
        write(folder / "boot_vga", "1")
    if driver:
        target = smi.folder / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        os.symlink(target, folder / "driver")
    if of:
        os.symlink(f"../{of}", folder / "physfn")


def looked(smi: FakeSmi, count: int | None = None) -> dict[str, t.Any]:
    node = Node(60, root=str(smi.folder), tools={"nvidia_smi": smi.path})
    return next(iter(stack.probe({"checks": [{"check": "gpu_health", "variant": ""}], "gpu_count": count}, node)))


def codes(observed: dict[str, t.Any]) -> set[str]:
    found = {finding["code"] for finding in observed["context"].get("findings", [])}
    return found | ({observed["reason_code"]} if observed["reason_code"] else set())


def test_a_bus_with_the_gpus_that_nvidia_smi_shows(smi: FakeSmi) -> None:
    observed = looked(smi)
    assert codes(observed) == set() and observed["context"]["gpu_bus"] == {"count": 4}


@pytest.mark.parametrize("kind", [THREE_D, VGA, PROCESSING])
@pytest.mark.parametrize(
    ("driver", "code"),
    [
        ("", "gpu_lost"), ("nvidia", "gpu_lost"), ("nouveau", "gpu_invisible"), ("nova_core", "gpu_invisible"),
        ("vfio-pci", "gpu_elsewhere"), ("nvgrace-gpu-vfio-pci", "gpu_elsewhere"), ("pci-stub", "gpu_elsewhere"),
        ("xen-pciback", "gpu_elsewhere"), ("pciback", "gpu_elsewhere"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("address", ["0000:14:00.0", "0001:00:06.0", "10000:01:00.0"])
def test_a_gpu_that_nvidia_smi_does_not_show(smi: FakeSmi, kind: str, driver: str, code: str, address: str) -> None:
    device(smi, address, kind=kind, driver=driver)
    observed = looked(smi)
    assert codes(observed) == {code} and observed["context"]["gpu_bus"]["count"] == (4 if code == "gpu_elsewhere" else 5)
    assert address in (observed["reason"] or str(observed["context"]["findings"]))


@pytest.mark.parametrize(
    "planted",
    [
        {"vendor": ASPEED, "kind": VGA, "driver": "ast"}, {"vendor": MATROX, "kind": VGA}, {"vendor": AMD, "kind": VGA, "driver": "amdgpu"},
        {"vendor": INTEL, "kind": VGA}, {"kind": BRIDGE, "name": "0x22a3"}, {"kind": AUDIO, "driver": "snd_hda_intel"},
        {"of": SHOWN[0], "driver": "nvidia"}, {"of": SHOWN[0], "driver": "vfio-pci"}, {"of": SHOWN[0]}, {"kind": VGA, "boot": True},
        {"vendor": HUAWEI, "kind": PROCESSING},
    ],
)  # fmt: skip
def test_devices_that_are_no_gpus_for_tests_are_not_missed(smi: FakeSmi, planted: dict[str, t.Any]) -> None:
    device(smi, "0000:c1:00.1", **planted)
    assert codes(looked(smi, 4)) == set()


def test_a_gpu_that_was_excluded_on_purpose(smi: FakeSmi) -> None:
    device(smi, "0000:14:00.0", driver="nvidia")
    write(smi.folder / "proc/driver/nvidia/gpus/0000:14:00.0/information", "Model: \t\t NVIDIA H200\nGPU Excluded:\t Yes")
    observed = looked(smi)
    assert codes(observed) == set() and observed["context"]["gpu_bus"] == {"count": 4}


OTHER = "0000:14:00.0"
DEVTMPFS, TMPFS = "devtmpfs /dev devtmpfs rw 0 0", "tmpfs /dev tmpfs rw,mode=755 0 0"
MASKED = "tmpfs /proc/driver/nvidia tmpfs ro 0 0"


def listed(smi: FakeSmi, mounts: str, *addresses: str, files: t.Collection[int] = ()) -> None:
    """Give the driver a list of GPUs, and the machine mounts and device files, as /proc and /dev of a process show them."""
    write(smi.folder / "proc/mounts", mounts)
    for minor, address in enumerate((*SHOWN, OTHER)):
        if address in (addresses or (*SHOWN, OTHER)):
            write(smi.folder / f"proc/driver/nvidia/gpus/{address}/information", f"Device Minor: \t {minor}\nGPU Excluded:\t No")
        if minor in files:
            write(smi.folder / f"dev/nvidia{minor}", "")
    device(smi, OTHER, driver="nvidia")


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refuse a device file as a device cgroup does."""
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not str(path).endswith(name) and real(path, mode, **more))


ALL = range(5)


@pytest.mark.parametrize(
    ("what", "mounts", "addresses", "files", "refused", "code"),
    [
        ("a Slurm job or a unit of systemd with a device cgroup", DEVTMPFS, (), ALL, "nvidia4", "gpu_elsewhere"),
        ("a container that has the /dev of its machine, and a device cgroup", "", (), ALL, "nvidia4", "gpu_elsewhere"),
        ("LXC and systemd-nspawn: a /dev of its own with some files", TMPFS, (), range(4), "", "gpu_elsewhere"),
        ("LXC that mounts a file over each device", f"{DEVTMPFS}\n{TMPFS}", (), range(4), "", "gpu_elsewhere"),
        ("a runtime that lists the container's own GPUs", f"{TMPFS}\n{MASKED}", SHOWN, range(4), "", "gpu_elsewhere"),
        ("a machine of which a GPU has failed", DEVTMPFS, (), ALL, "", "gpu_lost"),
        ("a machine of which a GPU has failed and lost its file", DEVTMPFS, (), range(4), "", "gpu_lost"),
        ("a machine of which the driver has lost a GPU from its list", DEVTMPFS, SHOWN, range(4), "", "gpu_lost"),
        ("a job that was given a GPU that failed, and not another one", DEVTMPFS, (), ALL, "nvidia3", "gpu_lost"),
        ("a container that was given a GPU that failed", TMPFS, (), ALL, "", "gpu_lost"),
        ("a container with its own list that was given a GPU that failed", f"{TMPFS}\n{MASKED}", (), ALL, "", "gpu_lost"),
    ],
)  # fmt: skip
def test_a_gpu_that_this_process_may_not_use_is_not_lost(
    smi: FakeSmi, monkeypatch: pytest.MonkeyPatch, what: str, mounts: str, addresses: t.Sequence[str], files: range, refused: str, code: str
) -> None:
    listed(smi, mounts, *addresses, files=files)
    if refused:
        refuse(monkeypatch, refused)
    observed = looked(smi)
    assert codes(observed) == {code}, what
    assert observed["context"]["gpu_bus"] == ({"count": 4, "of_others": [OTHER]} if code == "gpu_elsewhere" else {"count": 5})
    said = observed["context"].get("findings", []) or [{"text": observed["reason"]}]
    assert OTHER in str(said)


@pytest.mark.parametrize("mounts", [TMPFS, f"{TMPFS}\n{MASKED}"])
def test_a_pod_is_not_told_of_gpus_that_it_was_not_given(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch, mounts: str) -> None:
    listed(smi, mounts, files=range(4))
    monkeypatch.setenv("GPUFLEET_POD_UID", "7")
    observed = looked(smi)
    assert codes(observed) == set() and observed["context"]["gpu_bus"] == {"count": 5, "of_others": [OTHER]}, "by CDI the driver lists all"
    write(smi.folder / "dev/nvidia4", "")
    assert codes(looked(smi)) == {"gpu_lost"}, "it was given this one"


def test_the_kernel_tells_of_a_device_cgroup_without_waking_the_driver(tmp_path: pathlib.Path) -> None:
    group = pathlib.Path(f"/sys/fs/cgroup/devices/gpufleet-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no device cgroup of version 1 may be made here")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").symlink_to("/dev/zero")
    (tmp_path / "dev/nvidia1").symlink_to("/dev/null")
    try:
        (group / "devices.deny").write_text("c 1:5 rwm")
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            tree = Tree(Node(60, root=str(tmp_path)))
            os.write(writing, "|".join(on_bus.withheld(tree, f"/dev/nvidia{n}") for n in (0, 1)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(reading, 1000).decode() == "this process may not open /dev/nvidia0|"
    finally:
        group.rmdir()


@pytest.mark.parametrize(
    ("planted", "plain", "code"),
    [
        ({"driver": "nvidia"}, True, "gpu_count"), ({"driver": ""}, True, "gpu_count"), ({"driver": "nouveau"}, True, "gpu_count"),
        ({"driver": "nvidia", "kind": VGA, "boot": True}, True, "gpu_count"),
        ({"vendor": HUAWEI, "kind": PROCESSING, "driver": "davinci"}, True, "gpu_count"),
        ({"driver": "vfio-pci"}, True, "no_gpu_expected"), ({"kind": VGA, "boot": True}, True, "no_gpu_expected"),
        ({"kind": BRIDGE, "name": "0x22a3"}, True, "no_gpu_expected"), ({"vendor": AMD, "kind": VGA}, True, "no_gpu_expected"),
        ({"driver": "nvidia"}, False, "no_gpu_expected"), ({"driver": ""}, False, "gpu_count"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["no devices", "missing"])
def test_a_count_of_0_contradicts_a_bus_with_gpus(
    smi: FakeSmi, monkeypatch: pytest.MonkeyPatch, planted: dict[str, t.Any], plain: bool, code: str, tool: str
) -> None:
    """`plain`: a process that may use all devices, else one of a job without GPUs."""
    for address in SHOWN:
        shutil.rmtree(smi.folder / "sys/bus/pci/devices" / address)
    device(smi, OTHER, **planted)
    write(smi.folder / f"proc/driver/nvidia/gpus/{OTHER}/information", "Device Minor: \t 4")
    write(smi.folder / "dev/nvidia4", "")
    if not plain:
        refuse(monkeypatch, "nvidia4")
    smi.write("q.xml", "No devices were found\n")
    smi.write("rc", "6")
    node = Node(60, root=str(smi.folder), tools={"nvidia_smi": smi.path if tool == "no devices" else "/no/nvidia-smi"})
    checks = [{"check": check, "variant": ""} for check in ("gpu_health", "cuda")]
    for observed in stack.probe({"checks": checks, "gpu_count": 0, "python": "python3"}, node):
        assert observed["reason_code"] == code and (OTHER in observed["reason"]) is (code == "gpu_count")
        assert (observed["outcome"] == "error") is (code == "gpu_count")
    refusal = gpu.refusal(gpu.snapshot(node), 0, "numbers")
    assert refusal and refusal[1] == code
    monkeypatch.setenv("GPUFLEET_POD_UID", "7")
    refusal = gpu.refusal(gpu.snapshot(node), 0, "numbers")
    assert refusal and refusal[1] == ("gpu_count" if not plain else code), "a pod sees the bus of its node, of which the inventory speaks"


def test_a_pod_may_be_given_some_gpus_of_its_node(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    device(smi, "0000:14:00.0", driver="nvidia")
    monkeypatch.setenv("GPUFLEET_POD_UID", "7")
    observed = looked(smi)
    assert codes(observed) == set() and observed["context"]["gpu_bus"] == {"count": 5}, "the judge compares it with what was asked for"
    device(smi, "0000:15:00.0")
    assert codes(looked(smi)) == {"gpu_lost"}, "no driver is bound to it: nobody was given it"


def test_gpus_on_the_bus_of_which_none_answers_are_lost(smi: FakeSmi) -> None:
    smi.write("q.xml", "No devices were found\n")
    smi.write("rc", "6")
    assert looked(smi)["reason_code"] == "gpu_lost"


@pytest.mark.parametrize(
    ("flags", "vendor", "product", "mode", "virtual"),
    [
        ("fpu", "Maker", "Server", "None", False), ("fpu hypervisor", "Maker", "Server", "None", True),
        ("fpu", "QEMU", "Standard PC (Q35 + ICH9, 2009)", "None", True), ("fpu", "Amazon EC2", "p5.48xlarge", "None", True),
        ("fpu", "Amazon EC2", "g4dn.metal", "None", False), ("fpu", "Maker", "Server", "Pass-Through", True),
        ("fpu", "Maker", "Server", "VGPU", True), ("fpu hypervisor", "Maker", "Server", "Host VGPU", False),
        ("fpu hypervisor", "Maker", "Server", "N/A", True), ("fpu", "Maker", "Server", "N/A", False),
    ],
)  # fmt: skip
def test_a_hypervisor_that_the_driver_does_not_know(
    smi: FakeSmi, flags: str, vendor: str, product: str, mode: str, virtual: bool
) -> None:
    write(smi.folder / "proc/cpuinfo", f"flags : {flags}")
    write(smi.folder / "sys/class/dmi/id/sys_vendor", vendor)
    write(smi.folder / "sys/class/dmi/id/product_name", product)
    xml = smi.read("q.xml").replace(">None</virtualization_mode>", f">{mode}</virtualization_mode>")
    smi.write("q.xml", xml.replace("<current_link_width>16x<", "<current_link_width>8x<"))
    seen = gpu.snapshot(Node(60, root=str(smi.folder), tools={"nvidia_smi": smi.path}))
    assert {g["virtual"] for g in seen["gpus"]} == {virtual} and None not in {g["slot_known"] for g in seen["gpus"]}
    assert ("pcie_width" in codes(looked(smi))) != virtual


def test_an_npu_that_npu_smi_does_not_show(smi: FakeSmi) -> None:
    for number in range(3):
        device(smi, f"0000:c{number}:00.0", HUAWEI, PROCESSING, "devdrv_device_driver" if number < 2 else "", name="0xd802")
    accelerator = Ascend(Node(60, root=str(smi.folder)), "npu-smi")
    shown: dict[str, t.Any] = {"gpus": [{"bdf": "0000:C0:00.0"}, {"bdf": "0000:c1:00.0"}], "simulated": False}
    ((code, words),) = accelerator.bus(shown).problems
    assert code == "gpu_lost" and "NPU at 0000:c2:00.0" in words and accelerator.bus(shown).context == {"count": 3}
    assert accelerator.bus({**shown, "gpus": [{"bdf": None}]}).problems == [], "where no address is told"


# Places ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "number"),
    [
        ("DGXH100", 8), ("DGX H100", 8), ("DGXA100 920-23687-2531-001", 8), ("DGX-1 with V100", 8), ("DGX-2", 16), ("DGX B200", 8),
        ("DGXB200", 8), ("DGX B300", 8), ("PowerEdge XE9680", 8), ("PowerEdge XE9680L", 8), ("PowerEdge XE8545", 4),
        ("SYS-821GE-TNHR", 8), ("AS -8125GS-TNHR", 8), ("AS -4124GO-NART+", 8), ("SYS-421GU-TNXR", 4), ("ThinkSystem SR680a V3", 8),
        ("HPE Cray XD670", 8), ("ESC N8-E11", 8), ("G593-SD0-AAX1-000", 8), ("NF5688M7", 8), ("p5.48xlarge", 8), ("p5.4xlarge", 1),
        ("g6e.12xlarge", 4), ("g7e.24xlarge", 4), ("g7e.12xlarge", 2),
        ("p6-b200.48xlarge", 8), ("DGX Station A100", None), ("DGX Spark", None), ("PowerEdge R750xa", None),
        ("PowerEdge XE7745", None), ("SYS-421GE-TNRT", None), ("Standard PC (Q35 + ICH9, 2009)", None), ("g6e.4xlarge", None), ("", None),
        ("ThinkSystem SR675 V3", None), ("Google Compute Engine", None),
    ],
)  # fmt: skip
def test_a_product_has_the_number_of_gpu_places_that_it_is_made_with(product: str, number: int | None) -> None:
    places = chassis.by_product(product)
    assert (places.number if places else None) == number


@pytest.mark.parametrize(
    ("switches", "number"),
    [(["0x22a3"] * 4, 8), (["0x22a3"] * 3, 8), (["0x1af1"] * 6, 8), (["0x1ac2"] * 12, 16), (["0x0000"] * 4, None), ([], None)],
)
def test_places_of_a_board_with_nvswitches(smi: FakeSmi, switches: list[str], number: int | None) -> None:
    smi.write("q.xml", smi.read("q.xml").replace("<state>Completed<", "<state>N/A<"))
    for at, name in enumerate(switches):
        device(smi, f"0000:0{at // 8}:1{at % 8}.0", kind=BRIDGE, name=name)
    places = looked(smi)["context"].get("gpu_places")
    assert (places["number"] if places else None) == number


def test_places_of_a_board_whose_gpus_are_joined_by_switches(smi: FakeSmi) -> None:
    assert looked(smi)["context"]["gpu_places"]["number"] == 8
    healthy = smi.read("q.xml")
    smi.write("q.xml", healthy.replace("<state>Completed<", "<state>N/A<"))
    assert "gpu_places" not in looked(smi)["context"], "a board of four has no switches"
    smi.write("q.xml", healthy.replace(">None<", ">Pass-Through<"))
    assert "gpu_places" not in looked(smi)["context"], "a virtual machine is given a part of a board"
    smi.write("q.xml", healthy.replace("NVIDIA H200<", "NVIDIA GB200<"))
    assert "gpu_places" not in looked(smi)["context"], "trays of a rack have four"


def test_a_simulated_tool_is_not_held_to_the_bus_of_its_machine(smi: FakeSmi, tmp_path: pathlib.Path) -> None:
    seen = gpu.snapshot(Node(60, tools={"nvidia_smi": smi.path}))
    accelerator = gpu.accelerator(Node(60, root=str(tmp_path / "nowhere"), tools={"nvidia_smi": smi.path}), seen)
    assert accelerator.bus({**seen, "simulated": True}).context == {} and accelerator.places({**seen, "simulated": True}) is None
