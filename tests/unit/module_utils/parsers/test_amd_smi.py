# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON of amd-smi in the shapes of its versions, from its documentation and its changelog; nothing here was recorded on hardware."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi
from rigs.simulated import nodes

SUBCOMMANDS = ("list", "static", "metric", "bad-pages", "process", "partition", "firmware", "topology", "xgmi", "version")


def shown(value: t.Any) -> amd_smi.Output:
    return amd_smi.read(json.dumps(value, indent=4))


def absent(value: t.Any) -> bool:
    return is_absent(value)


def test_an_array_and_an_object_with_an_array_are_the_same() -> None:
    gpus = [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}}, {"gpu": 1, "asic": "N/A"}]
    assert shown(gpus).records == shown({"gpu_data": gpus}).records == gpus
    assert amd_smi.by_gpu(shown({"current_partition": [{"gpu_id": 3, "memory": "NPS1"}]}).records) == {3: {"gpu_id": 3, "memory": "NPS1"}}


def test_arrays_behind_each_other_and_warnings_are_read_over() -> None:
    warning = "WARNING: User is missing the following required groups: render, video. Please add user to these groups."
    text = f'{warning}\n[{{"gpu": 0}}]\n[{{"gpu": 1}}]\n'
    read = amd_smi.read(text)
    assert read.records == [{"gpu": 0}, {"gpu": 1}] and read.no_groups and not read.simulated
    assert amd_smi.read("[INFO] a note in brackets\n" + '[{"gpu": 0}]').records == [{"gpu": 0}]


@pytest.mark.parametrize("text", ["", "no JSON", None, 7, '[{"gpu": 0, "asic"', "[" * 5000, '{"gpu": ', "x" * (9 << 20), "\0", "[1, 2"])
def test_text_that_is_cut_or_no_json_has_no_records(text: t.Any) -> None:
    assert amd_smi.read(text).records is None


def test_keys_are_read_without_case() -> None:
    read = shown([{"GPU": 2, "Metric": {"AID_0": {"Value": 40}}}])
    assert read.records == [{"gpu": 2, "metric": {"aid_0": {"value": 40}}}]


@pytest.mark.parametrize(
    "cell",
    [None, "N/A", "NA", "", "n/a ", {"value": "N/A", "unit": "W"}, {"value": None}, 65535, {"value": 65535, "unit": "Gb/s"}, 4294967295,
     18446744073709551615, -1, "ENABLED", [], {}, True, float("inf")],
)  # fmt: skip
def test_what_is_no_number_is_absent_and_never_0(cell: t.Any) -> None:
    assert absent(amd_smi.number(cell, "power"))


@pytest.mark.parametrize(
    ("cell", "value"), [(138, 138), ("138 MHz", 138), ({"value": 138, "unit": "MHz"}, 138), ("0", 0), (0, 0), ({"value": 1.5}, 1.5)]
)
def test_a_number_has_its_unit_beside_it_behind_it_or_not_at_all(cell: t.Any, value: float) -> None:
    assert amd_smi.number(cell, "clock") == value


def test_limits_of_older_and_newer_versions() -> None:
    old = {"limit": {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 600, "unit": "W"}}}
    new = {"limit": {"ppt0": {"max_power_limit": 750, "min_power_limit": 0, "socket_power_limit": 600}, "ppt1": "N/A"}}
    for record in (old, new):
        read = amd_smi.static(record)
        assert (read["limit_w"], read["max_limit_w"]) == (600, 750)
    assert absent(amd_smi.static({"limit": "N/A"})["limit_w"]) and absent(amd_smi.static({})["limit_w"])


def test_names_that_versions_have_for_one_thing() -> None:
    for key in ("driver_version", "version"):
        assert amd_smi.static({"driver": {key: "6.8.5"}})["driver"] == "6.8.5"
    for key in ("compute_partition", "accelerator_partition"):
        assert amd_smi.static({"partition": {key: "CPX", "memory_partition": "NPS4"}})["compute"] == "CPX"
    assert amd_smi.partition({"gpu_id": 0, "accelerator_type": "SPX*", "memory": "NPS1"}) == {"compute": "SPX", "memory": "NPS1"}
    states = [{"block": "UMC", "status": "ENABLED"}, {"block": "GFX", "status": "DISABLED"}]
    listed, plain = ({"ras": {"ecc_block_state": of}} for of in (states, {"UMC": "ENABLED", "GFX": "DISABLED"}))
    assert amd_smi.static(listed)["ras"] == amd_smi.static(plain)["ras"] == {"UMC": "ENABLED", "GFX": "DISABLED"}
    assert amd_smi.static({"ras": "N/A"})["ras"] is None


def test_a_section_that_is_not_there_is_absent() -> None:
    for record in ({}, {"ecc": "N/A", "ecc_blocks": "N/A", "usage": "N/A", "clock": "N/A", "power": None, "throttle": "N/A", "pcie": []}):
        read = amd_smi.metric(record)
        values = [of for name, of in read.items() if name not in ("ecc", "blocks", "throttle", "xgmi")]
        assert all(map(absent, [*values, *read["ecc"].values(), *read["throttle"].counts.values(), read["throttle"].total]))
        assert read["blocks"] == {} and read["throttle"].active == [] and read["xgmi"] is None


def test_errors_by_block_with_counts_that_a_block_does_not_have() -> None:
    read = amd_smi.metric({"ecc_blocks": {"UMC": {"correctable_count": 3, "uncorrectable_count": "N/A"}, "GFX": "N/A"}})
    assert read["blocks"]["UMC"]["correctable"] == 3 and absent(read["blocks"]["UMC"]["uncorrectable"]) and "GFX" not in read["blocks"]


def test_throttling_by_cause() -> None:
    held: dict[str, t.Any] = {"accumulation_counter": 100, "hbm_thermal_accumulated": 7, "hbm_thermal_violation_status": "ACTIVE"}
    held["ppt_violation_status"] = "NOT ACTIVE"
    for key in ("throttle", "violation"):
        read = amd_smi.throttled({key: held})
        assert read.total == 100 and read.counts["hbm_thermal"] == 7 and absent(read.counts["prochot"]) and read.active == ["hbm_thermal"]


PAGE = {"page_address": "0x7f00", "page_size": "0x1000", "status": "RESERVED"}


@pytest.mark.parametrize(
    ("cell", "pages"),
    [
        ("No bad pages found.", 0), ([], 0), (PAGE, 1), ([PAGE, PAGE], 2), ("N/A", None), (None, None), ([PAGE, "x"], None), (3, None),
        ({}, None),
    ],
)  # fmt: skip
def test_bad_pages_are_a_sentence_a_list_or_one_object(cell: t.Any, pages: int | None) -> None:
    read = amd_smi.bad_pages({"gpu": 0, "retired": cell})
    assert absent(read["retired"]) if pages is None else read["retired"] == pages
    assert absent(read["pending"])


def test_processes() -> None:
    info = {"name": "python3", "pid": 42, "memory_usage": {"vram_mem": {"value": 3 << 20, "unit": "B"}}, "mem_usage": "N/A"}
    entries = [{"process_info": info}, {"process_info": "No running processes detected"}, {"process_info": {"pid": "N/A"}}, "x"]
    assert amd_smi.processes({"process_list": entries}) == [{"pid": 42, "name": "python3", "used_mib": 3, "type": "C"}]
    assert amd_smi.processes({"process_list": [{"process_info": "No running processes detected"}]}) == []
    assert amd_smi.processes({"process_list": "N/A"}) is None is amd_smi.processes({})


def test_links_of_the_topology() -> None:
    links = [
        {"gpu": 0, "bdf": "0000:05:00.0", "link_type": "SELF", "bandwidth": "N/A"},
        {"gpu": 1, "bdf": "0000:26:00.0", "link_status": "ENABLED", "link_type": "XGMI", "bandwidth": "50000-100000"},
        {"gpu": 2, "bdf": "0000:46:00.0", "link_status": "DISABLED", "link_type": "PCIE", "bandwidth": "N/A"},
    ]
    read = amd_smi.topology([{"gpu": 0, "bdf": "0000:05:00.0", "links": links}, {"gpu": 1, "bdf": "0000:26:00.0", "links": "N/A"}])
    assert list(read) == ["0000:05:00.0"] and read["0000:05:00.0"]["0000:26:00.0"] == amd_smi.Link("XGMI", True, 100000)
    other = read["0000:05:00.0"]["0000:46:00.0"]
    assert (other.kind, other.is_enabled) == ("PCIE", False) and absent(other.rate)


def test_states_and_rates_of_xgmi_links_from_two_arrays() -> None:
    metrics = [{"gpu": 0, "bdf": "0000:05:00.0", "link_metrics": {"bit_rate": {"value": 32}, "max_bandwidth": 4294967295, "links": []}}]
    states = [{"gpu": 0, "bdf": "0000:05:00.0", "link_status": ["U", "D", "X", "SELF", "N/A", None]}]
    for value in ({"xgmi_metric": metrics, "link_status": states}, [*metrics, *states]):
        read = amd_smi.xgmi(shown(value).records)["0000:05:00.0"]
        assert read.bit_rate == 32 and absent(read.bandwidth) and read.states == ("U", "D", "X")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ERROR:root:Unable to get devices, driver not initialized (amdgpu not found in modules)", "no_gpu"),
        ("ERROR: Unable to detect any GPU devices, check amdgpu version and module status", "no_gpu"),
        ("Unable to find libamd_smi.so library try installing amd-smi-lib", "tool_failed"),
        ("amdsmi_exception.AmdSmiLibraryException: Error code: 10 | AMDSMI_STATUS_NO_PERM", "no_permission"),
    ],
)
def test_sentences_of_a_tool_that_cannot_answer(text: str, code: str) -> None:
    found = amd_smi.failure(text)
    assert found and found[0] == code and amd_smi.failure("[]") is None


@pytest.mark.parametrize("smi", [24, 25, 26, 27])
def test_the_versions_say_the_same_of_one_machine(tmp_path: pathlib.Path, smi: int) -> None:
    nodes.planted(tmp_path, 7, model="AMD Instinct MI300X", faults="bad_pages=1 corrected=3", SMI=smi)
    said = {
        name: amd_smi.read(subprocess.run([tmp_path / "bin/amd-smi", name, "--json"], capture_output=True, text=True, check=True).stdout)
        for name in SUBCOMMANDS
    }
    records = {name: amd_smi.by_gpu(of.records) for name, of in said.items()}
    assert said["static"].simulated and len(records["static"]) == len(records["metric"]) == len(records["list"]) == 8
    static, metric = amd_smi.static(records["static"][7]), amd_smi.metric(records["metric"][7])
    assert (static["serial"], static["bdf"], static["limit_w"], static["memory_mib"]) == ("0x0000000007000008", "0000:e5:00.0", 750, 196592)
    assert static["ras"]["UMC"] == "ENABLED" and static["driver"] == "6.14.14" and static["vbios"]
    assert (metric["ecc"]["correctable"], metric["ecc"]["uncorrectable"], metric["width"], metric["speed"]) == (3, 0, 16, 32)
    assert amd_smi.bad_pages(records["bad-pages"][7])["retired"] == 1 and amd_smi.processes(records["process"][7]) == []
    assert amd_smi.partition(records["partition"][7]) == {"compute": "SPX", "memory": "NPS1"}
    assert amd_smi.firmware(records["firmware"][7])["RLC"] == "67"  # type: ignore[index]
    assert len(amd_smi.topology(said["topology"].records)["0000:e5:00.0"]) == 7
    assert amd_smi.xgmi(said["xgmi"].records)["0000:e5:00.0"].states == ("U",) * 7
    assert amd_smi.version(said["version"].records)["library"] == f"{smi}.1.0"


def test_an_absent_value_says_why() -> None:
    why = [amd_smi.number(cell, "power") for cell in (None, "N/A", 65535)]
    assert [of.why for of in why if isinstance(of, Absent)] == [
        "amd-smi prints no power", "amd-smi prints N/A as power", "power reads 65535, which no device has",
    ]  # fmt: skip
