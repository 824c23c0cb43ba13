# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a window sees of a test, with a real sampler and a kernel log that is a file."""

from __future__ import annotations

import pathlib
import re
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from unit.module_utils.fake_smi import UUID, FakeSmi

FIRST = f"gpu/{UUID.format(0)}"


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").write_text("6,1,1,-;NVRM: Xid (PCI:0000:00:06): 79, pid=1, older than the test\n")
    return FakeSmi(tmp_path, fixtures / "h200-x4")


def watch(smi: FakeSmi, during: t.Callable[[], None] = lambda: None) -> dict[str, t.Any]:
    """The evidence of a test that lasts until the GPUs were asked at least once while it ran."""
    node = Node(60, root=str(smi.folder))
    (smi.folder / "sampled").unlink(missing_ok=True)
    with Window(node, gpu.snapshot(node, smi.path), smi.path) as window:
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


def test_a_quiet_test(smi: FakeSmi) -> None:
    evidence = watch(smi)
    assert evidence["changes"] == [] and evidence["unreadable"] == []
    assert set(evidence["window"]) == {UUID.format(i) for i in range(4)}
    first = evidence["window"][UUID.format(0)]
    assert first["samples"] >= 1 and first["throttle"] == ["sw_power_cap"]
    assert first["sm_clock"] == {"unit": "MHz", "min": 1980, "max": 1980, "mean": 1980}
    assert first["power"]["mean"] == 690.5 and first["temperature"]["unit"] == "C"


def test_it_costs_one_question_before_and_one_after(smi: FakeSmi) -> None:
    watch(smi)
    assert smi.calls().count("-q -x") == 2 and smi.calls().count("nvlink -e") == 2 and len(smi.calls()) == 5


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


def test_nvlink_errors(smi: FakeSmi) -> None:
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


def test_xid_lines_since_the_start(smi: FakeSmi) -> None:
    def log() -> None:
        with open(smi.folder / "dev" / "kmsg", "a") as kmsg:
            kmsg.write("6,2,2,-;usb 1-1: new device\n4,3,3,-;NVRM: Xid (PCI:0000:00:07): 48, pid=77, Double Bit ECC\n")
            kmsg.write("4,4,4,-;nvidia-nvswitch0: SXid (PCI:0000:5e:00.0): 20034, Fatal, Link 30\n")

    evidence = watch(smi, log)
    assert codes(evidence) == [("xid", f"gpu/{UUID.format(1)}"), ("xid", "")]
    assert "48" in evidence["changes"][0]["text"] and "20034" in evidence["changes"][1]["text"]


def test_a_kernel_log_that_may_not_be_read(smi: FakeSmi) -> None:
    (smi.folder / "dev" / "kmsg").unlink()
    assert watch(smi)["unreadable"] == ["xid"]


def test_no_samples(smi: FakeSmi) -> None:
    smi.write("samples", 'Field "clocks_throttle_reasons.active" is not a valid field to query.\n')
    evidence = watch(smi)
    assert evidence["window"] == {} and evidence["unreadable"] == ["samples"]


def test_a_gpu_that_is_lost_during_the_test(smi: FakeSmi) -> None:
    later(smi, "gpu_temp", "GPU is lost")
    evidence = watch(smi)
    assert [c["code"] for c in evidence["changes"]] == ["gpu_lost"] and "ecc" in evidence["unreadable"]


def test_a_program_that_is_gone_afterwards(smi: FakeSmi) -> None:
    evidence = watch(smi, (smi.folder / "nvidia-smi").unlink)
    assert [c["code"] for c in evidence["changes"]] == ["gpu_state"]
    assert set(evidence["unreadable"]) >= {"ecc", "nvlink_error", "pcie_replay"}
