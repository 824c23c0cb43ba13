# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cell of nvidia-smi that cannot be read never makes a GPU better than the same cell that reads well: every cell of the XML, every form
of an unreadable one, beside every fault."""

from __future__ import annotations

import pathlib
import re
import typing as t
from xml.etree import ElementTree

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi
from hypothesis import given
from hypothesis import strategies as st

# None: the element is missing.
FORMS = (
    "N/A", "[N/A]", "Unknown Error", "[Unknown Error]", "ERR!", "Insufficient Permissions", "[Insufficient Permissions]", "Not Supported",
    "Requested functionality has been deprecated", "Function Not Found", "Unknown", "", "-1", "18446744073709551615", "nan", None,
)  # fmt: skip
ROOT = pathlib.Path(__file__).resolve().parents[3]
HOPPER = (ROOT / "fixtures/h200-x4/nvidia-smi-q.xml").read_text().replace(">Pass-Through<", ">None<")
# What older GPUs and drivers print in place of parts of it.
AMPERE = re.sub(r"\s*<sram_uncorrectable_secded>0</sram_uncorrectable_secded>", "", HOPPER).replace(
    "sram_uncorrectable_parity", "sram_uncorrectable"
)
AMPERE = AMPERE.replace("NVIDIA H200<", "NVIDIA A100-SXM4-80GB<").replace("_link_gen>5<", "_link_gen>4<")
_OLD = "".join(f"<{place}>0</{place}>" for place in ("device_memory", "register_file", "l1_cache", "l2_cache", "total"))
VOLTA = re.sub(
    r"<ecc_errors>.*?</ecc_errors>",
    "<ecc_errors>"
    + "".join(f"<{when}><single_bit>{_OLD}</single_bit><double_bit>{_OLD}</double_bit></{when}>" for when in ("volatile", "aggregate"))
    + "</ecc_errors>",
    HOPPER,
    flags=re.DOTALL,
).replace("NVIDIA H200<", "Tesla V100-PCIE-32GB<")
VOLTA = re.sub(r"<remapped_rows>.*?</remapped_rows>", "<remapped_rows>N/A</remapped_rows>", VOLTA, flags=re.DOTALL)
VOLTA = VOLTA.replace("<retired_count>N/A<", "<retired_count>0<").replace("<pending_retirement>N/A<", "<pending_retirement>No<")
VOLTA = re.sub(r"<fabric>.*?</fabric>", "", VOLTA, flags=re.DOTALL).replace("_link_gen>5<", "_link_gen>3<")
GENERATIONS = {"hopper": HOPPER, "ampere": AMPERE, "volta": VOLTA}
# Faults, by the end of the path of their cell.
FAULTS = {
    "dram_uncorrectable": "3", "sram_uncorrectable": "1", "sram_uncorrectable_parity": "2", "sram_uncorrectable_secded": "2",
    "double_bit/total": "3", "double_bit/device_memory": "3", "remapped_row_unc": "11", "remapped_row_corr": "12",
    "remapped_row_pending": "Yes", "remapped_row_failure": "Yes",
    "unrepairable_memory": "Yes", "channel_repair_pending": "Yes", "sram_threshold_exceeded": "Yes",
    "double_bit_retirement/retired_count": "60", "multiple_single_bit_retirement/retired_count": "60", "pending_retirement": "Yes",
    "current_link_width": "8x", "gpu_recovery_action": "Reset", "fabric/state": "In Progress", "health/bandwidth": "Degraded",
    "route_unhealthy": "True", "replay_counter": "3000000", "dram_correctable": "20000000", "current_ecc": "Disabled",
}  # fmt: skip
SEVERITY = {"PASS": 0, "WARN": 1, "UNKNOWN": 2, "FAIL": 3}


def cells(gpu: ElementTree.Element, path: str = "") -> t.Iterator[tuple[str, ElementTree.Element, ElementTree.Element]]:
    """Yield (path, parent, leaf) of every cell of a GPU; lists of clocks and processes judge nobody."""
    for child in gpu:
        here = f"{path}/{child.tag}" if path else child.tag
        if child.tag in ("supported_clocks", "processes", "accounted_processes"):
            continue
        if len(child):
            yield from cells(child, here)
        else:
            yield here, gpu, child


def verdict(xml: str) -> str:
    """The verdict on the first GPU of the XML, as stack would find it."""
    seen = nvidia_smi.parse_xml(xml)
    if seen["outcome"] != "measured":
        return "FAIL" if seen["reason_code"] in reasons.FATAL else "UNKNOWN"
    first = seen["gpus"][0]
    codes = [code for code, _words in (*nvidia.health(first), *nvidia.siblings(seen["gpus"], 1.0).get(first["uuid"], []))]
    words = {
        "WARN" if code in reasons.MILD else "FAIL" if code in (*reasons.FATAL, *reasons.DEFECTS) else "UNKNOWN" for code in codes
    }
    return max(words, key=lambda word: SEVERITY[word], default="PASS")


def changed(xml: str, changes: t.Mapping[str, str | None], alone: bool) -> str:
    """The XML with other cells in its first GPU: {path: text}; without the others if it is alone."""
    root = ElementTree.fromstring(xml[xml.index("<nvidia_smi_log") :])
    gpus = root.findall("gpu")
    for gpu in gpus[1:] if alone else []:
        root.remove(gpu)
    if alone:
        t.cast("ElementTree.Element", root.find("attached_gpus")).text = "1"
    for path, parent, leaf in list(cells(gpus[0])):
        if path in changes:
            if changes[path] is None:
                parent.remove(leaf)
            else:
                leaf.text = changes[path]
    return ElementTree.tostring(root, encoding="unicode")


def paths(xml: str) -> list[str]:
    root = ElementTree.fromstring(xml[xml.index("<nvidia_smi_log") :])
    return [path for path, _parent, _leaf in cells(t.cast("ElementTree.Element", root.find("gpu")))]


PATHS = {name: paths(xml) for name, xml in GENERATIONS.items()}
PLANTED = {
    name: [(path, text) for path in found for end, text in FAULTS.items() if path.endswith(end)] for name, found in PATHS.items()
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_healthy_form_is_healthy_and_each_fault_is_seen(name: str) -> None:
    assert verdict(changed(GENERATIONS[name], {}, True)) == "PASS"
    assert len(PLANTED[name]) >= 11
    for path, text in PLANTED[name]:
        if name == "volta" and "double_bit/device_memory" in path:
            continue  # the total says it, too
        assert verdict(changed(GENERATIONS[name], {path: text}, True)) != "PASS", path


@given(st.data())
def test_no_unreadable_cell_makes_a_gpu_better(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(GENERATIONS)))
    xml, alone = GENERATIONS[name], data.draw(st.booleans())
    path, text = data.draw(st.sampled_from([("", ""), *PLANTED[name]]))
    judges = r"ecc|remapped|retire|fabric|link|replay|memory|util|recovery|pci"
    judged = [one for one in PATHS[name] if one != path and re.search(judges, one)]
    cell, form = data.draw(st.sampled_from(judged)), data.draw(st.sampled_from(FORMS))
    fault = {path: text} if path else {}
    readable, unreadable = verdict(changed(xml, fault, alone)), verdict(changed(xml, {**fault, cell: form}, alone))
    assert SEVERITY[unreadable] >= SEVERITY[readable], (path, text, cell, form)


SOME_OF_A_SET = [
    path
    for name in ("hopper", "ampere")
    for path in PATHS[name]
    if re.search(r"volatile/(?:sram|dram)_uncorrectable|remapped_row_(?:corr|unc|pending|failure)$", path)
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", sorted(set(SOME_OF_A_SET)))
def test_a_counter_of_a_set_that_cannot_be_read_is_worth_a_look_at_least(path: str, form: str | None) -> None:
    """SRAM 0 and DRAM unreadable were 0 errors together."""
    for name in (name for name in ("hopper", "ampere") if path in PATHS[name]):
        assert verdict(changed(GENERATIONS[name], {path: form}, True)) in ("WARN", "UNKNOWN")
        assert verdict(changed(GENERATIONS[name], {path: form}, False)) == "UNKNOWN" or "Permissions" in str(form)


@pytest.mark.parametrize("form", ["Unknown Error", "ERR!", "nan", "-1"])
@pytest.mark.parametrize("end", ["volatile/dram_uncorrectable", "remapped_row_unc", "aggregate/dram_uncorrectable"])
def test_a_reading_that_failed_is_unknown(end: str, form: str) -> None:
    (path,) = (path for path in PATHS["hopper"] if path.endswith(end))
    assert verdict(changed(HOPPER, {path: form}, True)) == "UNKNOWN"


def with_mig(xml: str, *parts: str) -> str:
    """The first GPU as one that MIG partitions, whose parts have these uncorrectable errors."""
    devices = "".join(
        f"<mig_device><index>{at}</index><ecc_error_count><volatile_count><sram_uncorrectable>{count}</sram_uncorrectable></volatile_count>"
        "</ecc_error_count></mig_device>"
        for at, count in enumerate(parts)
    )
    head, gpu, tail = re.split(r"(<gpu id=.*?</gpu>)", xml, maxsplit=1, flags=re.DOTALL)[:3]
    gpu = gpu.replace("<current_mig>Disabled<", "<current_mig>Enabled<")
    gpu = re.sub(r"<mig_devices>.*?</mig_devices>", f"<mig_devices>{devices or 'None'}</mig_devices>", gpu, flags=re.DOTALL)
    gpu = re.sub(r"(<volatile>.*?</volatile>)", lambda match: re.sub(r">\d+<", ">N/A<", match[0]), gpu, flags=re.DOTALL)
    return head + gpu + tail


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), "PASS"), (("0",), "PASS"), (("0", "0", "0"), "PASS"), (("0", "2"), "FAIL"), (("N/A", "1"), "FAIL"),
        (("7", "Unknown Error"), "FAIL"),
    ],
)  # fmt: skip
def test_errors_of_a_gpu_with_mig_stand_with_its_parts(parts: tuple[str, ...], expected: str) -> None:
    assert verdict(with_mig(HOPPER, *parts)) == expected
    first = nvidia_smi.parse_xml(with_mig(HOPPER, *parts))["gpus"][0]
    errors = first["ecc"]["volatile_uncorrected"]
    assert is_absent(errors) if not parts else errors == sum(int(count) for count in parts if count.isdigit())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("NVIDIA H200", ["ecc_off"]), ("Tesla T4", ["ecc_off"]), ("NVIDIA L40S", ["ecc_off"]), ("NVIDIA RTX A6000", []),
        ("NVIDIA GeForce RTX 4090", []), ("NVIDIA RTX 6000 Ada Generation", []),
    ],
)  # fmt: skip
def test_ecc_that_is_off_counts_for_cards_that_are_delivered_with_it(model: str, expected: list[str]) -> None:
    off = HOPPER.replace("NVIDIA H200<", f"{model}<").replace("<current_ecc>Enabled<", "<current_ecc>Disabled<")
    gpus = nvidia_smi.parse_xml(off)["gpus"]
    assert [code for code, _words in nvidia.health(gpus[0]) if code == "ecc_off"] == expected
    assert "ecc_off" not in str(nvidia.siblings(gpus))
    gpus = nvidia_smi.parse_xml(changed(HOPPER.replace("NVIDIA H200<", f"{model}<"), {"ecc_mode/current_ecc": "Disabled"}, False))["gpus"]
    found = [*nvidia.health(gpus[0]), *nvidia.siblings(gpus).get(gpus[0]["uuid"], [])]
    assert [code for code, _words in found if code == "ecc_off"] == ["ecc_off"], "the others of its model have it on"


# Lanes of virtual machines ------------------------------------------------------------------------------------------------

MODELS = ("Tesla T4", "NVIDIA A10G", "NVIDIA L40S", "NVIDIA L4", "NVIDIA H100 PCIe", "NVIDIA RTX PRO 6000 Blackwell Server Edition")


def guest(model: str, mode: str, *widths: str) -> list[dict[str, t.Any]]:
    """The GPUs of a machine whose links have these widths of 16 lanes."""
    root = ElementTree.fromstring(HOPPER[HOPPER.index("<nvidia_smi_log") :])
    for at, gpu in enumerate(root.findall("gpu")):
        if at >= len(widths):
            root.remove(gpu)
            continue
        for path, text in (
            ("product_name", model), ("gpu_virtualization_mode/virtualization_mode", mode),
            ("pci/pci_gpu_link_info/link_widths/current_link_width", widths[at]),
        ):  # fmt: skip
            t.cast("ElementTree.Element", gpu.find(path)).text = text
    t.cast("ElementTree.Element", root.find("attached_gpus")).text = str(len(widths))
    return t.cast("list[dict[str, t.Any]]", nvidia_smi.parse_xml(ElementTree.tostring(root, encoding="unicode"))["gpus"])


def width_codes(gpus: list[dict[str, t.Any]]) -> list[list[str]]:
    beside = nvidia.siblings(gpus)
    return [[code for code, _words in (*nvidia.health(g), *beside.get(g["uuid"], [])) if code.startswith("pcie_")] for g in gpus]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", ["Pass-Through", "VGPU", "[Pass-Through]"])
@pytest.mark.parametrize("lanes", ["8x", "4x", "1x"])
def test_lanes_of_a_virtual_machine(model: str, mode: str, lanes: str) -> None:
    assert width_codes(guest(model, mode, lanes)) == [["pcie_slot"]], "nobody knows what the slot has"
    assert width_codes(guest(model, mode, lanes, lanes)) == width_codes(guest(model, mode, "16x", "16x")), "so the machine is built"
    worse = width_codes(guest(model, mode, lanes, "16x", "16x", "16x"))
    assert worse == [["pcie_width"], [], [], []], "one with fewer lanes than its siblings is named"


@pytest.mark.parametrize("mode", ["None", "Host VGPU", "Host VSGA"])
def test_lanes_of_a_physical_machine(mode: str) -> None:
    assert width_codes(guest("NVIDIA L40S", mode, "8x", "8x")) == [["pcie_width"], ["pcie_width"]]
    assert width_codes(guest("NVIDIA L40S", mode, "16x", "16x")) == [[], []]


# Counters that stand high -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "count", "days", "code"),
    [
        ("volatile/dram_correctable", "20000000", 400.0, "ecc_corrected"),
        ("aggregate/dram_correctable", "20000000", 400.0, "ecc_corrected"),
        ("volatile/dram_correctable", "101", 400.0, "ecc_corrected"), ("volatile/dram_correctable", "12", 0.1, None),
        ("replay_counter", "3000000", 400.0, "pcie_corrected"), ("replay_counter", "99", 0.1, None),
        ("replay_counter", "3000000", None, "pcie_corrected"),
    ],
)  # fmt: skip
def test_a_counter_of_one_gpu_that_stands_high(end: str, count: str, days: float | None, code: str | None) -> None:
    (path,) = (path for path in PATHS["hopper"] if path.endswith(end))
    gpus = nvidia_smi.parse_xml(changed(HOPPER, {path: count}, False))["gpus"]
    found = {uuid: [one for one, _words in problems] for uuid, problems in nvidia.siblings(gpus, days).items()}
    assert found == ({gpus[0]["uuid"]: [code]} if code else {})


def test_counters_that_all_gpus_have_are_held_to_the_time() -> None:
    for count, days, expected in (("30000", 400.0, 0), ("30000", 1.0, 4), ("60000", 400.0, 4)):
        gpus = nvidia_smi.parse_xml(HOPPER.replace("<replay_counter>0<", f"<replay_counter>{count}<"))["gpus"]
        assert len(nvidia.siblings(gpus, days)) == expected, (count, days)
