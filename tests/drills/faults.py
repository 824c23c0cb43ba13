#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault drill: one simulated node per planted fault among healthy ones, through the whole acceptance.

Proves that no planted fault is accepted and no healthy node is rejected. The last line is JSON:
{"planted": n, "false_accepts": 0, "false_rejects": 0, "nodes": m}. Exit status 0 exactly when both are 0.

Faults of file systems and cables are planted at random places, by a seed that each line about them names.
`--seed N --part storage` plants the same again, and nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from drills import (  # noqa: E402
    cabling,
    controllers,
    fleets,
    gpus,
    groups,
    health,
    host,
    host_parts,
    kernel,
    loopback,
    made,
    past,
    peers,
    racks,
    second,
    soak,
    storage,
)  # fmt: skip
from rigs.simulated import nodes  # noqa: E402

HEALTHY = 12

# Node settings -> what the mistake would be called where somebody else makes it. `warn`: a WARN is enough, the numbers are
# within what may be accepted with open eyes.
FAULTS: list[tuple[str, str]] = [
    ("smi_mismatch", "driver and library differ, nothing can be read"),
    ("smi_hang", "nvidia-smi never answers"),
    ("smi_garbage", "nvidia-smi prints random bytes and ends with 0"),
    ("no_gpu", "no GPU = exit 0"),
    ("gpu_lost", "a GPU has fallen off the bus"),
    ("fewer_gpus=7", "one GPU is missing"),
    ("ecc", "uncorrectable memory errors"),
    ("remap_pending", "a row remap is pending"),
    ("remap_failure", "a row remap has failed"),
    ("pcie_width", "a PCIe link at half width"),
    ("mig", "MIG on one GPU skips the whole node"),
    ("busy", "somebody else's job runs on the GPUs"),
    ("replays warn", "PCIe replays while the test passes"),
    ("nccl_usage", "usage text, exit status 0, counted as passed"),
    ("nccl_hang", "exit 0 on timeout"),
    ("nccl_html", "unparsable with exit 0 counted as passed"),
    ("nccl_garbage", "megabytes of garbage with exit 0"),
    ("nccl_segfault", "the tool crashes"),
    ("nccl_failure", "NCCL failure"),
    ("nccl_reduced", "a smaller message than asked for"),
    ("nccl_slow=0.85", "a missed threshold only logged"),
    ("nccl_slow=0.93 warn", "a value in the warning band"),
    ("nccl_dip", "slow from 16 MiB to 512 MiB, and right on the plateau"),
    ("nccl_dip_third", "a third of the bandwidth from 16 MiB to 512 MiB, which one step of the sweep shows"),
    ("nccl_dip_late", "two milliseconds more for each message: right on the plateau, slow below"),
    ("nccl_dip_every_other", "slow at every other size"),
    ("nccl_dip_one warn", "slow at 4 GiB only"),
    ("nccl_dip_flat", "slow where identical nodes are not, without a step in its own sweep"),
    ("nccl_slow=8", "bits taken for bytes: 3824 GB/s"),
    ("nccl_slow=2", "both directions counted: more than NVLink and switch can give"),
    ("nccl_zero", "no bandwidth at all"),
    ("nccl_wrong", "wrong results"),
    ("nccl_missing_rank", "every rank on the launcher, reported as a success"),
    ("nccl_duplicate_rank", "a rank that stands twice"),
    ("nccl_not_mpi", "every rank alone, reported as a success"),
    ("nccl_wrong_op", "the output of another test"),
    ("nccl_missing_row", "a size of the sweep is missing"),
    ("nccl_nan", "not a number"),
    ("nccl_bad_factor", "a bus bandwidth that does not follow from the ranks"),
    ("nccl_negative", "a negative bandwidth"),
    ("nccl_cut", "verdict from a truncated log"),
    ("nccl_cell", "a row cut in its middle"),
    ("nccl_no_footer", "no last lines"),
    ("nccl_min_bw", "the tool missed its own limit"),
    ("nccl_exit", "a whole table and a bad exit status"),
    ("nccl_unchecked", "every other row was not checked"),
    ("nccl_other_time", "bandwidths that do not belong to their times"),
    ("nccl_other_average", "rows of one run, last lines of another"),
    ("nccl_twice", "one table pasted twice"),
    ("nccl_silent", "missing log counted as healthy"),
    ("gemm_hang", "the matrix products never end"),
    ("gemm_crash", "the workload crashes"),
    ("gemm_garbage", "no JSON with exit status 0"),
    ("gemm_slow=0.85", "one slow GPU"),
    ("gemm_slow=0.93 warn", "one GPU a little slower than its siblings"),
    ("gemm_all_slow=0.85", "all GPUs equally slow"),
    ("gemm_all_slow=10", "6,800 TFLOPS on an H200"),
    ("gemm_slow=1.8", "one GPU that computes more than it can"),
    ("gemm_wrong", "wrong products"),
    ("gemm_nan", "products that are not finite"),
    ("gemm_wrong_column", "one column of the product is wrong, the first rows are right"),
    ("gemm_nan_corner", "one element of one GPU's product is not a number"),
    ("gemm_one_bad_product", "one of 1,200 timed products is wrong, the first and the last are right"),
    ("gemm_unchecked", "timed products that nobody checked"),
    ("gemm_fewer", "best of those that answered: one GPU was not measured"),
    ("gemm_cut", "results without an end"),
    ("mem_hang", "the memory test never ends"),
    ("mem_crash", "the copies crash"),
    ("mem_no_cuda", "CUDA does not start, and nothing was copied"),
    ("mem_cut", "copies without an end"),
    ("mem_missing", "one GPU was not copied to"),
    ("mem_slow=0.5", "copies at half speed, as with pageable memory or a competing copy"),
    ("mem_slow=0.93 warn", "copies of one GPU a little slower"),
    ("mem_all_slow=0.5", "copies of all GPUs at half speed"),
    ("mem_slow=2", "more than the PCIe link can give"),
    ("mem_both=0.6", "slow only with both directions at once"),
    ("mem_together=0.5", "slow only beside the other GPUs: a shared PCIe switch or a narrow uplink"),
    ("mem_link_gen", "a PCIe link that trains down to generation 3 under load"),
    ("mem_link_width", "a PCIe link that trains down to x8 under load"),
    ("mem_far=0.5", "a GPU that is slow from the other NUMA node"),
    ("mem_denied", "memory of the other NUMA node could not be had"),
    ("mem_peer=0.4", "one pair of GPUs at less than half speed"),
    ("mem_crowd=0.6", "a GPU that sends slowly to the others only while all of them send"),
    ("mem_indirect", "one GPU reaches the others through the host's memory only, at 18 GB/s"),
    ("mem_all_indirect", "no GPU of a board with NVLinks reaches another one directly"),
    ("mem_copy=0.85", "slow copies inside one GPU's memory"),
    ("mem_read=0.85", "slow reads of one GPU's memory"),
    ("mem_copy=1.4", "more than the memory's datasheet"),
    ("mem_late=2 warn", "one GPU reads the host's memory in twice the time"),
    ("mem_wrong", "wrong bytes copied to a GPU"),
    ("mem_wrong_back", "wrong bytes copied from a GPU"),
    ("mem_wrong_peer", "wrong bytes copied between GPUs"),
    ("mem_bits", "a bit of the memory that does not hold its value"),
    ("mem_ecc", "an uncorrectable memory error during the test"),
    ("mem_half", "only half of the memory was tested"),
    ("mem_unproven", "a memory test that proves nothing of itself"),
    ("train_odd", "one GPU computes other bits than its siblings, without an error"),
    ("train_wrong", "wrong products beside a training that is right"),
    ("train_nan", "a loss that is not finite"),
    ("train_flat", "a training that does not learn"),
    ("train_killed", "the process of one GPU is killed: the others passed"),
    ("train_memory", "one GPU without memory"),
    ("train_slow=0.85", "one GPU trains slower than its siblings, and nobody expects a number"),
    ("train_hang", "the training never ends"),
    ("train_cut", "a training without an end"),
    ("torch_missing", "neither PyTorch nor cuBLAS"),
    ("cuda_init", "CUDA cannot be initialised"),
    ("cuda_no_library", "no CUDA driver library"),
    ("torch_too_new", "torch for a newer CUDA than the driver"),
    ("package warn", "a package of another version"),
]

# Faults of a test are seen by its stage alone: one of each test share a node, and each must be seen by its own stage.
STAGE_OF = {"nccl": "nccl_node", "gemm": "gemm", "mem": "gpu_memory", "train": "train"}
# All later stages see it as well.
LASTING = ("mem_ecc",)

# The same of nodes with NPUs, which the stage stack alone measures here.
NPU_FAULTS: list[tuple[str, str]] = [
    ("smi_mismatch", "the driver is not loaded"),
    ("smi_cut", "verdict from a table that is cut"),
    ("no_gpu", "no NPU = exit 0"),
    ("fewer_gpus=1", "one NPU is missing"),
    ("npu_lost", "an NPU that does not answer"),
    ("npu_silent", "one of those that answer is not asked for"),
    ("npu_alarm", "an alarm that only the driver tells"),
    ("ecc", "uncorrectable memory errors"),
    ("npu_isolated=3 warn", "memory pages that were isolated"),
    ("less_memory=61440", "an NPU with less memory than the others"),
    ("npu_no_ecc", "memory errors that nobody can read counted as none"),
    ("port_down", "the network port of one NPU is down"),
    ("port_slow", "the network port of one NPU is slower than the others"),
    ("port_fault", "nothing answers behind the network ports"),
    ("cuda_init", "ACL cannot be initialised"),
]

# The same of nodes with AMD GPUs. `amd_log=` is a line of the driver while nccl-tests runs.
AMD_FAULTS: list[tuple[str, str]] = [
    ("smi_hang", "amd-smi never answers"),
    ("smi_cut", "verdict from JSON that is cut"),
    ("smi_no_groups", "N/A of an account without the groups video and render counted as none"),
    ("no_driver", "amdgpu is not loaded, exit status 0"),
    ("fewer_gpus=7", "one GPU is missing"),
    ("gpu_dumb", "a GPU that is listed and does not answer"),
    ("after:gpu_silent", "a GPU that is gone behind a test"),
    ("amd_log=GPU_reset_begin!", "a reset while the test passes"),
    ("amd_log=2_new_uncorrectable_hardware_errors_detected_in_umc_block", "memory errors that only the kernel's log has"),
    ("ecc", "uncorrectable memory errors"),
    ("ecc_rising", "uncorrectable memory errors that rise"),
    ("corrected_rising warn", "corrected memory errors that rise"),
    ("bad_pages=130", "more bad pages than AMD bears"),
    ("bad_pages=1 warn", "one bad page, an object without a list"),
    ("xgmi_half", "one XGMI link at half width"),
    ("xgmi_down", "one XGMI link is down"),
    ("xgmi_rising warn", "errors of XGMI links that rise"),
    ("hbm_hot warn", "a GPU that its memory's heat holds back"),
    ("pcie_width=8", "a PCIe link at half width"),
    ("less_units", "a GPU without one of its dies"),
    ("partition=DPX/NPS1", "all GPUs of one node are partitioned"),
    ("partition_of_last=DPX/NPS1", "one GPU of the node is partitioned"),
    ("firmware=01.24.00.00", "other firmware than on the other nodes"),
    ("power_limit=500 warn", "one GPU with a lower power limit"),
    ("ras_off warn", "memory errors go unnoticed"),
    ("busy", "somebody else's job runs on the GPUs"),
    ("nccl_slow=0.85", "collectives that are too slow"),
    ("gemm_slow=0.9", "one GPU 10 % slow"),
    ("cuda_init", "HIP cannot be initialised"),
]

# A stage of one's own, and what is expected of it.
DISK = {
    "id": "disk", "match": {"stage": "disk", "check": "read"}, "metric": "bandwidth", "value": 5000, "unit": "MiB/s",
    "source": "the drill", "date": "2026-11", "confidence": "vendor",
}  # fmt: skip
ROLE = {
    "defaults": {"disk_checks": [{"check": "read"}], "disk_prints": "bw=5100", "disk_metric": "bandwidth"},
    "tasks": [
        {
            "name": "Measure the disk",
            "gpufleet.acceptance.measure": {
                "argv": ["echo", "{{ disk_prints }}"],
                "metrics": "{{ [{'name': disk_metric, 'unit': 'MiB/s', 'regex': 'bw=([0-9]+)'}] if disk_metric else [] }}",
            },
        }
    ],
}
INSTINCT = "AMD Instinct MI300X"
# What simulated NPUs and AMD GPUs give: a training is expected to have a number, and no table has one of NPUs.
NPUS = [
    {"id": f"{kind}-{check}", "match": {"stage": "train", "check": check, "gpu": model}, "metric": "tflops", "value": value,
     "unit": "TFLOPS", "source": "the simulated tool", "date": "2026-11", "confidence": "derived"}
    for kind, model, values in (("npu", "Ascend 910B3", (280, 112)), ("amd", INSTINCT, (660, 264)))
    for check, value in zip(("compute", "train"), values, strict=True)
]  # fmt: skip


class Planted(t.NamedTuple):
    """A fault of a node: what the mistake would be called, whether a WARN is enough, and the stage that must see it, empty for any."""

    node: str
    what: str
    warn: bool
    stage: str = ""


def shared(faults: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return the faults of each node: one of each test, or one that more stages than one may see."""
    alone: list[list[tuple[str, str]]] = []
    of_test: dict[str, list[tuple[str, str]]] = {test: [] for test in STAGE_OF}
    for fault in faults:
        name = fault[0].partition("=")[0].partition(" ")[0]
        if name in LASTING or name.partition("_")[0] not in STAGE_OF:
            alone.append([fault])
        else:
            of_test[name.partition("_")[0]].append(fault)
    together = itertools.zip_longest(*of_test.values())
    return [*alone, *([fault for fault in faults_of_node if fault] for faults_of_node in together)]


def own_stage(folder: pathlib.Path) -> None:
    """The role disk in `folder`."""
    for part, content in ROLE.items():
        (folder / "disk" / part).mkdir(parents=True)
        (folder / "disk" / part / "main.yml").write_text(yaml.safe_dump(content))


def fleet(folder: pathlib.Path) -> tuple[dict[str, t.Any], list[Planted]]:
    """The inventory, and what is planted."""
    folder.mkdir(exist_ok=True)
    hosts: dict[str, t.Any] = {}
    planted: list[Planted] = []

    def node(name: str, what: str = "", warn: bool = False, **settings: t.Any) -> dict[str, t.Any]:
        hosts[name] = nodes.local(folder / name, len(hosts) + 1, **settings)
        if what:
            planted.append(Planted(name, what, warn))
        return t.cast("dict[str, t.Any]", hosts[name])

    def npu(name: str, what: str = "", **settings: t.Any) -> None:
        node(name, what, model="Ascend 910B3", gpus=2, **settings)["acceptance_gpu_count"] = 2

    def amd(name: str, what: str = "", **settings: t.Any) -> dict[str, t.Any]:
        made = node(name, what, model=INSTINCT, **settings)
        made.update(gemm_types=["bf16"])
        return made

    for number in range(HEALTHY):
        node(f"healthy-{number + 1:02d}")
    for faults_of_node in shared(FAULTS):
        words = [words.partition(" ")[0] for words, _what in faults_of_node]
        name = f"bad-{words[0].split('=')[0].replace('_', '-')}-{len(hosts):02d}"
        made = node(name, faults=" ".join(words))
        for word, (graded, what) in zip(words, faults_of_node, strict=True):
            stage = "" if word in LASTING else STAGE_OF.get(word.partition("_")[0], "")
            planted.append(Planted(name, what, graded.endswith(" warn"), stage))
        if words == ["smi_hang"]:  # it is waited for once; the other stages would wait as long
            made.update(nccl_node_timeout=15, gemm_timeout=15, train_timeout=16, gpu_memory_timeout=16)
    for number in range(3):
        npu(f"healthy-npu-{number + 1:02d}")
    for words, what in NPU_FAULTS:
        fault, _blank, grade = words.partition(" ")
        npu(f"bad-npu-{fault.split('=')[0].replace('_', '-')}", what, faults=fault, warn=grade == "warn")
    for number in range(3):
        amd(f"healthy-amd-{number + 1:02d}")
    for words, what in AMD_FAULTS:
        fault, _blank, grade = words.partition(" ")
        name = f"bad-amd-{fault.split('=')[0].replace('_', '-').replace(':', '-')}-{len(hosts):02d}"
        made = amd(name, what, faults=fault, warn=grade == "warn", kernel_log="")
        if fault == "smi_hang":
            made.update(nccl_node_timeout=15, gemm_timeout=15, train_timeout=16, gpu_memory_timeout=16)
    node("bad-driver", "another driver version", driver="570.172.08")
    node("bad-model", "missing threshold taken as 0: no expectation for this GPU", model="NVIDIA A1 Imaginary")
    node("bad-threshold", "thresholds read from a file but never applied")["acceptance_expectations"] = {
        "h200-8-all_reduce-nvls-plateau": {"value": 600}
    }
    node("bad-no-check", "nccl-tests was told not to check its results")["nccl_node_extra_args"] = ["-c", "0"]
    node("bad-tool-missing", "nccl-tests is not there")["nccl_node_binary_dir"] = "/nonexistent"
    plain = folder / "plain"
    plain.mkdir()
    (plain / "all_reduce_perf").write_text("not a program\n")
    node("bad-tool-mode", "nccl-tests cannot be executed")["nccl_node_binary_dir"] = str(plain)
    node("bad-state", "the state directory cannot be written")["acceptance_state_dir"] = "/proc/nonexistent"
    node("bad-python", "no python3 on the node")["ansible_python_interpreter"] = "/nonexistent/bin/python3"
    node("bad-unreachable", "nobody answers").update(
        ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=9, ansible_ssh_common_args="-o ConnectTimeout=2"
    )
    for name in ("bad-double-1", "bad-double-2"):
        node(name, "one machine under two names", machine_id=4711)
    own = [
        ("number", "a check without a number passes although one is expected", "bw=5100", ""),
        ("silent", "nothing printed and exit status 0", "", "bandwidth"),
        ("twice", "the better of two numbers", "bw=100 bw=5100", "bandwidth"),
        ("slow", "a number of one's own that is too low", "bw=4000", "bandwidth"),
        ("name", "a number under another name than the expected one", "bw=5100", "bandwith"),
    ]
    for name, what, printed, metric in own:
        node(f"bad-own-{name}", what).update(disk_prints=printed, disk_metric=metric)
    until = (datetime.date.today() + datetime.timedelta(days=30)).isoformat()
    for name, fault, what, waiver in (
        ("wrong", "nccl_wrong", "a waiver for a slow node takes wrong results with it", {"stage": "nccl_node"}),
        ("other", "gemm_slow=0.85", "a waiver for one GPU takes another with it", {"subject": "bad-waiver-other/gpu/GPU-0"}),
        ("code", "gemm_slow=0.85", "a waiver takes what its codes do not name", {"stage": "gemm", "codes": ["drift", "ecc"]}),
        ("late", "gemm_slow=0.85", "a waiver that has expired", {"stage": "gemm", "expires": "2026-01-01"}),
    ):
        own_waiver = {"subject": f"bad-waiver-{name}", "ticket": "T-1", "expires": until, **waiver}
        node(f"bad-waiver-{name}", what, faults=fault)["acceptance_waivers"] = [own_waiver]
    for name, what, settings in (
        ("half", "stack saw eight GPUs, the rest four: judged by the floor for four", {"faults": "later_gpus=4", "BUSBW": 360}),
        ("last", "one GPU left of eight: skipped, and accepted", {"faults": "later_gpus=1"}),
        ("gpus", "other GPUs from the second stage on", {"faults": "later_identity"}),
        ("machine", "another machine from the second stage on", {"faults": "later_machine"}),
        ("alone", "one GPU where all neighbours have eight, and nobody says how many", {"gpus": 1}),
        ("four", "four GPUs where all neighbours have eight, and nobody says how many", {"gpus": 4, "BUSBW": 360}),
    ):
        node(f"bad-set-{name}", what, **settings)["acceptance_gpu_count"] = None
    node("bad-nccl-conf", "an nccl.conf of its own chooses the softer floor", BUSBW=370)
    (folder / "bad-nccl-conf/root/etc/nccl.conf").write_text("NCCL_NVLS_ENABLE=0\n")
    node("bad-nccl-env", "one node is told another algorithm", True, BUSBW=370)["nccl_node_env"] = {"NCCL_ALGO": "Ring"}
    node("bad-skip", "skipped counted as passed: nothing skips a node with one GPU that should have eight", gpus=1)
    variables = {
        "nccl_node_sizes": ["8M:16G"],
        "nccl_node_test_timeout": 10,
        "gemm_test_timeout": 15,
        "gpu_memory_test_timeout": 15,
        "train_test_timeout": 15,
        "train_modes": ["together"],
        "acceptance_gpu_count": 8,
        "acceptance_stages": ["stack", "nccl_node", "gemm", "gpu_memory", "train", {"name": "disk", "role": "disk"}],
        "acceptance_expectations": [DISK, *NPUS],
    }
    return {"all": {"hosts": hosts, "vars": variables}}, planted


def run(folder: pathlib.Path, inventory: dict[str, t.Any], expected: bool) -> pathlib.Path:
    """An acceptance of its own; the folder of the run. It ends here where it is not accepted as `expected`."""
    folder.mkdir(exist_ok=True)
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    own_stage(folder / "roles")
    environment = dict(os.environ, ANSIBLE_FORKS="16", ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_ROLES_PATH=str(folder / "roles"))
    command = ["ansible-playbook", "acceptance.yml", "-i", str(folder / "inventory.yml")]
    with open(folder / "log", "wb") as log:
        done = subprocess.run(
            [*command, "-e", f"acceptance_results_dir={folder}/results"], cwd=ROOT, env=environment, stdout=log,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    reports = list(folder.glob("results/*/verdicts.jsonl"))
    if (done.returncode == 0) != expected or len(reports) != 1:
        sys.stderr.write((folder / "log").read_text()[-4000:])
        wanted = "an acceptance" if expected else "a refusal"
        raise SystemExit(f"the run ended with status {done.returncode} and {len(reports)} judgements; expected {wanted}")
    return reports[0].parent


# The parts of the drill without a run over nodes: (number of faults, those that were accepted, what healthy was refused) of each.
Part = t.Callable[[pathlib.Path], tuple[int, list[str], list[str]]]
PARTS: dict[str, Part] = {
    "groups": groups.accepted,
    "health": health.accepted,
    "gpus": gpus.accepted,
    "racks": racks.accepted,
    "hosts": host.accepted,
    "kernel": kernel.accepted,
    "controllers": controllers.accepted,
    "parts of hosts": host_parts.accepted,
    "ports": loopback.accepted,
    "second looks": second.accepted,
    "soak": soak.accepted,
    "fleets": lambda _folder: fleets.wrong(),
    "past": lambda _folder: past.wrong(),
    "peers": lambda _folder: peers.wrong(),
}
# Those that plant at random places, by a seed.
RANDOM_PARTS: dict[str, t.Callable[[pathlib.Path, int], tuple[int, list[str], list[str]]]] = {
    "storage": storage.accepted,
    "cabling": cabling.accepted,
}


def begin(part: str) -> None:
    print(f"drill: {part}", file=sys.stderr, flush=True)


class Nodes(t.NamedTuple):
    """Of the run over all simulated nodes: faults of nodes, runs made of it by hand, what was accepted and refused wrongly, and nodes."""

    planted: int = 0
    hand_made: int = 0
    accepts: t.Sequence[str] = ()
    rejects: t.Sequence[str] = ()
    nodes: int = 0


def of_nodes(folder: pathlib.Path) -> Nodes:
    """Run the acceptance over all simulated nodes, and over the healthy ones alone."""
    inventory, planted = fleet(folder / "nodes")
    bad = {fault.node for fault in planted}
    begin(f"{len(planted)} faults on {len(bad)} nodes, {len(inventory['all']['hosts']) - len(bad)} healthy nodes")
    found = [json.loads(line) for line in (run(folder / "all", inventory, False) / "verdicts.jsonl").read_text().splitlines()]
    healthy = {name: host for name, host in inventory["all"]["hosts"].items() if name not in bad}
    begin("the healthy nodes alone, and what is made of their run by hand")
    whole = run(folder / "healthy", {"all": {"hosts": healthy, "vars": inventory["all"]["vars"]}}, True)
    made_of_it, made_accepts = made.accepted(whole, folder / "made")
    seen: dict[tuple[str, str], set[str]] = {}
    for verdict in found:
        for stage in (verdict["stage"], ""):
            seen.setdefault((verdict["subject"]["id"].split("/")[0], stage), set()).add(verdict["verdict"])
    accepts = [
        f"{fault.node}: {fault.what}: {', '.join(sorted(seen.get((fault.node, fault.stage), set())))}"
        for fault in planted
        if not seen.get((fault.node, fault.stage), set()) & ({"FAIL", "UNKNOWN", "WARN"} if fault.warn else {"FAIL", "UNKNOWN"})
    ]
    accepts += [f"a hand-made run: {what}" for what in made_accepts]
    rejects = [
        f"{v['subject']['id']}: {v['stage']} {v['check']}: {v['verdict']}: {v['reason']}"
        for v in found
        if v["subject"]["id"].split("/")[0] not in bad and v["verdict"] not in ("PASS", "SKIPPED")
    ]
    return Nodes(len(planted), made_of_it, accepts, rejects, len({node for node, _stage in seen}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part after so many minutes; those left out are named")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the random places of faults; another one each time")
    parser.add_argument("--part", action="append", choices=[*PARTS, *RANDOM_PARTS], help="only this part, without the run over nodes")
    arguments = parser.parse_args()
    minutes, started, left_out = arguments.minutes, time.monotonic(), []
    parts = {**PARTS, **{part: functools.partial(accepted, seed=arguments.seed) for part, accepted in RANDOM_PARTS.items()}}
    with tempfile.TemporaryDirectory(prefix="gpufleet-drill-") as name:
        folder = pathlib.Path(name)
        nodes = Nodes() if arguments.part else of_nodes(folder)
        accepts, rejects = [*nodes.accepts], [*nodes.rejects]
        counted: dict[str, int] = {}
        for part in arguments.part or parts:
            if time.monotonic() - started > minutes * 60:
                left_out.append(part)
                continue
            begin(part)
            counted[f"of_{part}"], part_accepts, part_rejects = parts[part](folder / part)
            accepts += part_accepts
            rejects += part_rejects
    for title, lines in (("FALSE ACCEPT", accepts), ("FALSE REJECT", rejects)):
        for line in lines:
            print(f"{title}  {line}")
    every = nodes.planted + nodes.hand_made + sum(counted.values())
    totals = {"planted": every, "false_accepts": len(accepts), "false_rejects": len(rejects), "nodes": nodes.nodes}
    print(json.dumps({**totals, "hand_made_runs": nodes.hand_made, **counted, "seed": arguments.seed}))
    if left_out:
        print(f"NOT RUN, {minutes:g} minutes were over: {', '.join(left_out)}")
    return 1 if accepts or rejects else 0


if __name__ == "__main__":
    sys.exit(main())
