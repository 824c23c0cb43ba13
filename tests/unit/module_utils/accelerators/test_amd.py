# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs, asked of the simulated amd-smi through the real runner, and of a planted /sys without amd-smi."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd, amd_sampler, amd_sysfs, hip, registry, xgmi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import nodes

MODEL = "AMD Instinct MI300X"
FIRST, LAST = "GPU-0000000007000001", "GPU-0000000007000008"
COUNTED = {"init": 0, "count_status": 0, "count": 8}
KMSG = "6,0,0,-;Linux version 6.8.0\n"


def machine(folder: pathlib.Path, faults: str = "", log: str = "", **settings: t.Any) -> Node:
    nodes.planted(folder, 7, model=settings.pop("model", MODEL), faults=faults, **settings)
    (folder / "root/dev").mkdir(parents=True)
    (folder / "root/dev/kmsg").write_text(KMSG + log)
    (folder / "root/proc").mkdir()
    (folder / "root/proc/uptime").write_text("864000.0 1.0\n")
    tools = {"amd_smi": str(folder / "bin/amd-smi"), "nvidia_smi": "/nonexistent/nvidia-smi", "npu_smi": ""}
    return Node(120, root=str(folder / "root"), tools=tools)


def health(node: Node) -> dict[str, list[str]]:
    """Return the codes of the defects of each GPU, and of all of them together."""
    (whole, *parts) = stack.probe({"checks": [{"check": "gpu_health", "variant": ""}], "gpu_count": None}, node)
    found = {part["part"]: _codes(part) for part in parts}
    found[""] = _codes(whole)
    return {name: codes for name, codes in found.items() if codes}


def _codes(record: dict[str, t.Any]) -> list[str]:
    own = [record["reason_code"]] if record["reason_code"] else []
    return list(dict.fromkeys([*own, *(of["code"] for of in record["context"].get("findings", []))]))


def watched(node: Node, during: t.Callable[[], t.Any] = lambda: None) -> dict[str, t.Any]:
    with Window(node, gpu.snapshot(node)) as window:
        during()
    return window.evidence()


@pytest.mark.parametrize("smi", [24, 25, 26, 27])
def test_a_healthy_node_by_each_version_of_amd_smi(tmp_path: pathlib.Path, smi: int) -> None:
    node = machine(tmp_path, SMI=smi)
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["kind"], seen["driver"], seen["simulated"]) == ("measured", "amd", "6.14.14", True), seen["reason"]
    assert gpu.model(seen) == MODEL and len({g["uuid"] for g in seen["gpus"]}) == 8 and seen["gpus"][7]["uuid"] == LAST
    assert {g["memory_total_mib"] for g in seen["gpus"]} == {196592} and gpu.foreign_processes(seen) == []
    assert health(node) == {}
    accelerator = gpu.accelerator(node, seen)
    facts = accelerator.facts(seen, accelerator.links(seen))
    assert facts["gpu_partition"] == ["SPX/NPS1"] and facts["gpu_xgmi"] == ["7 XGMI"] and facts["gpu_power_limit_w"] == [750]
    assert facts["gpu_firmware"] == ["PLDM_BUNDLE 01.25.03.12", "RLC 67"] and facts["amd_smi"] == f"{smi}.1.0"
    assert accelerator.visible_names(seen["gpus"][:2]) == [FIRST, "GPU-0000000007000002"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("ecc", "ecc"), ("deferred", "ecc"), ("corrected=5000", "ecc_corrected"), ("bad_pages=1", "ecc_past"), ("bad_pages=128", "ecc"),
        ("page_pending", "ecc"), ("pcie_width=8", "pcie_width"), ("less_units", "gpu_state"), ("less_memory=131072", "gpu_state"),
        ("power_limit=500", "power_limit"), ("xgmi_down", "nvlink"), ("xgmi_half", "nvlink"), ("xgmi_missing", "nvlink"),
        ("replays", "pcie_corrected"),
    ],
)  # fmt: skip
def test_a_defect_is_that_of_its_gpu(tmp_path: pathlib.Path, fault: str, code: str) -> None:
    found = health(machine(tmp_path, fault))
    assert code in found[f"gpu/{LAST}"] and code in found[""]
    others = {f"gpu/{FIRST}"} if fault in ("xgmi_half", "xgmi_missing") else set()
    assert set(found) == {"", f"gpu/{LAST}", *others}, "a slow link is one of its two ends, which it does not tell"


def contained(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *given: str) -> Node:
    """A pod of the machine, which shows it all GPUs in /sys, and these files of its /dev."""
    node = machine(folder)
    for place in range(8):
        (folder / f"root/sys/bus/pci/devices/0000:{5 + 32 * place:02x}:00.0/drm/renderD{128 + place}").mkdir(parents=True)
    (folder / "root/proc/mounts").write_text("tmpfs /dev tmpfs rw 0 0\n")
    for name in given:
        (folder / "root/dev" / name).parent.mkdir(exist_ok=True)
        (folder / "root/dev" / name).touch()
    monkeypatch.setenv("GPUFLEET_POD_UID", "u-1")
    return node


def test_a_pod_sees_those_gpus_only_whose_device_files_it_was_given(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = contained(tmp_path, monkeypatch, "kfd", "dri/renderD130", "dri/renderD131")
    seen = gpu.snapshot(node)
    assert [(g["bdf"], g["order"]) for g in seen["gpus"]] == [("0000:45:00.0", 0), ("0000:65:00.0", 1)], "HIP counts the same ones"
    assert node.gpus == ["GPU-0000000007000003", "GPU-0000000007000004"]
    assert not gpu.accelerator(node, seen).unseen(seen)


@pytest.mark.parametrize(("given", "words"), [((), "/dev/kfd was not given"), (("kfd",), "/dev/dri/renderD135 was not given")])
def test_a_pod_without_device_files_has_no_gpu_that_could_be_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], words: str
) -> None:
    seen = gpu.snapshot(contained(tmp_path, monkeypatch, *given))
    assert (seen["reason_code"], seen["gpus"]) == ("no_permission", []) and words in seen["reason"]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("no_gpu", "no_gpu", "finds no GPU"),
        ("no_driver", "no_gpu", "amdgpu is not loaded"),
        ("smi_no_library", "tool_failed", "cannot load its library"),
        ("smi_cut", "bad_output", "JSON that is cut"),
        ("smi_no_groups", "no_permission", "groups video and render"),
        ("gpu_dumb", "gpu_lost", "GPU 7"),
    ],
)
def test_a_tool_that_does_not_answer_is_an_error_with_its_reason(
    tmp_path: pathlib.Path, fault: str, code: str, words: str
) -> None:
    seen = gpu.snapshot(machine(tmp_path, fault, SMI=24 if fault == "smi_no_groups" else 26))
    assert (seen["outcome"], seen["reason_code"]) == ("error", code) and words in seen["reason"]


def test_a_tool_that_hangs_is_a_lost_gpu(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd, "QUERY_TIMEOUT_S", 1.0)
    began = time.monotonic()
    seen = gpu.snapshot(machine(tmp_path, "smi_hang_in=metric"))
    assert seen["reason_code"] == "gpu_lost" and "metric did not answer in 1 s" in seen["reason"] and time.monotonic() - began < 15


def test_a_tool_that_other_kinds_refuse_is_heard(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path, "smi_no_groups")
    node.tools["nvidia_smi"] = str(tmp_path / "bin/nvidia-smi")
    assert gpu.snapshot(node)["reason_code"] == "no_permission", "nvidia-smi of an image for every machine finds no GPU"


def test_a_partitioned_gpu_is_several_devices_with_expectations_of_their_own(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path, "partition=CPX/NPS4")
    seen = gpu.snapshot(node)
    assert len(seen["gpus"]) == 64 == len({g["uuid"] for g in seen["gpus"]}) and gpu.model(seen) == f"{MODEL} CPX/NPS4"
    assert {g["compute_units"] for g in seen["gpus"]} == {38} and len({g["socket"] for g in seen["gpus"]}) == 8
    assert amd.Amd.memory_of_model(gpu.model(seen)) is None and amd.Amd.memory_of_model(MODEL) == 196592
    assert health(node) == {}, "only the first part of a GPU reports for it"
    assert amd.Amd.visible_names(seen["gpus"][8:10]) == ["8", "9"], "parts share the UUID of their GPU"


def test_one_gpu_with_another_partition_is_a_finding(tmp_path: pathlib.Path) -> None:
    found = health(machine(tmp_path, "partition_of_last=DPX/NPS1"))
    assert set(found) == {"", f"gpu/{LAST}-p0", f"gpu/{LAST}-p1"} and set(found[""]) == {"gpu_state"}


def test_errors_that_rise_during_a_test_are_its_evidence(tmp_path: pathlib.Path) -> None:
    changes = watched(machine(tmp_path, "ecc_rising corrected_rising xgmi_rising"))["changes"]
    assert {(of["code"], of["part"]) for of in changes} >= {(code, f"gpu/{LAST}") for code in ("ecc", "ecc_corrected", "nvlink_error")}


def test_heat_of_the_memory_is_evidence_and_the_power_limit_is_none(tmp_path: pathlib.Path) -> None:
    evidence = watched(machine(tmp_path, "hbm_hot"))
    (change,) = evidence["changes"]
    assert (change["code"], change["part"]) == ("throttle_thermal", f"gpu/{LAST}") and "hbm_thermal" in change["text"]
    assert "throttle" not in evidence["unreadable"]


def test_versions_that_do_not_count_throttling_say_so(tmp_path: pathlib.Path) -> None:
    evidence = watched(machine(tmp_path, SMI=24))
    assert "throttle" in evidence["unreadable"] and evidence["changes"] == []


def test_a_healthy_window_has_samples_and_nothing_else(tmp_path: pathlib.Path) -> None:
    evidence = watched(machine(tmp_path), lambda: time.sleep(2.5))
    assert evidence["changes"] == [] and set(evidence["unreadable"]) <= {"pcie_link"}
    sampled = evidence["window"][LAST]
    assert sampled["samples"] >= 1 and sampled["power"]["mean"] == 147 and sampled["sm_clock"]["max"] == 132


def test_a_gpu_that_is_reset_or_gone_during_a_test(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)

    def reset() -> None:
        with open(tmp_path / "root/dev/kmsg", "a", encoding="utf-8") as log:
            log.write("3,9,99,-;amdgpu 0000:e5:00.0: amdgpu: GPU reset begin!\n")
        conf = (tmp_path / "node.conf").read_text()
        (tmp_path / "node.conf").write_text(conf.replace('FAULTS=""', 'FAULTS="gpu_silent"'))

    changes = watched(node, reset)["changes"]
    assert {("gpu_lost", f"gpu/{LAST}"), ("gpu_reset", f"gpu/{LAST}")} <= {(of["code"], of["part"]) for of in changes}


def test_what_the_kernel_logged_since_boot_is_a_defect_of_its_gpu(tmp_path: pathlib.Path) -> None:
    log = "3,9,99,-;amdgpu 0000:e5:00.0: amdgpu: socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block\n"
    assert health(machine(tmp_path, log=log)) == {"": ["ecc"], f"gpu/{LAST}": ["ecc"]}


def test_a_sample_has_what_its_version_prints_in_a_line_that_is_short_enough(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path, SMI=27)
    seen = gpu.snapshot(node)
    accelerator = gpu.accelerator(node, seen)
    with subprocess.Popen(accelerator.sampling(), stdout=subprocess.PIPE, text=True) as sampler:
        assert sampler.stdout is not None
        lines = [sampler.stdout.readline() for _gpu in range(8)]
        sampler.kill()
    assert max(map(len, lines)) < 500
    samples = [accelerator.sample(line, seen) for line in lines]
    assert [of.uuid for of in samples if of] == [g["uuid"] for g in seen["gpus"]]
    assert samples[0] and samples[0].values == {"power": 140, "temperature": 45, "sm_clock": 132, "pcie_gen": 5, "pcie_width": 16}
    assert [accelerator.sample(line, seen) for line in ("nonsense", '{"gpu": "0000:77:00.0"}', "[1]")] == [None] * 3


# Output that is not quite as it should be -------------------------------------------------------------------------------


def changed(node: Node, folder: pathlib.Path, change: str) -> Node:
    """Put a program between the node and its amd-smi: `change` is Python over `what`, the subcommand, and `records` of it."""
    (folder / "bin/amd-smi").rename(folder / "bin/amd-smi-before")
    (folder / "bin/amd-smi").write_text(
        "#!/usr/bin/env python3\nimport json, subprocess, sys\n"
        f"done = subprocess.run([{str(folder / 'bin/amd-smi-before')!r}, *sys.argv[1:]], capture_output=True, text=True)\n"
        "what, text, decoder, at = sys.argv[1], done.stdout, json.JSONDecoder(), 0\n"
        "while '[' in text[at:] or '{' in text[at:]:\n"
        "    at = min(place for place in (text.find('[', at), text.find('{', at)) if place >= 0)\n"
        "    value, at = decoder.raw_decode(text, at)\n"
        "    records = value if isinstance(value, list) else next(iter(value.values()))\n"
        "    last = records[-1]\n"
        f"    {change}\n"
        "    print(json.dumps(records))\n"
    )
    (folder / "bin/amd-smi").chmod(0o755)
    return node


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("if what == 'metric': last['ecc_blocks']['UMC']['uncorrectable_count'] = 2", "ecc"),
        ("if what == 'metric': last['xgmi_err'] = 2", "nvlink_error"),
        ("if what == 'xgmi' and 'link_status' in last: last['link_status'][0] = 'Down'", "nvlink"),
        ("if what == 'xgmi' and 'link_status' in last: last['link_status'][0] = 'X'", "nvlink"),
        ("if what in ('xgmi', 'topology'): records = [of for of in records if of['gpu'] != 7]", "gpu_state"),
        ("if what == 'static': last['asic']['asic_serial'] = records[0]['asic']['asic_serial']", "gpu_state"),
        ("if what == 'bad-pages': last['un_res'] = 3", "gpu_state"),
    ],
)
def test_a_bad_gpu_is_seen_in_other_words_too(tmp_path: pathlib.Path, change: str, code: str) -> None:
    found = health(changed(machine(tmp_path), tmp_path, change))
    assert code in found[""] and any(code in codes and part.startswith("gpu/") for part, codes in found.items())


def test_a_gpu_of_which_static_says_nothing_is_not_known(tmp_path: pathlib.Path) -> None:
    found = health(changed(machine(tmp_path), tmp_path, "if what == 'static': del records[-1]"))
    assert found[""] == ["gpu_state"]


def test_a_partitioned_gpu_that_lacks_a_part_is_a_finding(tmp_path: pathlib.Path) -> None:
    cut = "if what in ('static', 'metric', 'list', 'partition'): del records[-1]"
    assert health(changed(machine(tmp_path, "partition=DPX/NPS1"), tmp_path, cut))[""] == ["gpu_state"]


def test_parts_that_show_nothing_of_their_gpu_are_those_of_the_first_part(tmp_path: pathlib.Path) -> None:
    silent = "[record.update(asic='N/A') for record in records if what == 'static' and record['gpu'] % 2]"
    node = changed(machine(tmp_path, "partition=DPX/NPS1"), tmp_path, silent)
    assert health(node) == {}
    assert gpu.model(gpu.snapshot(node)) == f"{MODEL} DPX/NPS1"


def test_a_whole_gpu_whose_memory_is_divided_has_expectations_of_its_own(tmp_path: pathlib.Path) -> None:
    assert gpu.model(gpu.snapshot(machine(tmp_path, "partition=SPX/NPS4"))) == f"{MODEL} SPX/NPS4"


@pytest.mark.parametrize(
    "change",
    [
        "if what == 'static': last['vram']['size'] = {'value': 192, 'unit': 'GB'}",
        "if what == 'xgmi' and 'link_status' in last: [record['link_status'].append('X') for record in records]",
        "if what == 'xgmi' and 'link_status' in last: [record.update(link_status=['N/A'] * 8) for record in records]",
        "if what == 'xgmi': records = []",
    ],
)
def test_a_good_gpu_is_one_in_other_words_too(tmp_path: pathlib.Path, change: str) -> None:
    assert health(changed(machine(tmp_path), tmp_path, change)) == {}


def test_links_that_a_virtual_machine_shows_as_down_are_none_of_its_faults() -> None:
    gpus = [
        {
            "uuid": f"GPU-{n}", "index": n, "bdf": f"0000:{n:02x}:00.0", "socket": str(n), "name": MODEL, "virtual": True,
            "partition": {"id": 0},
        }
        for n in range(8)
    ]  # fmt: skip
    port = amd_smi.Xgmi(32, 512, ("D",) * 7)
    links = {"between": {}, "ports": {of["bdf"]: port for of in gpus}}
    assert xgmi.down(gpus, links) == {}
    assert len(xgmi.down([{**of, "virtual": False} for of in gpus], links)) == 8


# Without amd-smi ---------------------------------------------------------------------------------------------------------


def sysfs(root: pathlib.Path, errors: int = 0, width: int = 16, gpus: int = 2) -> Node:
    """Plant GPUs as the driver shows them in /sys, beside a processor's own node of the topology."""

    def write(path: str, text: t.Any) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")

    write("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 96\nsimd_count 0\nvendor_id 0")
    for n in range(gpus):
        bdf, node = f"0000:{5 + 32 * n:02x}:00.0", f"sys/class/kfd/kfd/topology/nodes/{n + 1}"
        properties = {
            "simd_count": 1216, "simd_per_cu": 4, "vendor_id": 4098, "device_id": 0x74A1, "location_id": (5 + 32 * n) << 8, "domain": 0,
            "unique_id": 0x7000001 + n, "gfx_target_version": 90402,
        }  # fmt: skip
        write(f"{node}/properties", "\n".join(f"{name} {value}" for name, value in properties.items()))
        write(f"{node}/gpu_id", 1000 + n)
        for to in range(gpus):
            if to != n:
                write(f"{node}/io_links/{to}/properties", f"type 11\nnode_from {n + 1}\nnode_to {to + 1}\nweight 15\nmax_bandwidth 64000")
        device = f"sys/bus/pci/devices/{bdf}"
        files = {
            "vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "product_name": "AMD Instinct MI300X OAM",
            "vbios_version": "113-M3000100-102", "mem_info_vram_total": 196592 << 20, "mem_info_vram_used": 283 << 20,
            "gpu_busy_percent": 0, "current_link_width": width if n else 16, "max_link_width": 16, "current_link_speed": "32.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe", "pcie_replay_count": 0, "current_compute_partition": "SPX",
            "current_memory_partition": "NPS1", "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz", "hwmon/hwmon3/power1_input": 140000000,
            "hwmon/hwmon3/power1_cap": 750000000, "hwmon/hwmon3/power1_cap_max": 750000000, "hwmon/hwmon3/temp2_label": "junction",
            "hwmon/hwmon3/temp2_input": 45000, "ras/umc_err_count": f"ue: {errors if n else 0}\nce: 0\nde: 0",
            "ras/xgmi_wafl_err_count": "ue: 0\nce: 0", "ras/gpu_vram_bad_pages": "0x00007f00 : 0x00001000 : R" if n else "",
            "fw_version/rlc_fw_version": "0x00000043",
        }  # fmt: skip
        for name, value in files.items():
            write(f"{device}/{name}", value)
        (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True, exist_ok=True)
        (root / device / "driver").symlink_to(root / "sys/bus/pci/drivers/amdgpu")
    write("sys/module/amdgpu/version", "6.14.14")
    write("proc/uptime", "864000.0 1.0")
    write("dev/kmsg", KMSG.strip())
    return Node(60, root=str(root), tools={"amd_smi": "/nonexistent/amd-smi", "nvidia_smi": "/nonexistent/nvidia-smi", "npu_smi": ""})


def test_without_amd_smi_the_driver_shows_the_gpus(tmp_path: pathlib.Path) -> None:
    node = sysfs(tmp_path)
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["kind"], seen["driver"], seen["simulated"]) == ("measured", "amd", "6.14.14", False)
    first = seen["gpus"][0]
    assert (first["uuid"], first["name"], first["bdf"], first["compute_units"]) == (FIRST, MODEL, "0000:05:00.0", 304)
    assert (first["pcie"]["gen"], first["power"]["limit_w"], first["temperature_c"], first["architecture"]) == (5, 750, 45, "gfx942")
    accelerator = gpu.accelerator(node, seen)
    links = accelerator.links(seen)
    assert links and accelerator.links_down(seen, links) == {} and accelerator.facts(seen, links)["gpu_xgmi"] == ["1 XGMI"]
    assert accelerator.facts(seen, links)["gpu_firmware"] == ["rlc 0x00000043"]
    assert accelerator.link_errors(seen) == {g["uuid"]: {"xgmi_wafl correctable": 0, "xgmi_wafl uncorrectable": 0} for g in seen["gpus"]}
    assert is_absent(first["throttle_us"]["hbm_thermal"]), "this driver does not count the causes of throttling"
    evidence = watched(node, lambda: time.sleep(1.5))
    assert evidence["window"][FIRST]["power"]["mean"] == 140 and "throttle" in evidence["unreadable"]


def test_the_driver_counts_the_time_of_throttling_without_amd_smi(tmp_path: pathlib.Path) -> None:
    node = sysfs(tmp_path)

    def count(hbm: int, cycles: int) -> None:
        for number in range(2):
            data = bytearray(3200)
            struct.pack_into("<HBB", data, 0, len(data), 1, 8)
            struct.pack_into("<6I", data, 40, cycles, 0, 900, 0, 0, hbm if number else 0)
            (tmp_path / f"sys/bus/pci/devices/0000:{5 + 32 * number:02x}:00.0/gpu_metrics").write_bytes(data)

    count(0, 5000)
    evidence = watched(node, lambda: count(700, 6000))
    (change,) = evidence["changes"]
    assert (change["code"], change["part"]) == ("throttle_thermal", "gpu/GPU-0000000007000002")
    assert "hbm_thermal, for 0.700 s" in change["text"]
    assert "throttle" not in evidence["unreadable"]


def test_defects_that_the_driver_shows_without_amd_smi(tmp_path: pathlib.Path) -> None:
    found = health(sysfs(tmp_path, errors=3, width=8))
    assert found["gpu/GPU-0000000007000002"] == ["ecc", "pcie_width", "ecc_past"]


def test_a_gpu_that_the_driver_has_and_amd_smi_does_not_show(tmp_path: pathlib.Path) -> None:
    node = sysfs(tmp_path / "root")
    nodes.planted(tmp_path, 7, model=MODEL, gpus=1)
    node.tools["amd_smi"] = str(tmp_path / "bin/amd-smi")
    assert health(node) == {"": ["gpu_lost"]}


def test_a_node_without_tool_and_driver_names_the_tool(tmp_path: pathlib.Path) -> None:
    tools = {"amd_smi": "/nonexistent/amd-smi", "nvidia_smi": "", "npu_smi": ""}
    seen = registry.make("amd", Node(60, root=str(tmp_path), tools=tools)).snapshot()
    assert seen["reason_code"] == "tool_missing" and "acceptance_amd_smi" in seen["reason"]
    assert not registry.make("amd", Node(60, root=str(tmp_path), tools={"amd_smi": ""})).is_installed()


def test_broken_files_of_the_driver_are_absent(tmp_path: pathlib.Path) -> None:
    node = sysfs(tmp_path)
    for name in ("mem_info_vram_total", "current_link_width", "ras/umc_err_count", "pp_dpm_sclk"):
        (tmp_path / "sys/bus/pci/devices/0000:05:00.0" / name).write_text("garbage\n")
    first = amd_sysfs.devices(Tree(node))[0]
    assert all(map(is_absent, (first["static"]["memory_mib"], first["metric"]["width"], first["metric"]["clock_mhz"])))
    assert is_absent(first["metric"]["blocks"]["UMC"]["uncorrectable"])


# HIP -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        ({"library": "libamdhip64.so: cannot open"}, "cuda_failed", "is ROCm installed"),
        ({"init": 100}, "cuda_failed", "no ROCm device"),
        ({"init": 0, "count_status": 100}, "cuda_failed", "cannot count"),
        ({**COUNTED, "count": 7}, "gpu_count", "HIP sees 7 and amd-smi 8"),
        ({**COUNTED, "contexts": [0, 2]}, "cuda_failed", "GPU 1: error 2"),
        ({**COUNTED, "contexts": [214]}, "ecc", "uncorrectable"),
        ({**COUNTED, "torch": "2.9", "torch_hip": None, "torch_available": False}, "cuda_failed", "without ROCm"),
    ],
)
def test_defects_of_hip(report: dict[str, t.Any], code: str, words: str) -> None:
    found = hip.problem(report, 8)
    assert found and found[0] == code and words in found[1]
    assert hip.problem({**COUNTED, "contexts": [0] * 8}, 8) is None


def test_the_simulated_start_of_hip(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    (start,) = stack.probe({"checks": [{"check": "cuda", "variant": ""}], "gpu_count": 8, "python": str(tmp_path / "bin/python3")}, node)
    assert start["outcome"] == "measured" and start["simulated"] and start["command"][-1] == "initialise HIP"


def test_a_reader_of_samples_takes_any_line() -> None:
    for line in ("", "{", "[]", "7", '{"metric": 7}', '{"metric": {"gpu": "N/A"}}', '{"gpu": 3}', "[" * 100000):
        assert amd_sampler.parse(line) is None
    read = amd_sampler.parse('{"gpu": "0000:05:00.0", "busy": null, "power": 700.0}')
    assert read and read.values == {"power": 700} and read.throttle is None


def test_the_kernel_drivers_link_states_and_modes_are_those_of_amd_smi() -> None:
    assert amd_smi.mode("SPX*") == "SPX" and amd_smi.mode("N/A") is None and amd_smi.mode("NPS4") == "NPS4" and amd_smi.mode("<b>") is None
