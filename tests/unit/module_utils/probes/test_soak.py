# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of soak over a simulated node with its own clock, and over output that no healthy workload prints."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import nodes, pairs

FOUND = t.List[t.Dict[str, t.Any]]


def ask(
    folder: pathlib.Path, faults: str = "", hours: float = 72.0, python: str = "", gpus: int = 8, memos: t.Any = None, **options: t.Any
) -> FOUND:
    """A soak in legs of 12 hours with a sample each half hour."""
    nodes.planted(folder, 1, faults=faults, gpus=gpus)
    params: dict[str, t.Any] = {
        "python": python or str(folder / "bin/python3"), "env": {}, "gpu_count": gpus, "mig": "refused", "hours": hours,
        "leg_minutes": 720, "sample_seconds": 1800, "mib": 256, "memory_percent": 80, "seed": 1, "jitter_percent": 3,
        "temperature_spread": 8, "temperature_slots": 16, "temperature_fleet": 10, "throttled_percent": 0, "power_percent": 90,
        "errors": 0, "reboots": 0, "loopback": False, "loopback_devices": [], "loopback_binary_dir": "", "loopback_tcp_port": 22515,
        **options,
    }  # fmt: skip
    node = Node(600, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})
    node.checkpoints = memos
    return list(soak.probe({**params, "checks": soak.default_checks(params)}, node))


def of(found: FOUND, check: str, part: bool = False) -> FOUND:
    return [one for one in found if one.get("check") == check and bool(one["part"]) == part]


def saying(folder: pathlib.Path, *records: t.Any, rc: int = 0) -> str:
    path = folder / "says"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("#!/bin/sh\ncat >/dev/null\ncat <<'EOF'\n" + "\n".join(lines) + f"\nEOF\nexit {rc}\n")
    path.chmod(0o755)
    return str(path)


READY = {"kind": "ready", "driver": "13.0", "gpus": []}
END = {"kind": "end"}
RESULT = {"kind": "result", "device": 0, "laps": 9, "wrong": 0, "loaded_s": 0.0, "fingerprint": "0x1"}


def sample(**values: t.Any) -> dict[str, t.Any]:
    return {"kind": "sample", "device": 0, "after_s": 0, "took_s": 1, "tflops": 600.0, "sensors": {}, **values}


def test_three_days_of_a_healthy_node_have_every_number_in_little_room(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path)
    assert {one["outcome"] for one in found} == {"measured"}, [one["reason"] for one in found if one["reason"]]
    assert len(found) == 4 * 9
    (load,) = of(found, "load")
    assert load["context"]["loaded_h"] == 72 and load["context"]["legs"] == 6 and load["context"]["gaps"] == []
    assert load["metrics"]["tflops"]["value"] == min(one["metrics"]["tflops"]["value"] for one in of(found, "load", part=True))
    assert all(of(found, check)[0]["evidence"]["unreadable"] == ["xid"] for check in ("load", "steadiness", "cooling", "power"))
    assert of(found, "steadiness")[0]["metrics"]["jitter"]["value"] < 1
    assert 3 < of(found, "cooling")[0]["metrics"]["spread"]["value"] < 6
    assert of(found, "power")[0]["metrics"]["share"]["value"] > 99 and of(found, "power")[0]["metrics"]["throttled"]["value"] == 0
    curves = load["context"]["curves"][7]
    assert curves["gpu"] == 7
    assert len(curves["tflops"]) == soak.POINTS and curves["step_s"] == 1800
    assert len(json.dumps(found)) < 150_000


@pytest.mark.parametrize(
    ("fault", "check", "code", "words"),
    [
        ("soak_lap=40", "load", "wrong_results", "GPU 7: 1 results differ from those of the other laps; the first: compute in lap 1234"),
        ("soak_no_rates", "steadiness", "no_sample", "GPU 7: no rates of its products"),
        ("soak_no_sensors", "cooling", "no_sample", "GPU 7: its temperature cannot be read"),
        ("soak_words", "power", "no_sample", "GPU 7: it does not tell its power, power_limit, sm_clock, sm_clock_max"),
    ],
)
def test_what_is_wrong_or_missing_on_one_gpu_has_its_name(tmp_path: pathlib.Path, fault: str, check: str, code: str, words: str) -> None:
    bad = [one for one in of(ask(tmp_path, fault), check, part=True) if one["outcome"] != "measured"]
    assert [one["reason_code"] for one in bad] == [code] and bad[0]["reason"].startswith(words)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("soak_crash", "tool_failed", "after 0.00 h under load: the workload ended with status 139: Segmentation fault"),
        ("soak_no_cuda", "cuda_failed", "after 0.00 h under load: cuInit failed with status 802"),
        ("soak_cut", "incomplete_output", "after 12.00 h under load: the workload's output is cut"),
        ("soak_missing", "bad_output", "after 0.00 h under load: the workload printed no result of GPU 7"),
        ("soak_ecc=30", "ecc", "after 24.00 h under load: GPU 7: cuEventSynchronize failed with status 214"),
    ],
)
def test_a_leg_that_ends_early_ends_the_soak(tmp_path: pathlib.Path, fault: str, code: str, words: str) -> None:
    (load,) = of(ask(tmp_path, fault), "load")
    assert load["outcome"] == "error" and load["reason_code"] == code and load["reason"].startswith(words), load["reason"]


def test_a_soak_goes_on_behind_its_last_leg_and_tells_the_gap(tmp_path: pathlib.Path) -> None:
    whole = ask(tmp_path, hours=24, memos=[])
    memos = [{"leg": one["memo"]["leg"]} for one in whole if "memo" in one]
    assert len(memos) == 2
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("another\n")
    memos[0]["leg"]["began"] -= 3600
    found = ask(tmp_path, hours=48, memos=memos)
    (load,) = of(found, "load")
    assert load["context"]["legs"] == 4 and load["context"]["loaded_h"] == 48
    assert load["context"]["gaps"] == [
        {"at_h": 12.0, "seconds": 3600, "rebooted": False}, {"at_h": 25.0, "seconds": 0, "rebooted": True},
    ]  # fmt: skip
    assert len([one for one in found if "memo" in one]) == 2


def test_a_clock_that_is_set_back_between_two_legs(tmp_path: pathlib.Path) -> None:
    memos = [{"leg": one["memo"]["leg"]} for one in ask(tmp_path, hours=24, memos=[]) if "memo" in one]
    memos[0]["leg"]["began"] += 100 * 3600
    found = ask(tmp_path, hours=24, memos=memos)
    assert {one["outcome"] for one in found} == {"measured"} and of(found, "load")[0]["context"]["gaps"] == []
    assert {one["duration_s"] for one in found} == {24 * 3600}
    assert len(of(found, "load")[0]["context"]["curves"][7]["tflops"]) == 48


def test_legs_of_other_gpus_do_not_count(tmp_path: pathlib.Path) -> None:
    memos = [{"leg": one["memo"]["leg"]} for one in ask(tmp_path, hours=12, memos=[]) if "memo" in one]
    memos[0]["leg"]["uuids"] = ["GPU-other"]
    assert of(ask(tmp_path, hours=12, memos=memos), "load")[0]["context"]["legs"] == 1


@pytest.mark.parametrize("value", ["NaN", "-1", '"600"', "null", "1e400", "true"])
def test_a_rate_that_is_no_number_is_no_sample(tmp_path: pathlib.Path, value: str) -> None:
    line = json.dumps(sample()).replace("600.0", value)
    python = saying(tmp_path, READY, line, {**RESULT, "loaded_s": 0.001}, END)
    found = ask(tmp_path, python=python, gpus=1, hours=1e-6)
    assert [one["reason_code"] for one in of(found, "load", part=True)] == ["no_sample"]


def test_more_time_under_load_than_passed_is_no_measurement(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, python=saying(tmp_path, READY, sample(), {**RESULT, "loaded_s": 43200}, END), gpus=1, hours=12)
    assert of(found, "load")[0]["reason_code"] == "bad_output" and "43200 s of load in" in of(found, "load")[0]["reason"]


@pytest.mark.parametrize("values", [{"laps": 0}, {"laps": None}, {"wrong": None}, {"wrong": -1}, {"wrong": "0"}, {"fingerprint": None}])
def test_a_result_that_compares_nothing_is_no_measurement(tmp_path: pathlib.Path, values: dict[str, t.Any]) -> None:
    python = saying(tmp_path, READY, sample(took_s=0.001), {**RESULT, "loaded_s": 0.001, **values}, END)
    (load,) = of(ask(tmp_path, python=python, gpus=1, hours=1e-6), "load")
    assert load["reason_code"] == "bad_output", load["reason"]


def test_samples_of_a_part_of_the_time_do_not_stand_for_the_rest(tmp_path: pathlib.Path) -> None:
    """Of 24 hours the samples of one GPU end after 12, and another one has temperatures in the first leg alone."""
    memos = [{"leg": one["memo"]["leg"]} for one in ask(tmp_path, hours=24, memos=[]) if "memo" in one]
    memos[1]["leg"]["samples"]["3"] = []
    for record in memos[1]["leg"]["samples"]["5"]:
        del record["sensors"]["temperature"]
    found = ask(tmp_path, hours=24, memos=memos)
    for check in ("load", "steadiness", "cooling", "power"):
        bad = [one["reason"] for one in of(found, check, part=True) if one["reason_code"] == "no_sample"]
        assert bad[0] == "GPU 3: its samples cover 50 % of the time under load, 90 % are needed"
        assert len(bad) == (2 if check == "cooling" else 1) and of(found, check)[0]["metrics"] == {}


def test_a_port_that_is_gone_behind_an_interruption_is_no_measurement(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, ["127.1.78.1", "127.2.78.1"])
    pairs.conf(tmp_path, "pace 0.00001")
    options = {"loopback": True, "loopback_binary_dir": str(pairs.tools_of(tmp_path)), "loopback_tcp_port": 22615}
    memos = [{"leg": one["memo"]["leg"]} for one in ask(tmp_path, hours=24, memos=[], **options) if "memo" in one]
    memos[1]["leg"]["ports"] = memos[1]["leg"]["ports"][:1]
    ports = {one["part"]: one["reason"] for one in of(ask(tmp_path, hours=24, memos=memos, **options), "loopback", part=True)}
    assert ports == {"nic/mlx5_0/1": None, "nic/mlx5_1/1": "nic/mlx5_1/1: it was loaded in 1 of 2 legs"}


def test_ports_are_loaded_in_each_leg_beside_the_gpus(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, ["127.1.78.1", "127.2.78.1"])
    pairs.conf(tmp_path, "pace 0.00001")
    found = ask(tmp_path, hours=24, loopback=True, loopback_binary_dir=str(pairs.tools_of(tmp_path)))
    told = [(one["part"], one["outcome"]) for one in found if one["check"] == "loopback"]
    assert told == [
        ("", "measured"), ("nic/mlx5_0/1", "measured"), ("nic/mlx5_1/1", "measured"),
    ]  # fmt: skip
    assert of(found, "loopback")[0]["metrics"]["bandwidth"]["value"] > 300


def test_a_node_without_ports_skips_their_check(tmp_path: pathlib.Path) -> None:
    assert of(ask(tmp_path, hours=12, loopback=True), "loopback")[0]["reason_code"] == "no_rdma_expected"


def test_what_two_real_gpus_gave_is_read() -> None:
    result = process.CommandResult(["python3"])
    result.out = (pathlib.Path(__file__).resolve().parents[3] / "fixtures/soak/h100-x2.jsonl").read_text()
    result.rc, result.duration_s = 0, 41.0
    output = soak.LegOutput(result, [{"index": 0}, {"index": 1}])
    assert output.problem(35) is None and output.loaded_s == 35.751 and output.wrong() == {}
    assert len(output.samples()["0"]) == 7 and output.samples()["1"][0]["rates"]["peer"] == 381.38
    assert {one["fingerprint"] for one in output.results().values()} == {"0x6dea6e4598a20043"}


def test_errors_of_the_machines_memory_are_told_once_with_their_growth(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sys/devices/system/edac/mc/mc0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/edac/mc/mc0/ce_count").write_text("0\n")
    (tmp_path / "root").symlink_to(tmp_path)
    (load,) = of(ask(tmp_path, "soak_dimm"), "load")
    (change,) = load["evidence"]["changes"]
    assert (change["code"], change["before"], change["after"], change["grown"], change["legs"]) == ("host_memory_corrected", 0, 18, 18, 6)
    assert change["text"].endswith("(first in hour 0.0; in 6 of 6 legs)")
