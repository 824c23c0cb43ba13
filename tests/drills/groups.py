# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Output of groups that train, and tables of HCCL, each changed in one thing: read by the probes and judged as in a run. Nothing is
launched."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp, hccl_group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, single_checks, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import records, trained
from harness import report_samples as samples

Record = dict[str, t.Any]
FINE = {"PASS", "SKIPPED"}


def expected(stage: str, value: float, **match: t.Any) -> expectations.Expectations:
    of = {"stage": stage, "check": "all_reduce", **match}
    return expectations.Expectations([expectations.Expectation("drill", of, "busbw", value, "GB/s", "the drill", "2026-11", "measured")])


def words(folder: pathlib.Path, stage: str, seen: list[Record], known: expectations.Expectations) -> set[str]:
    """The verdicts of what the head of a group says."""
    items = [
        {"stage": stage, "target": "gpu-01", **{key: one[key] for key in ("check", "variant", "subject")}}
        for one in seen
        if one["check"] != "localise"
    ]
    run = Run(folder, samples.RUN)
    run.dir.mkdir(parents=True, exist_ok=True)
    completer = Completer(run, stage, "gpu-01", "ssh", {(i["check"], i["variant"], i["subject"]["id"]): i for i in items})
    plan = samples.plan(["gpu-01"], [stage], items=items)
    made = [completer.complete(one) for one in seen]
    return {v["verdict"] for v in verdict.judge(plan, made, lambda *_who: known, stages=[registry.shipped()[stage]]).verdicts}


# Training -------------------------------------------------------------------------------------------------------------

DDP_HEALTHY: list[tuple[str, dict[str, t.Any]]] = [
    ("two nodes with two GPUs each", {}),
    (
        "gloo, which has no bfloat16",
        {"change": trained.one_of("checked", 1, elements=0, unsupported="Invalid scalar type"), "given": {"backend": "gloo"}},
    ),
    ("a rank a little slower than the others", {"change": trained.one_of("pace", 2, compute_ms=31.0)}),
    ("one rank a little quicker than the others", {"change": trained.one_of("pace", 0, compute_ms=28.5)}),
]
DDP_FAULTS: list[tuple[str, dict[str, t.Any]]] = [
    ("a rank on a node that nobody asked for", {"change": trained.on_another_node}),
    ("two groups of two in place of one of four", {"change": trained.of_another_world}),
    ("a rank that stands twice", {"change": trained.twice}),
    ("two ranks on one GPU", {"change": trained.on_one_gpu}),
    ("a rank that is killed when all was measured", {"change": trained.killed_later, "rc": 1}),
    ("a bad exit status behind good words", {"rc": 1}),
    ("verdict from a cut output", {"change": trained.one_of("end", 3)}),
    ("no output, and exit status 0", {"change": lambda _one: []}),
    ("one wrong value of millions", {"change": trained.one_of("checked", 0, wrong=1, ranks=[2], example="element 7")}),
    ("an operation that was not compared", {"change": trained.one_of("checked", 3)}),
    ("one type compared twice, the other never", {"change": trained.one_of("checked", 3, type="int32")}),
    ("a round less than asked", {"change": trained.one_of("checked", 2, elements=4096 * trained.WORLD * 2)}),
    ("no value was compared: none is wrong", {"change": trained.one_of("checked", 2, elements=0)}),
    ("a broken device says so", {"change": trained.one_of("checked", 0, elements=0, unsupported="operation not supported")}),
    ("a missed threshold", {"change": trained.one_of("bandwidth", 1, time_us=(1 << 22) / 8e4, algbw=80.0, busbw=120.0)}),
    ("a size that is missing", {"change": trained.one_of("bandwidth", 1)}),
    ("bits taken for bytes", {"change": trained.one_of("bandwidth", 1, algbw=800.0, busbw=1200.0)}),
    ("no time at all", {"change": trained.one_of("bandwidth", 1, time_us=0)}),
    ("parameters that are not the same on all ranks", {"change": trained.one_of("training", 0, identical=False, odd=[3], differs_at=4)}),
    ("a loss that is not finite", {"change": trained.one_of("training", 0, finite=False, first=None, last=None)}),
    ("a loss that does not fall, and a limit that it meets", {"change": trained.one_of("training", 0, last=0.95, limit=1.0)}),
    ("a training of three steps", {"change": trained.one_of("training", 0, steps=3)}),
    ("a training that was not done", {"change": trained.one_of("training", 0)}),
    ("a straggler that says it is none", {"change": trained.one_of("pace", 3, compute_ms=36.0, straggler=False)}),
    ("two slow ranks of one node", {"change": trained.slow_from(2)}),
    ("three slow ranks of four", {"change": trained.slow_from(1)}),
    ("a straggler, and the unplanned lines about it are lost", {"change": trained.slow_from(3), "lost": True}),
    ("a training that gives other bits the second time", {"change": trained.one_of("training", 0, repeatable=False, other_again=[1])}),
    ("a rank whose pace nobody took", {"change": trained.one_of("pace", 3)}),
]


def trains(folder: pathlib.Path, given: dict[str, t.Any]) -> set[str]:
    """Return the verdicts of a group; with `lost` those without the findings that no plan has."""
    said = trained.told(**{name: value for name, value in given.items() if name != "lost"})
    head = t.cast(ddp.Trainer, said.head)
    checks = ddp.default_checks(head.params)
    seen = [head._observed_of(check, said, said.job.members, [0, 1], {}) for check in checks]
    findings = [] if given.get("lost") else said.findings(checks[0])
    return words(folder, "ddp", [*seen, *findings], expected("ddp", 150.0, size=1 << 22))


# HCCL -----------------------------------------------------------------------------------------------------------------

TABLE = (
    "the minbytes is 33554432, maxbytes is 67108864, iters is 20, warmup_iters is 5\n"
    "data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    "33554432          | 1315.10        | 25.51474             | success\n"
    "67108864          | 2630.20        | 25.51474             | success\n"
)
LONGER = TABLE.replace("33554432,", "16777216,").replace(
    "33554432  ", "16777216          | 657.55         | 25.51474             | success\n33554432  ", 1
)
LAUNCH = "+ mpirun -f hosts -n 4 ./bin/all_reduce_test -p 2 -b 32M -e 64M -f 2 -d fp32 -o sum -n 20 -w 5\n"
# As fast as TABLE by the printed bandwidth, with 1000 iterations.
SLOW = TABLE.replace("iters is 20", "iters is 1000", 1)
ENDS = "".join(f"gpufleet: rank {rank} on npu-0{rank // 2 + 1} ended with status 0.\n" for rank in range(4))
HCCL_HEALTHY: list[tuple[str, dict[str, t.Any]]] = [
    ("two nodes with two NPUs each", {}),
    ("a longer sweep", {"out": LONGER, "sizes": ("16M", "64M")}),
    ("GB/s of 2^30 bytes", {"out": TABLE.replace("25.51474", "23.76245")}),
    ("the command line in front of the table", {"out": LAUNCH + TABLE}),
    ("a launch that took as long as its rows say", {"duration_s": 12.5}),
]
HCCL_FAULTS: list[tuple[str, dict[str, t.Any]]] = [
    ("every rank alone, each with a fine table", {"out": TABLE * 4}),
    ("a whole table of half of the ranks", {"err": ENDS[: len(ENDS) // 2]}),
    ("a whole table, and no rank that says how it ended", {"err": ""}),
    ("all ranks on the first node", {"err": ENDS.replace("npu-02", "npu-01")}),
    ("a rank that was killed behind a whole table", {"err": f"{ENDS[:-3]}137.\n", "rc": 137}),
    ("wrong results", {"out": TABLE.replace("success\n", "failed\n", 1)}),
    ("wrong values that only a rank tells", {"out": TABLE + "local rank_id 1, check result failed, 8192 | 1.0 | 1.0 | failed\n"}),
    ("results that nobody checked", {"out": TABLE.replace("success", "NULL")}),
    ("verdict from a truncated log", {"out": TABLE[:-20]}),
    ("a size of the sweep is missing", {"out": "".join(TABLE.splitlines(True)[:3])}),
    ("a smaller sweep than asked for", {"sizes": ("32M", "1G")}),
    ("a missed threshold", {"out": TABLE.replace("2630.20        | 25.51474", "5260.40        | 12.75737")}),
    ("a bandwidth that does not belong to its time", {"out": TABLE.replace("| 25.51474", "| 55.51474", 1)}),
    ("a row of a faster run", {"out": LONGER.replace("2630.20        | 25.51474", "657.55         | 102.05898"), "sizes": ("16M", "64M")}),
    ("a row of a slower run", {"out": LONGER.replace("2630.20        | 25.51474", "6575.50        | 10.20590"), "sizes": ("16M", "64M")}),
    ("the output of a run with other iterations", {"out": TABLE.replace("iters is 20", "iters is 200", 1)}),
    ("the output of a run with another warm-up", {"out": TABLE.replace("warmup_iters is 5", "warmup_iters is 50")}),
    ("the output of a run of another type", {"out": LAUNCH.replace("fp32", "int8") + TABLE}),
    ("the output of a run of another number of ranks", {"out": LAUNCH.replace("-n 4", "-n 16") + TABLE}),
    ("the output of a run of another operation", {"out": LAUNCH.replace("all_reduce", "broadcast") + TABLE}),
    ("the output of a run with other sizes in its command line", {"out": LAUNCH.replace("-e 64M", "-e 1G") + TABLE}),
    ("rows that tell of more time than the launch took", {"duration_s": 0.001, "out": SLOW}),
    ("missing log counted as healthy", {"out": ""}),
    ("usage text with exit status 0", {"out": "USAGE: ./test \n"}),
    ("a fine table and a bad exit status", {"rc": 3}),
    ("a fine table behind the deadline", {"timed_out": True}),
]
PARAMS: Record = {
    "env": {}, "mpirun": "mpirun", "mpi_args": [], "token": "", "key": None, "group": "hccl", "ssh_args": [], "members": [], "factor": 2,
    "iterations": 20, "warmup": 5, "reduction": "sum", "extra_args": [], "binary_dir": "", "floors": [],
}  # fmt: skip


def exchanges(folder: pathlib.Path, given: dict[str, t.Any]) -> set[str]:
    given = {"out": TABLE, "err": ENDS, "rc": 0, "timed_out": False, **given}
    sizes = given.pop("sizes", ("32M", "64M"))
    head = hccl_group.HcclHead(PARAMS, Node(60), None)
    head.launcher.version = "Hydra 4.3.2"
    head.group.folder, head.group.ssh = "/nonexistent/folder", ["ssh"]
    head.group.members = [
        group.GroupMember(f"gpu-0{n}", f"10.0.0.{n}", hostname=f"npu-0{n}", local=n == 1, gpus=["a", "b"], gpu="Ascend 910B3")
        for n in (1, 2)
    ]
    slots, check = range(2), {"check": "all_reduce", "variant": "gpus=all type=fp32"}
    argv = ["mpirun", "-n", "4", *launching.watched(["all_reduce_test"])]
    job = launching.Job([launching.LaunchCommand(argv, {})], head.group.members, 4, 30, "")
    job.order = {"sizes": [hccl_group.nccl.size(word) for word in sizes], "type": "fp32"}
    job.duration_s = given.get("duration_s", 0.0)
    for name, value in given.items():
        setattr(job, name, value)
    context = head.context_of("all_reduce", {"type": "fp32"}, head.group.members, [*slots])
    seen = head._observed(check, head.read_job(job), context, {})
    return words(folder, "hccl", [seen], expected("hccl", 38.0, size=64 << 20))


# NCCL between nodes ----------------------------------------------------------------------------------------------------

# (what, GPU, GPUs of each of two nodes, NICs, Gb/s of each, GB/s at 16 GiB), judged by the shipped floors.
FABRIC_HEALTHY: list[tuple[str, str, int, int, float, float]] = [
    ("8 x H100 with 8 x 400G", "NVIDIA H100 80GB HBM3", 8, 8, 400, 384.0),
    ("one H100 with 8 x 400G beside it", "NVIDIA H100 80GB HBM3", 1, 8, 400, 47.0),
    ("four H100 with 8 x 400G beside them", "NVIDIA H100 80GB HBM3", 4, 8, 400, 190.0),
    ("8 x H200 with 8 x 400G and two of storage", "NVIDIA H200", 8, 10, 400, 380.0),
    ("8 x L40S whose slots give no more", "NVIDIA L40S", 8, 4, 200, 23.9),
    ("8 x A100 with 4 x 200G", "NVIDIA A100-SXM4-80GB", 8, 4, 200, 95.0),
    ("8 x A100 with 4 x 100G", "NVIDIA A100-SXM4-80GB", 8, 4, 100, 47.0),
    ("8 x B300 with 8 x 800G", "NVIDIA B300 SXM6 AC", 8, 8, 800, 720.0),
]
FABRIC_FAULTS: list[tuple[str, str, int, int, float, float]] = [
    ("half of the NICs of H100 unused", "NVIDIA H100 80GB HBM3", 8, 8, 400, 192.0),
    ("half of them unused behind NICs of storage", "NVIDIA H200", 8, 10, 400, 192.0),
    ("one H100 at half of its NIC", "NVIDIA H100 80GB HBM3", 1, 8, 400, 24.0),
    ("four H100 over three NICs", "NVIDIA H100 80GB HBM3", 4, 8, 400, 144.0),
    ("four H100 whose NICs may be shared", "NVIDIA H100 80GB HBM3", 4, 4, 400, 96.0),
    ("8 x L40S over TCP", "NVIDIA L40S", 8, 4, 200, 3.0),
    ("8 x L40S at half of a slot", "NVIDIA L40S", 8, 4, 200, 12.0),
    ("more than the slot of an L40S can give", "NVIDIA L40S", 8, 4, 200, 60.0),
    ("a T4 without GPUDirect at half of its NIC", "Tesla T4", 4, 1, 100, 6.0),
    ("an unknown GPU beside eight NICs", "NVIDIA A1 Imaginary", 8, 8, 400, 200.0),
    ("A100 that use two of their four NICs", "NVIDIA A100-SXM4-80GB", 8, 4, 200, 48.0),
    ("4 x 100G at 38 where the wire allows 48", "NVIDIA A100-SXM4-80GB", 8, 4, 100, 38.0),
    ("B300 at the rate of 400G", "NVIDIA B300 SXM6 AC", 8, 8, 800, 384.0),
    ("V100 below their NICs", "Tesla V100-SXM2-16GB", 8, 4, 100, 38.0),
    ("8 x H200 at half of 16 x 200G and a little more", "NVIDIA H200", 8, 16, 200, 200.0),
    ("H800 that use two of eight NICs", "NVIDIA H800", 8, 8, 400, 96.0),
]


# (what, stage, check, metric, unit, message size, value, context), judged by the shipped floors.
_IB: Record = {"op": "write", "nic_gbps": 400, "link_layer": "InfiniBand", "bidirectional": False}
_NODE: Record = {"op": "all_reduce", "nodes": 1, "nvls": False, "algorithm": "auto"}
_A800: Record = {**_NODE, "gpu": "NVIDIA A800-SXM4-80GB", "gpus": 8}
_V100: Record = {**_NODE, "gpu": "Tesla V100-SXM2-16GB", "gpus": 8}
_B300: Record = {**_NODE, "gpu": "NVIDIA B300 SXM6 AC", "gpus": 8, "nvls": True}
_L40S: Record = {**_NODE, "gpu": "NVIDIA L40S", "gpus": 8}
_PAIR: Record = {**_NODE, "gpu": "NVIDIA H100 PCIe", "gpus": 2}
_GEMM: Record = {"shape": "8192x8192x8192", "backend": "torch"}
_MI300X: Record = {"gpu": "AMD Instinct MI300X", "gpus": 8, "nvls": False, "algorithm": "auto", "op": "all_reduce", "type": "float"}
_PCIE4: Record = {"gpu": "NVIDIA A100-SXM4-80GB", "pcie_gen": 4, "pcie_width": 16}
NUMBERS_HEALTHY: list[tuple[t.Any, ...]] = [
    ("NDR in a leaf", "rdma", "write_lat", "latency", "us", 2, 1.7, {**_IB, "hops": 1}),
    ("NDR between pods", "rdma", "write_lat", "latency", "us", 2, 2.8, _IB),
    ("RoCE between leaves", "rdma", "write_lat", "latency", "us", 2, 4.0, {**_IB, "link_layer": "Ethernet"}),
    ("NDR at its rate", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 392.0, _IB),
    ("400G of RoCE", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 391.0, {**_IB, "link_layer": "Ethernet"}),
    ("NDR both ways", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 785.0, {**_IB, "bidirectional": True}),
    ("8 x MI355X", "nccl_node", "all_reduce", "busbw", "GB/s", 16 << 30, 361.0, {**_MI300X, "gpu": "AMD Instinct MI355X"}),
    ("FP8 of a B200", "gemm", "fp8", "tflops", "TFLOPS", None, 2900.0, {**_GEMM, "gpu": "NVIDIA B200", "type": "fp8"}),
    ("copies of an A100 both ways", "gpu_memory", "bidirectional", "bandwidth", "GB/s", None, 18.4, _PCIE4),
    ("800G at its rate", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 785.0, {**_IB, "nic_gbps": 800}),
    ("8 x A800 in a quick test", "nccl_node", "all_reduce", "busbw", "GB/s", 1 << 30, 157.0, _A800),
    ("8 x V100 of 16 GB", "nccl_node", "all_reduce", "busbw", "GB/s", 2 << 30, 125.0, _V100),
    ("8 x B300", "nccl_node", "all_reduce", "busbw", "GB/s", 16 << 30, 843.0, _B300),
    ("an H20", "gemm", "bf16", "tflops", "TFLOPS", None, 138.0, {**_GEMM, "gpu": "NVIDIA H20", "type": "bf16"}),
]  # fmt: skip
NUMBERS_FAULTS: list[tuple[t.Any, ...]] = [
    ("6 us between two nodes", "rdma", "write_lat", "latency", "us", 2, 6.0, {**_IB, "link_layer": None}),
    ("9 us over RoCE", "rdma", "write_lat", "latency", "us", 2, 9.0, {**_IB, "link_layer": "Ethernet"}),
    ("4 us over InfiniBand", "rdma", "write_lat", "latency", "us", 2, 4.0, _IB),
    ("3 us in a leaf of InfiniBand", "rdma", "write_lat", "latency", "us", 2, 3.0, {**_IB, "hops": 1}),
    ("a read of 9 us", "rdma", "read_lat", "latency", "us", 2, 9.0, {**_IB, "op": "read"}),
    ("NDR at 346 Gb/s", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 346.0, _IB),
    ("NDR both ways at 692 Gb/s", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 692.0, {**_IB, "bidirectional": True}),
    ("FP8 of a B200 at 2200", "gemm", "fp8", "tflops", "TFLOPS", None, 2200.0, {**_GEMM, "gpu": "NVIDIA B200", "type": "fp8"}),
    ("a GB300 at 1490", "gemm", "bf16", "tflops", "TFLOPS", None, 1490.0, {**_GEMM, "gpu": "NVIDIA GB300", "type": "bf16"}),
    ("8 x MI300X at 280 GB/s", "nccl_node", "all_reduce", "busbw", "GB/s", 16 << 30, 280.0, _MI300X),
    ("8 x MI355X at MI300X's 310", "nccl_node", "all_reduce", "busbw", "GB/s", 16 << 30, 310.0, {**_MI300X, "gpu": "AMD Instinct MI355X"}),
    ("copies of an A100 both ways at 13 GB/s", "gpu_memory", "bidirectional", "bandwidth", "GB/s", None, 13.0, _PCIE4),
    ("800G at 690 Gb/s", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 690.0, {**_IB, "nic_gbps": 800}),
    ("25G at 20 Gb/s", "rdma", "write_bw", "bandwidth", "Gb/s", 65536, 20.0, {**_IB, "nic_gbps": 25, "link_layer": "Ethernet"}),
    ("8 x A800 at 100 GB/s", "nccl_node", "all_reduce", "busbw", "GB/s", 1 << 30, 100.0, _A800),
    ("8 x V100 over PCIe", "nccl_node", "all_reduce", "busbw", "GB/s", 2 << 30, 12.0, _V100),
    ("8 x B300 at B200's ring", "nccl_node", "all_reduce", "busbw", "GB/s", 16 << 30, 682.0, _B300),
    ("8 x L40S without peer-to-peer", "nccl_node", "all_reduce", "busbw", "GB/s", 1 << 30, 6.0, _L40S),
    ("H100 PCIe without their bridge", "nccl_node", "all_reduce", "busbw", "GB/s", 1 << 30, 40.0, _PAIR),
    ("an H20 at 110", "gemm", "bf16", "tflops", "TFLOPS", None, 110.0, {**_GEMM, "gpu": "NVIDIA H20", "type": "bf16"}),
    ("an H100 PCIe at 300", "gemm", "bf16", "tflops", "TFLOPS", None, 300.0, {**_GEMM, "gpu": "NVIDIA H100 PCIe", "type": "bf16"}),
    ("a B200 at 700 in FP16", "gemm", "fp16", "tflops", "TFLOPS", None, 700.0, {**_GEMM, "gpu": "NVIDIA B200", "type": "fp16"}),
]  # fmt: skip


def reaches(
    _folder: pathlib.Path, stage: str, check: str, metric: str, unit: str, size: int | None, value: float, context: Record
) -> set[str]:
    """The verdict of one number by itself."""
    series = [] if size is None else [{"size": size, metric: value}]
    record = records.measurement(
        {"stage": stage, "check": check, "metrics": {metric: {"value": value, "unit": unit}}, "context": context, "series": series}
    )
    return {single_checks.measured(Key(stage, check, "", "gpu-01"), record, expectations.shipped())[0].verdict}


def fills(folder: pathlib.Path, gpu: str, gpus: int, nics: int, gbps: float, value: float) -> set[str]:
    context = {
        "op": "all_reduce", "gpu": gpu, "gpus": gpus, "nodes": 2, "nics": nics, "nic_gbps": gbps, "link_layer": "InfiniBand",
        "mnnvl": False, "nvls": False, "algorithm": "auto", "series_units": {"busbw": "GB/s"},
    }  # fmt: skip
    seen = observation.measured(
        "all_reduce",
        variant="gpus=all type=float",
        subject={"kind": "group", "id": "fabric", "members": ["gpu-01", "gpu-02"]},
        simulated=True,
        metrics={"busbw": {"value": value, "unit": "GB/s"}},
        series=[{"size": 16 << 30, "busbw": value}],
        context=context,
    )
    return words(folder, "nccl_fabric", [seen], expectations.shipped())


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the healthy groups that are refused."""
    accepts, rejects = [], []
    fabric = [[(one[0], one[1:]) for one in several] for several in (FABRIC_HEALTHY, FABRIC_FAULTS)]
    numbers = [[(one[0], one[1:]) for one in several] for several in (NUMBERS_HEALTHY, NUMBERS_FAULTS)]
    parts: tuple[t.Any, ...] = (
        ("ddp", trains, DDP_HEALTHY, DDP_FAULTS),
        ("hccl", exchanges, HCCL_HEALTHY, HCCL_FAULTS),
        ("numbers", lambda place, given: reaches(place, *given), *numbers),
        ("nccl_fabric", lambda place, given: fills(place, *given), *fabric),
    )
    for stage, judged, healthy, faults in parts:
        for number, (what, given) in enumerate((*healthy, *faults)):
            found = judged(folder / f"{stage}-{number}", given)
            if number < len(healthy) and not found <= FINE:
                rejects.append(f"{stage}: {what}: {', '.join(sorted(found))}")
            elif number >= len(healthy) and not found & {"FAIL", "UNKNOWN"}:
                accepts.append(f"{stage}: {what}: {', '.join(sorted(found))}")
    return sum(len(faults) for *_others, faults in parts), accepts, rejects
