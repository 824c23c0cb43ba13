# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor of a team's own, as docs/vendors.md has it: its class, its parser and the registry's entry, without another change."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "vendors.md").read_text(encoding="utf-8")
P = "ansible_collections.gpufleet.acceptance.plugins.module_utils"
SHOWN = {
    "driver": "3.1", "simulated": True,
    "devices": [
        {
            "uuid": f"ACME-{n}", "name": "Acme G1", "serial": f"A{n}", "bdf": f"0000:{n + 16:x}:00.0", "memory_mib": 65536,
            "memory_used_mib": 4, "busy": 0, "errors": 0,
        }
        for n in range(2)
    ],
}  # fmt: skip
TOOL = f"""#!/bin/sh
case "$1" in
show) cat <<'END'
{json.dumps(SHOWN)}
END
;;
watch) while :; do echo ACME-0 300; echo ACME-1 300; sleep 1; done ;;
esac
"""
# Stands for the node's Python: keeps the order of a workload and its environment, and fails as a node without PyTorch does.
PYTHON = """#!/bin/sh
cat >/dev/null
printf '%s' "$2" >"$0.order"
env >"$0.env"
echo '{"kind": "fault", "reason": "PyTorch was not found"}'
exit 1
"""
ASK = f"""
import json, sys
from {P}.accelerators import nccl, registry
from {P}.groups import collective, membership
from {P}.probes import ddp, gemm, gpu_memory, nccl_node, soak, stack, train
from {P}.state import gpu
from {P}.system.node import Node

folder = sys.argv[1]
node = Node(120, root=folder, tools={{"acme_smi": folder + "/acme-smi", "nvidia_smi": "", "npu_smi": ""}})
common = {{"gpu_count": 2, "mig": "refused", "env": {{}}, "python": folder + "/python3", "test_timeout": 60.0}}
seen = gpu.snapshot(node)
told = membership.describe(seen, common, node, nccl.WHAT, nccl.KINDS)
head_params = {{
    "env": {{}}, "members": [], "group": "", "token": "", "key": None, "ssh_args": [], "mpirun": "mpirun", "mpi_args": [], "floors": [],
    "port": 29500, "join_timeout": 1.0,
}}
no_facts = [check for check in stack.default_checks(common) if check["check"] != "facts"]
compute = {{"check": "compute", "variant": "mode=alone shape=64x64x64 type=bf16"}}
head = collective.GroupHead(head_params, node, told)
torch = ddp.TorchHead({{**head_params, "backend": "nccl"}}, node, told)
answers = {{
    "snapshot": [seen["outcome"], seen["kind"], gpu.model(seen), seen["simulated"]],
    "stack": list(stack.probe({{**common, "checks": no_facts}}, node)),
    "gemm": list(gemm.probe({{**common, "seconds": 1.0, "warmup_seconds": 1.0,
                             "checks": [{{"check": "bf16", "variant": "mode=alone shape=64x64x64"}}]}}, node)),
    "train": list(train.probe({{**common, "results_dir": "", "gpus": 0, "device": "cuda", "seconds": 1.0, "warmup_seconds": 1.0, "seed": 1,
                               "width": 64, "batch": 64, "silence_timeout": 30.0, "checks": [compute]}}, node)),
    "gpu_memory": list(gpu_memory.probe({{**common, "checks": [{{"check": "h2d", "variant": ""}}]}}, node)),
    "soak": list(soak.probe({{**common, "checks": [{{"check": "load", "variant": "hours=1"}}], "hours": 1}}, node)),
    "kinds": {{
        "gemm": gemm.KINDS, "train": train.KINDS, "nccl_node": nccl.KINDS, "gpu_memory": gpu_memory.KINDS, "ddp": ddp.kinds_of("nccl"),
    }},
    "member": [told["kind"], told["refused"], told["gpus"]],
    "words": nccl.WHAT,
    "head": [head.visible, torch.visible, torch.kind.kind, torch._backend({{"backend": "auto"}})],
    "order": ddp._device("nccl", torch.own_kind),
    "resource": [registry.of_resource(name).kind for name in ("acme.test/gpu", "acme.test/part-4", "nvidia.com/gpu", "other/gpu")],
}}
print("ANSWERS " + json.dumps(answers, default=str))
"""


def blocks() -> dict[str, str]:
    """Return {path: text} of the page's files."""
    found = re.findall(r"```python\n# (plugins/\S+)\n(.*?)```", PAGE, re.DOTALL)
    return {path: f"{text}" for path, text in found}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    folder = tmp_path_factory.mktemp("vendor")
    plugins = folder / "ansible_collections/gpufleet/acceptance/plugins"
    shutil.copytree(ROOT / "plugins/module_utils", plugins / "module_utils", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in blocks().items():
        file = plugins.parent / path
        assert not file.exists(), path
        file.write_text(text)
    registry = plugins / "module_utils/accelerators/registry.py"
    text = registry.read_text()
    entry = re.search(r"```python\n(KINDS: .*?)\n```", PAGE, re.DOTALL)
    assert entry
    text, entries = re.subn(r"(?m)^KINDS: .*$", entry.group(1), text)
    text, imports = re.subn(r"accelerators import amd, ascend, base, nvidia", "accelerators import acme, amd, ascend, base, nvidia", text)
    assert (entries, imports) == (1, 1)
    registry.write_text(text)
    for name, program in (("acme-smi", TOOL), ("python3", PYTHON)):
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS "))
    made: dict[str, t.Any] = {**json.loads(said[8:]), "train_order": json.loads((folder / "python3.order").read_text())}
    return made


def test_the_devices_of_an_own_tool_are_seen_and_judged(answers: dict[str, t.Any]) -> None:
    assert answers["snapshot"] == ["measured", "acme", "Acme G1", True]
    health = [o for o in answers["stack"] if o["check"] == "gpu_health"]
    assert [o["part"] for o in health] == ["", "gpu/ACME-0", "gpu/ACME-1"] and {o["outcome"] for o in health} == {"measured"}, health
    assert [o["outcome"] for o in answers["stack"] if o["check"] == "cuda"]


def test_products_and_training_ask_for_the_build_of_pytorch_that_the_kind_names(answers: dict[str, t.Any]) -> None:
    assert {(o["outcome"], o["reason_code"]) for o in answers["gemm"]} == {("error", "torch_missing")}
    assert {o["outcome"] for o in answers["train"]} == {"error"}
    order = answers["train_order"]
    assert (order["kind"], order["build"], order["build_word"]) == ("cuda", "acme", "AcmeRT") and order["blas"] == {"": "acmeBLAS"}
    assert (order["devices"], order["visible"]) == (["0", "1"], "ACME_VISIBLE_DEVICES")


def test_what_the_kind_cannot_do_is_not_measured_by_another_vendors_way(answers: dict[str, t.Any]) -> None:
    for stage in ("gpu_memory", "soak"):
        (found,) = answers[stage]
        assert (found["outcome"], found["reason_code"]) == ("not_applicable", "other_accelerator")
        assert "of NVIDIA GPUs or AMD GPUs only, and this node has 2 Acme G1" in found["reason"]
    assert answers["kinds"] == {
        "gemm": ["nvidia", "amd", "acme"], "train": ["nvidia", "ascend", "amd", "acme"], "nccl_node": ["nvidia", "amd", "acme"],
        "gpu_memory": ["nvidia", "amd"],
        "ddp": ["nvidia", "amd", "acme"],
    }  # fmt: skip


def test_a_group_is_told_of_the_kind_and_sees_its_devices_by_its_variable(answers: dict[str, t.Any]) -> None:
    assert answers["member"] == ["acme", None, ["ACME-0", "ACME-1"]] and answers["words"] == "NCCL, RCCL and ACCL numbers"
    assert answers["head"] == ["ACME_VISIBLE_DEVICES", "ACME_VISIBLE_DEVICES", "acme", "nccl"]
    assert (answers["order"]["device"], answers["order"]["build"]) == ("cuda", "acme")


def test_a_resource_chooses_the_kind_by_its_domain(answers: dict[str, t.Any]) -> None:
    assert answers["resource"] == ["acme", "acme", "nvidia", "nvidia"]
