# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The window of a test, with a real sampler and a kernel log that is a file."""

from __future__ import annotations

import pathlib
import re
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import evidence as evidence_module
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_smi import UUID, FakeSmi

FIRST = f"gpu/{UUID.format(0)}"


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").write_text("6,1,1,-;NVRM: Xid (PCI:0000:00:06): 79, pid=1, older than the test\n")
    return FakeSmi(tmp_path, fixtures / "h200-x4")


def watch(smi: FakeSmi, during: t.Callable[[], None] = lambda: None) -> dict[str, t.Any]:
    """The evidence of a test that lasts until the GPUs were asked at least once while it ran."""
    node = Node(60, root=str(smi.folder), tools={"nvidia_smi": smi.path})
    (smi.folder / "sampled").unlink(missing_ok=True)
    with Window(node, gpu.snapshot(node)) as window:
        end = time.monotonic() + 60
        while not (smi.folder / "sampled").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        during()
    return window.evidence()


def codes(evidence: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(c["code"], c["part"]) for c in evidence["changes"]]


def later(smi: FakeSmi, tag: str, value: str) -> None:
    """From the second question on the first GPU says `value`."""
    smi.write("next.xml", re.sub(rf"<{tag}>[^<]*</{tag}>", f"<{tag}>{value}</{tag}>", smi.read("q.xml"), count=1))


def test_a_test_without_errors_has_no_changes_and_a_whole_window(smi: FakeSmi) -> None:
    evidence = watch(smi)
    assert evidence["changes"] == [] and evidence["unreadable"] == []
    assert set(evidence["window"]) == {UUID.format(i) for i in range(4)}
    first = evidence["window"][UUID.format(0)]
    assert first["samples"] >= 1 and first["throttle"] == ["sw_power_cap"]
    assert first["sm_clock"] == {"unit": "MHz", "min": 1980, "max": 1980, "mean": 1980}
    assert first["power"]["mean"] == 690.5 and first["temperature"]["unit"] == "C"


def test_it_costs_one_question_before_and_one_after(smi: FakeSmi) -> None:
    watch(smi)
    calls = smi.calls()
    assert [calls.count(words) for words in ("-q -x", "nvlink -e", "nvlink -s")] == [2, 2, 2] and len(calls) == 7


def test_the_sampler_is_gone_afterwards(smi: FakeSmi) -> None:
    watch(smi)
    assert process.start_time(int(smi.read("sampler"))) is None


def test_the_sampler_is_gone_after_a_failure_too(smi: FakeSmi) -> None:
    def fail() -> None:
        raise RuntimeError("the test broke")

    with pytest.raises(RuntimeError, match="the test broke"):
        watch(smi, fail)
    assert process.start_time(int(smi.read("sampler"))) is None


def test_minimum_maximum_and_mean(smi: FakeSmi) -> None:
    smi.write("samples", smi.sample(0, clock=1000, power="[N/A]") + smi.sample(0, clock=2000, power=100))
    first = watch(smi)["window"][UUID.format(0)]
    assert (first["sm_clock"]["min"], first["sm_clock"]["max"], first["sm_clock"]["mean"]) == (1000, 2000, 1500)
    assert first["power"]["mean"] == 100


@pytest.mark.parametrize(
    ("tag", "value", "code"),
    [
        ("dram_uncorrectable", "2", "ecc"),
        ("dram_correctable", "5", "ecc_corrected"),
        ("replay_counter", "17", "pcie_replay"),
        ("remapped_row_unc", "1", "remap"),
        ("clocks_event_reasons_counters_hw_therm_slowdown", "2500000 us", "throttle_hw"),
        ("clocks_event_reasons_counters_sw_therm_slowdown", "2500000 us", "throttle_thermal"),
    ],
)
def test_a_counter_that_rises(smi: FakeSmi, tag: str, value: str, code: str) -> None:
    later(smi, tag, value)
    (change,) = watch(smi)["changes"]
    assert (change["code"], change["part"], change["before"]) == (code, FIRST, 0)
    assert change["after"] == int(value.partition(" ")[0]) and change["text"].startswith("GPU 0")


def test_errors_of_the_hosts_memory(smi: FakeSmi) -> None:
    module = smi.folder / "sys/devices/system/edac/mc/mc0/dimm0"
    module.mkdir(parents=True)
    for name, text in (("dimm_label", "P0-DIMMA1"), ("dimm_ce_count", "3"), ("dimm_ue_count", "0")):
        (module / name).write_text(text)
    assert watch(smi)["changes"] == []
    evidence = watch(smi, lambda: [(module / f"dimm_{kind}_count").write_text("4") for kind in ("ce", "ue")] and None)
    assert [(one["code"], one["before"], one["after"]) for one in evidence["changes"]] == [
        ("host_memory", 0, 4), ("host_memory_corrected", 3, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 7: be00000000010091", "machine_check"),
        ("pcieport 0000:15:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "pcie_error"),
        ("mlx5_core 0000:31:00.0: poll_health:840: device's health compromised - reached miss count", "nic_fault"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "disk"),
        ("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010092", "hardware_corrected"),
    ],
)
def test_errors_of_the_machine_that_the_kernel_logs(smi: FakeSmi, line: str, code: str) -> None:
    def log() -> None:
        with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
            kmsg.writelines(f"2,{number},9,-;{line}\n" for number in (7, 8))

    (change,) = watch(smi, log)["changes"]
    assert (change["code"], change["part"], change["before"], change["after"]) == (code, "", 0, 2) and line[:30] in change["text"]
    assert watch(smi)["changes"] == [], "a line from before the test"


def test_an_error_of_the_machine_that_is_over_before_the_test_ends_is_still_seen(smi: FakeSmi) -> None:
    fault, end = (f"pcieport 0000:15:00.0: pciehp: Slot(5): {words}" for words in ("Link Down", "Link Up"))

    def log(*lines: str) -> t.Callable[[], None]:
        def write() -> None:
            with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
                kmsg.writelines(f"2,{number},9,-;{line}\n" for number, line in enumerate(lines, 20))

        return write

    assert codes(watch(smi, log(fault))) == [("pcie_error", "")]
    (change,) = watch(smi, log(fault, end))["changes"]
    assert change["code"] in reasons.MILD and "is over" in change["text"]
    assert codes(watch(smi, log(fault, end, fault))) == [("pcie_error", "")]
    assert codes(watch(smi, log(end))) == []


def test_power_capping_and_moments_of_throttling_are_no_change(smi: FakeSmi) -> None:
    later(smi, "clocks_event_reasons_counters_sw_power_cap", "2500000 us")
    assert watch(smi)["changes"] == []
    later(smi, "clocks_event_reasons_counters_hw_therm_slowdown", "900 us")
    assert watch(smi)["changes"] == []


def test_a_counter_that_was_high_before_is_no_change(smi: FakeSmi) -> None:
    later(smi, "replay_counter", "17")
    watch(smi)
    assert watch(smi)["changes"] == []


def test_a_counter_that_cannot_be_read_is_named(smi: FakeSmi) -> None:
    smi.write("q.xml", re.sub(r"<replay_counter>0<", "<replay_counter>N/A<", smi.read("q.xml")))
    assert watch(smi)["unreadable"] == ["pcie_replay"]


@pytest.mark.parametrize(
    ("reasons", "code"), [("0x48", "throttle_hw"), ("0x80", "throttle_hw"), ("0x20", "throttle_thermal")]
)
def test_throttling_that_was_sampled(smi: FakeSmi, reasons: str, code: str) -> None:
    smi.write("samples", smi.sample(0) + smi.sample(2, reasons=reasons))
    assert codes(watch(smi)) == [(code, f"gpu/{UUID.format(2)}")]


def test_an_nvlink_error_counter_that_rises_is_a_change(smi: FakeSmi) -> None:
    smi.write("next-e.txt", smi.read("nvlink-e.txt").replace("Link 3: CRC Errors: 0", "Link 3: CRC Errors: 4", 1))
    (change,) = watch(smi)["changes"]
    assert (change["code"], change["part"], change["before"], change["after"]) == ("nvlink_error", FIRST, 0, 4)


def test_nvlink_errors_that_cannot_be_read(smi: FakeSmi) -> None:
    smi.write("next-e.txt", "Unable to retrieve NVLink information\n")
    assert watch(smi)["unreadable"] == ["nvlink_error"]
    smi.path = str(smi.folder / "broken")
    (smi.folder / "broken").write_text(
        (smi.folder / "nvidia-smi").read_text().replace('"nvlink -e")', '"nvlink -e") exit 3;')
    )
    (smi.folder / "broken").chmod(0o755)
    assert watch(smi)["unreadable"] == ["nvlink_error"]


def test_xids_that_are_logged_during_a_test_are_changes(smi: FakeSmi) -> None:
    def log() -> None:
        with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
            kmsg.write("6,2,2,-;usb 1-1: new device\n4,3,3,-;NVRM: Xid (PCI:0000:00:07): 48, pid=77, Double Bit ECC\n")
            kmsg.write("4,4,4,-;nvidia-nvswitch0: SXid (PCI:0000:5e:00.0): 20034, Fatal, Link 30\n")

    evidence = watch(smi, log)
    assert codes(evidence) == [("ecc", f"gpu/{UUID.format(1)}"), ("nvlink", "")]
    assert "48" in evidence["changes"][0]["text"] and "20034" in evidence["changes"][1]["text"]


def test_errors_that_the_kernel_logged_before_the_test(smi: FakeSmi) -> None:
    with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
        kmsg.write("4,2,2,-;NVRM: Xid (PCI:0000:00:06): 79, pid=1, again\n4,3,3,-;NVRM: Xid (PCI:0000:00:07): 31, pid=9, x\n")
        kmsg.write("4,4,4,-;nvidia-nvswitch0: SXid (PCI:0000:5e:00.0): 20034, Fatal, Link 30\n")
    evidence = watch(smi)
    second = f"gpu/{UUID.format(1)}"
    assert [(one["code"], one["part"]) for one in evidence["health"]] == [("gpu_lost", FIRST), ("xid", second), ("nvlink", "")]
    assert evidence["health"][0]["text"].startswith("GPU 0: Xid 79, ") and evidence["health"][0]["text"].endswith("again)")
    (smi.folder / "dev" / "kmsg").unlink()
    assert "health" not in watch(smi)


def test_a_kernel_log_that_may_not_be_read(smi: FakeSmi) -> None:
    (smi.folder / "dev" / "kmsg").unlink()
    assert watch(smi)["unreadable"] == ["xid"]


def test_a_sampler_without_samples_is_named_as_unreadable(smi: FakeSmi) -> None:
    smi.write("samples", 'Field "clocks_throttle_reasons.active" is not a valid field to query.\n')
    evidence = watch(smi)
    assert evidence["window"] == {} and evidence["unreadable"] == ["samples"]


def test_a_sampler_that_dies_after_one_sample(smi: FakeSmi) -> None:
    smi.write("dies", "")
    evidence = watch(smi, lambda: time.sleep(0.3))
    assert codes(evidence) == [("samples", "")] and evidence["unreadable"] == ["samples"]
    assert "ended by itself with status 3, after 1 samples in a test of" in evidence["changes"][0]["text"]


def test_fewer_samples_than_a_long_test_demands(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_module, "SAMPLED_S", 0.3)
    assert watch(smi, lambda: time.sleep(0.4))["unreadable"] == []
    monkeypatch.setattr(evidence_module, "SAMPLED_SHARE", 100)
    assert watch(smi, lambda: time.sleep(0.4))["unreadable"] == ["samples"]


def test_a_long_test_without_a_sample_under_load(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi.write("samples", "".join(smi.sample(i, busy=0) for i in range(4)))
    assert watch(smi)["unreadable"] == [], "a short test may be over before two samples under load"
    monkeypatch.setattr(evidence_module, "SAMPLED_S", 0.0)
    assert watch(smi)["unreadable"] == ["pcie_link"]


def test_a_gpu_that_is_lost_during_the_test(smi: FakeSmi) -> None:
    later(smi, "gpu_temp", "GPU is lost")
    evidence = watch(smi)
    assert [c["code"] for c in evidence["changes"]] == ["gpu_lost"] and "ecc" in evidence["unreadable"]


def test_a_program_that_is_gone_afterwards(smi: FakeSmi) -> None:
    evidence = watch(smi, (smi.folder / "nvidia-smi").unlink)
    assert [c["code"] for c in evidence["changes"]] == ["gpu_state"]
    assert set(evidence["unreadable"]) >= {"ecc", "nvlink_error", "pcie_replay"}


# Health after a test -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "value", "code"),
    [
        ("remapped_row_failure", "Yes", "ecc"),
        ("remapped_row_pending", "Yes", "ecc"),
        ("channel_repair_pending", "Yes", "ecc"),
        ("pending_retirement", "Yes", "ecc"),
        ("unrepairable_memory", "Yes", "ecc"),
        ("sram_threshold_exceeded", "Yes", "ecc"),
        ("remapped_row_corr", "11", "ecc"),
        ("remapped_row_corr", "1", "ecc_past"),
        ("gpu_recovery_action", "Reset", "gpu_reset"),
        ("current_link_width", "4x", "pcie_width"),
        ("bandwidth", "Degraded", "fabric"),
        ("summary", "Unhealthy", "fabric"),
        ("current_ecc", "Disabled", "ecc_off"),
        ("current_power_limit", "350.00 W", "power_limit"),
    ],
)
def test_what_a_health_check_finds_only_after_the_test(smi: FakeSmi, tag: str, value: str, code: str) -> None:
    (smi.folder / "dev" / "kmsg").write_text("6,0,0,-;Linux\n")
    later(smi, tag, value)
    evidence = watch(smi)
    assert codes(evidence) == [(code, FIRST)] and evidence["changes"][0]["text"].startswith("GPU 0: ")
    again = watch(smi)
    assert again["changes"] == [], "what was there before is no change"
    assert [(one["code"], one["part"]) for one in again["health"]] == [(code, FIRST)] and "health" not in evidence


@pytest.mark.parametrize(("tag", "value", "code"), [("state", "N/A", "fabric"), ("total", "120000 MiB", "gpu_state")])
def test_a_gpu_that_has_less_than_its_siblings_after_the_test(smi: FakeSmi, tag: str, value: str, code: str) -> None:
    (smi.folder / "dev" / "kmsg").write_text("6,0,0,-;Linux\n")
    later(smi, tag, value)
    assert codes(watch(smi)) == [(code, FIRST)]
    again = watch(smi)
    assert again["changes"] == [] and [(one["code"], one["part"]) for one in again["health"]] == [(code, FIRST)]


def test_a_memory_error_that_only_the_counter_of_a_life_shows(smi: FakeSmi) -> None:
    """As without persistence mode: the driver is unloaded after the test, and its own counter begins at 0 again."""
    head, tail = smi.read("q.xml").split("<aggregate>", 1)
    smi.write("next.xml", f"{head}<aggregate>{tail.replace('<dram_uncorrectable>0<', '<dram_uncorrectable>2<', 1)}")
    evidence = watch(smi)
    assert codes(evidence) == [("ecc", FIRST)] and "rose from 0 to 2" in evidence["changes"][0]["text"]
    assert watch(smi)["changes"] == [], "it was there before"


def test_more_rows_than_before_are_a_change_beside_a_counter_that_is_less_grave(smi: FakeSmi) -> None:
    text = smi.read("q.xml").replace("<dram_correctable>0<", "<dram_correctable>9<", 1)
    smi.write("next.xml", text.replace("<remapped_row_corr>0<", "<remapped_row_corr>11<", 1))
    assert {code for code, _part in codes(watch(smi))} == {"ecc_corrected", "ecc"}


def test_a_counter_that_can_be_read_no_more(smi: FakeSmi) -> None:
    smi.write("next.xml", smi.read("q.xml").replace("<replay_counter>0<", "<replay_counter>N/A<", 1))
    assert set(codes(watch(smi))) == {("gpu_state", FIRST)}


def test_links_that_can_be_read_no_more(smi: FakeSmi) -> None:
    evidence = watch(smi, lambda: smi.write("nvlink-s.txt", ""))
    assert codes(evidence) == [("unreadable_state", f"gpu/{UUID.format(i)}") for i in range(4)] and evidence["unreadable"] == ["nvlink"]
    evidence = watch(smi)
    assert evidence["changes"] == [] and {one["code"] for one in evidence["health"]} == {"unreadable_state", "gpu_lost"}


def test_a_link_that_goes_down(smi: FakeSmi) -> None:
    down = smi.read("nvlink-s.txt").replace("Link 5: 26.562 GB/s", "Link 5: <inactive>", 1)
    assert codes(watch(smi, lambda: smi.write("nvlink-s.txt", down))) == [("nvlink", FIRST)]
    assert watch(smi)["changes"] == []


# The kernel's log ----------------------------------------------------------------------------------------------------


def logged(smi: FakeSmi, *lines: str) -> list[tuple[str, str]]:
    def log() -> None:
        with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
            kmsg.writelines(f"4,9,9,-;NVRM: Xid (PCI:0000:00:06): {line}\n" for line in lines)

    return codes(watch(smi, log))


@pytest.mark.parametrize(
    ("number", "code"), [(48, "ecc"), (74, "nvlink"), (79, "gpu_lost"), (119, "gpu_fault"), (13, "xid"), (63, "ecc_past")]
)
def test_the_class_of_an_xid_is_its_code(smi: FakeSmi, number: int, code: str) -> None:
    assert logged(smi, f"{number}, pid=1, name=python3, x", f"{number}, pid=1, name=python3, again") == [(code, FIRST)]


def test_an_application_error_of_the_test_itself(smi: FakeSmi) -> None:
    def fail() -> None:
        child = process.spawn(["true"])
        child.wait()
        with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
            kmsg.write(f"4,9,9,-;NVRM: Xid (PCI:0000:00:06): 31, pid={child.pid}, name=all_reduce_perf, Ch 8\n")

    assert codes(watch(smi, fail)) == [("xid_own", FIRST)]
    assert logged(smi, "43, no process is named") == [("xid_own", FIRST)]


# Under load ----------------------------------------------------------------------------------------------------------


def under_load(smi: FakeSmi, *samples: str, xml: str = "") -> list[tuple[str, str]]:
    """What is told of a test whose sampler prints these lines over and over."""
    if xml:
        smi.write("q.xml", xml)
    smi.write("samples", "".join(samples))
    found = watch(smi, lambda: time.sleep(0.6))
    assert found["window"][UUID.format(0)]["samples"] >= 3
    return codes(found)


def bare(smi: FakeSmi) -> str:
    """As a machine without virtualisation says it."""
    return smi.read("q.xml").replace("<max_host_link_gen>N/A<", "<max_host_link_gen>5<")


def test_a_slow_link_under_load(smi: FakeSmi) -> None:
    text = bare(smi)
    assert under_load(smi, smi.sample(0, gen=4), xml=text) == [("pcie_speed", FIRST)]
    assert under_load(smi, smi.sample(0, gen=1)) == [("pcie_speed", FIRST)]
    assert under_load(smi, smi.sample(0, width=8)) == [("pcie_width", FIRST)]
    assert under_load(smi, smi.sample(0, gen=1, busy=0)) == [], "an idle link sleeps"
    assert under_load(smi, smi.sample(0, gen=1, reasons="0x1")) == []
    assert under_load(smi, smi.sample(0)) == []


def test_a_slow_link_in_a_virtual_machine(smi: FakeSmi) -> None:
    assert under_load(smi, smi.sample(0, gen=4)) == [("pcie_slot", FIRST)], "its slot may be no faster"
    assert under_load(smi, smi.sample(0, gen=3)) == [("pcie_speed", FIRST)]
    assert under_load(smi, smi.sample(0, gen=4), smi.sample(1)) == [("pcie_speed", FIRST)], "that of another GPU is faster"
    six = smi.read("q.xml").replace("<max_link_gen>5<", "<max_link_gen>6<")
    assert under_load(smi, smi.sample(0, gen=5), xml=six) == [], "no host has generation 6"


def test_a_link_whose_speed_nobody_tells(smi: FakeSmi) -> None:
    smi.write("samples", smi.sample(0, gen="[N/A]", width="[Not Supported]"))
    found = watch(smi, lambda: time.sleep(0.6))
    assert found["changes"] == [] and found["unreadable"] == ["pcie_link"]


def test_a_clock_that_somebody_has_locked(smi: FakeSmi) -> None:
    assert under_load(smi, smi.sample(0, clock=1200, reasons="0x0")) == [("clocks_locked", FIRST)]
    assert under_load(smi, smi.sample(0, clock=1200, reasons="0x2")) == [("clocks_locked", FIRST)]
    assert under_load(smi, smi.sample(0, clock=1200, reasons="0x4")) == [], "the power limit holds it"
    assert under_load(smi, smi.sample(0, clock=1830, reasons="0x0")) == []


def test_a_link_that_is_lost_during_the_test(smi: FakeSmi) -> None:
    """An NVLink 5 that could not be recovered is a defect, whatever the test gave; one that was trained anew is worth a look."""
    blackwell = smi.read("nvlink-e.txt").replace("Recovery Errors:", "Link recovery failed events:").replace("CRC Errors:", "Tx discards:")
    smi.write("nvlink-e.txt", blackwell)
    smi.write("next-e.txt", blackwell.replace("Link 3: Link recovery failed events: 0", "Link 3: Link recovery failed events: 1", 1))
    assert set(codes(watch(smi))) == {("nvlink_error", FIRST), ("nvlink", FIRST)}
    evidence = watch(smi)
    assert evidence["changes"] == [] and ("nvlink", FIRST) in [(one["code"], one["part"]) for one in evidence["health"]]


def test_counters_that_stand_high_are_known_before_the_test_and_no_change_of_it(smi: FakeSmi) -> None:
    text = smi.read("q.xml").replace("<replay_counter>0<", "<replay_counter>3000000<", 1)
    smi.write("q.xml", text.replace("<dram_correctable>0<", "<dram_correctable>20000000<", 1))
    smi.write("nvlink-e.txt", smi.read("nvlink-e.txt").replace("Link 3: CRC Errors: 0", "Link 3: CRC Errors: 4000000", 1))
    smi.write("next-e.txt", smi.read("nvlink-e.txt"))
    evidence = watch(smi)
    assert evidence["changes"] == []
    found = {one["code"] for one in evidence["health"] if one["part"] == FIRST}
    assert {"pcie_corrected", "ecc_corrected", "nvlink_error"} <= found
    smi.write("next.xml", smi.read("q.xml").replace("<replay_counter>3000000<", "<replay_counter>3000009<"))
    assert codes(watch(smi)) == [("pcie_replay", FIRST)], "once"


def lanes(smi: FakeSmi, *widths: str) -> str:
    """The XML with these widths of the links, and with the other GPUs left out."""
    head, *parts = re.split(r"(?=<gpu id=)", smi.read("q.xml"))
    gpus = [re.sub(r"(?<=<current_link_width>)\d+x", width, part) for part, width in zip(parts, widths)]
    end = "" if gpus[-1].rstrip().endswith("</nvidia_smi_log>") else "</nvidia_smi_log>\n"
    return head.replace("<attached_gpus>4<", f"<attached_gpus>{len(gpus)}<") + "".join(gpus) + end


def test_lanes_of_a_virtual_machine_under_load(smi: FakeSmi) -> None:
    """Its slots are hidden: the machines of whole instance families have 8 of 16 lanes."""
    eight = [smi.sample(n, width=8) for n in range(4)]
    original = smi.read("q.xml")
    assert under_load(smi, *eight, xml=lanes(smi, "8x", "8x", "8x", "8x")) == [], "all alike"
    smi.write("q.xml", original)
    assert under_load(smi, *eight[:1], xml=lanes(smi, "8x")) == [], "a lone one was known before the test"
    smi.write("q.xml", original)
    assert under_load(smi, *eight, xml=original) == [("pcie_width", f"gpu/{UUID.format(n)}") for n in range(4)], "16 before the load"
    four = [smi.sample(0, width=4), *eight[1:]]
    smi.write("q.xml", original)
    assert under_load(smi, *four, xml=lanes(smi, "8x", "8x", "8x", "8x")) == [("pcie_width", FIRST)], "and 4 under it"
    smi.write("q.xml", original)
    bare_machine = lanes(smi, "8x", "8x", "8x", "8x").replace(">Pass-Through<", ">Host VGPU<")
    smi.write("q.xml", bare_machine)
    assert {code for code, _part in under_load(smi, *eight, xml=bare_machine)} <= {"pcie_width"}


@pytest.mark.parametrize("form", ["[N/A]", "[Unknown Error]", "ERR!", "[Not Supported]"])
def test_samples_that_do_not_tell_whether_a_gpu_works_or_why_it_is_slow(smi: FakeSmi, form: str) -> None:
    """The third GPU may have worked on a slow link, and nobody would know."""
    smi.write("samples", smi.sample(0) + smi.sample(1) + smi.sample(2, busy=form, gen=1) + smi.sample(3))
    assert watch(smi, lambda: time.sleep(0.6))["unreadable"] == ["pcie_link"]
    smi.write("samples", smi.sample(0) + smi.sample(2, reasons=form))
    assert watch(smi, lambda: time.sleep(0.6))["unreadable"] == ["throttle"]


def test_processes_of_the_boot_are_older_than_a_test_whose_pids_began_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_module, "_last_pid", lambda: 900)
    pids = evidence_module._Pids(32000)
    assert [pids.may_be(pid) for pid in (1, 299, 300, 900, 901, 32001)] == [False, False, True, True, False, True]
