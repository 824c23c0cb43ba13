# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared code names no stage, no plane and no vendor: it asks the registries. Read from the text constants of each module."""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry as stages

PLUGINS = pathlib.Path(__file__).resolve().parents[3] / "plugins"
# A vendor, its tool, its runtime or its collective library.
VENDOR = re.compile(r"(?i)nvidia|\bamd\b|rocm|huawei|ascend|\bnpus?\b|npu[-_]smi|hccl|hccn|nccl|rccl|cuda|\bcann\b|torch_npu")

# Packages and modules of one stage, one plane or one kind of accelerators, by the beginnings of their paths.
OWN = (
    "module_utils/accelerators/", "module_utils/parsers/",
    *(f"plugin_utils/planes/{path.name}/" for path in (PLUGINS / "plugin_utils/planes").iterdir() if path.is_dir()),
    # The descriptions of stages, and what only the stages rdma and rdma_again share.
    *(f"plugin_utils/stages/{name}.py" for name in stages.shipped()), "plugin_utils/stages/rdma_",
    # The GPU-sharing matrix is one stage.
    "plugin_utils/sharing/", "module_utils/workloads/sharing/",
    # The probes of the stages of collectives, and what NCCL says of one rail and of NVLink between nodes.
    *(f"module_utils/probes/{name}.py" for name in ("nccl_node", "nccl_group", "hccl_node", "hccl_group", "ddp")),
    "module_utils/groups/collective.py",
    "module_utils/groups/rails.py", "module_utils/groups/mnnvl.py",
    # It runs the vendor's own diagnostic.
    "module_utils/probes/dcgm.py",
    # They call the libraries of one vendor.
    "module_utils/workloads/gemm.py", "module_utils/workloads/cuda_driver.py", "module_utils/workloads/hip_driver.py",
)  # fmt: skip

# {module: (the names in it, why it may have them)}. A name that is gone must go from here too.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "module_utils/groups/group.py": ({"nccl"}, "a key of what members say of themselves"),
    "module_utils/groups/membership.py": ({"nccl"}, "the same key"),
    "module_utils/groups/hangs.py": ({"nccl"}, "the parser of what a service of that library says of all ranks"),
    "module_utils/localise/hang.py": ({"cuda", "npu"}, "folders of PyTorch, by which its waits are known"),
    "module_utils/system/left_files.py": ({"cuda"}, "the keys of files that other tools read"),
    "module_utils/answer/reasons.py": ({"nccl", "cuda", "ascend", "npu"}, "the closed list of reason codes, which are published"),
    "module_utils/host/kernel_messages/pcie.py": ({"amd"}, "messages of the kernel about the IOMMU of a processor"),
    "module_utils/host/kernel_messages/processors.py": ({"amd"}, "messages of the kernel about processors"),
    "module_utils/host/kernel_messages/tables.py": ({"amd"}, "how messages of the kernel begin"),
    "module_utils/expected/slots.py": ({"nvidia", "amd"}, "a table by the names of products"),
    "module_utils/state/facts.py": ({"stack"}, "the resource limit of that name"),
    "module_utils/probes/stack.py": ({"cuda"}, "a published check: the runtime of any kind starts"),
    "module_utils/probes/gemm.py": ({"cuda"}, "a published reason code"),
    "module_utils/expected/context_keys.py": ({"nccl", "npu", "npus", "storage"}, "published context keys"),
    "module_utils/probes/host_health.py": ({"storage"}, "a published check"),
    "module_utils/storage/alone.py": ({"storage_test_timeout"}, "the limit of a check of its own stage"),
    "module_utils/storage/base.py": ({"storage"}, "a context key of its own stage"),
    "module_utils/probes/storage.py": ({"storage"}, "a context key and an option of its own stage"),
    "module_utils/probes/nvbandwidth.py": ({"cuda"}, "the variables that the program reads"),
    "module_utils/probes/nic_loopback.py": ({"nic_loopback_devices", "nic_loopback_ports"}, "the stage's own variables"),
    "module_utils/rdma/ports.py": ({"rdma_ports_rails", "rdma_ports_gbps"}, "the stage's own variables"),
    "module_utils/probes/train.py": ({"train"}, "a check of its own stage"),
    "module_utils/workloads/agent.py": ({"cuda", "nccl", "nvidia"}, "PyTorch's own API, of which CUDA is a part"),
    "module_utils/workloads/ddp.py": ({"cuda", "nccl"}, "PyTorch's own API"),
    "module_utils/workloads/gpu_memory.py": ({"cuda"}, "a published reason code, and a sentence with it"),
    "module_utils/workloads/hang.py": ({"nccl", "stack"}, "a variable of NCCL's own service; a file of the kernel"),
    "module_utils/workloads/products.py": ({"cuda"}, "PyTorch's own API"),
    "module_utils/workloads/soak.py": ({"cuda"}, "a published reason code"),
    "module_utils/workloads/train.py": ({"cuda", "nvidia"}, "a published reason code; PyTorch's own variable"),
    "module_utils/workloads/training.py": ({"cuda"}, "PyTorch's own API"),
    "plugin_utils/judging/advice.py": ({"cuda"}, "a published reason code"),
    "plugin_utils/console/request.py": (
        {"rdma", "rdma_tests", "rdma_scope", "rdma_ports_devices", "rdma_ports_port"},
        "a kind of request, which is a public field, and the variables that it sets",
    ),
    "plugin_utils/console/web/forms.py": ({"rdma", "rdma_operation"}, "the same kind, and a field of the form"),
    "plugin_utils/judging/configured.py": ({"nccl"}, "the rule about NCCL's settings"),
    "plugin_utils/judging/drift.py": ({"stack"}, "a key of plan.json"),
    "plugin_utils/judging/expectations.py": ({"nccl", "nvidia"}, "an example in a message"),
    "plugin_utils/judging/peer_comparison.py": ({"storage"}, "a key of contexts: the name of a file system"),
    "plugin_utils/judging/physics.py": ({"nvidia", "amd"}, "tables by the names of products"),
    "plugin_utils/redfish/log.py": ({"storage"}, "words of Redfish"),
    "plugin_utils/redfish/reading.py": ({"storage"}, "a resource of Redfish"),
    "plugin_utils/stages/faults.py": ({"storage"}, "a class of faults"),
    "plugin_utils/stages/storage_coherence.py": ({"storage"}, "a context key of its own stage"),
    "plugin_utils/report/curves.py": ({"stack"}, "bars that stand on each other"),
}  # fmt: skip
# Modules of one plane, by the beginnings of their paths.
OF_PLANES = (
    *(f"plugin_utils/planes/{path.name}/" for path in (PLUGINS / "plugin_utils/planes").iterdir() if path.is_dir()),
    # What runs in a pod only: the program, its result in the log, its metrics, and what it leaves for others to take back.
    "module_utils/program/pod.py", "module_utils/answer/frame.py", "module_utils/system/telemetry.py", "module_utils/lease/guardian_pod.py",
    "module_utils/lease/cordon_guardian.py",
    # The GPU-sharing matrix is a stage of clusters.
    "plugin_utils/sharing/", "module_utils/workloads/sharing/",
    # The console that runs in a cluster, and what installs it there.
    "plugin_utils/console/cluster.py", "plugin_utils/console/installing.py", "plugin_utils/console/worker.py",
    "plugin_utils/console/web/in_cluster.py",
)  # fmt: skip

# {module: (the words of planes in it, why it may have them)}. A word that is gone must go from here too.
ALLOWED_OF_PLANES: dict[str, tuple[set[str], str]] = {
    "module_utils/accelerators/nvlink_domain.py": ({"kube", "kubernetes", "slurm"}, "the systems that start IMEX, whatever the plane"),
    **{f"plugin_utils/handover/{module}.py": ({"ssh"}, "keys of SSH, which sign") for module in ("checker", "request")},
    # The program ssh, by which a group enters its nodes on every plane, and what it says.
    **{
        f"module_utils/{module}.py": ({"ssh"}, "the program")
        for module in (
            "groups/group", "groups/head", "groups/member", "groups/membership", "groups/mpi", "groups/worker", "parsers/nccl_checks",
            "probes/hccl_node",
        )
    },
    "module_utils/workloads/hang.py": ({"slurm"}, "a variable of its ranks, which any plane may start"),
    "module_utils/accelerators/amd.py": ({"kubernetes"}, "the label by which nodes with such GPUs are found there"),
    "plugin_utils/judging/advice.py": ({"ssh"}, "the same program, where a group is not launched"),
    "plugin_utils/stages/grouping.py": ({"ssh"}, "ssh-keygen, and a public variable of stages over groups"),
    "plugin_utils/planning/foreseeable.py": ({"ssh"}, "Ansible's own variables of a connection, by which two hosts are one machine"),
    "plugin_utils/console/web/local_server.py": ({"ssh"}, "the program, by which people reach the console"),
    "plugin_utils/redfish/log.py": ({"ssh"}, "messages of management controllers"),
    "plugin_utils/planes/registry.py": ({"ssh"}, "the registry: the plane of a host that names none"),
    "plugin_utils/planes/payload.py": ({"pod"}, "the program of a container, program/pod.py"),
    "module_utils/answer/reasons.py": ({"pods"}, "a published reason code of the stage gpu_sharing"),
    "module_utils/rdma/loopback.py": ({"kube", "pod"}, "a public variable of the stage nic_loopback, and a sentence with it"),
    "plugin_utils/stages/rdma.py": ({"kube"}, "a public variable of the stage"),
    "plugin_utils/stages/rdma_ports.py": ({"kube"}, "public variables of the RDMA stages"),
    "plugin_utils/stages/registry.py": ({"pods"}, "the old name of an attribute of stages, until 1.1"),
    "plugin_utils/observing/traces.py": ({"pod"}, "a published name of a span"),
}  # fmt: skip
# Words of RDMA, of the console's own storage and of Kubernetes that begin like the variables of a stage.
NO_VARIABLES = {"rdma_rxe", "rdma_ucm", "storage_read_only", "storage_away", "storage_full", "storage_class"}


def constants(path: pathlib.Path) -> t.Iterator[str]:
    """Yield the text constants of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def names_in(text: str) -> set[str]:
    """Return the stages, variables of stages and vendors that a text constant names."""
    if text in stages.shipped():
        return {text}
    if text not in NO_VARIABLES and re.fullmatch(rf"(?:{'|'.join(stages.shipped())})_[a-z_]+", text):
        return {text}
    return {found.group(0).lower() for found in VENDOR.finditer(text)}


def planes_in(text: str) -> set[str]:
    """Return the planes, the prefixes of their variables and other words of theirs that a text constant names."""
    prefixes = [prefix for plane in planes.shipped().values() for prefix in plane.variables if prefix.endswith("_")]
    words = "|".join([*prefixes, *planes.names(), r"kube|(?<![a-z_])pods?(?![a-z_])"])
    return {found.group(0).lower() for found in re.finditer(words, text, re.IGNORECASE)}


def named(seen: t.Callable[[str], set[str]], own: tuple[str, ...]) -> dict[str, set[str]]:
    """Return {module: what is `seen` in its text constants} of the shared modules, which are those whose path does not begin like `own`."""
    found: dict[str, set[str]] = {}
    for folder in ("module_utils", "plugin_utils"):
        for path in sorted((PLUGINS / folder).rglob("*.py")):
            module = str(path.relative_to(PLUGINS))
            if not module.startswith(own) and (names := set().union(*map(seen, constants(path)))):
                found[module] = names
    return found


def test_shared_code_names_no_stage_and_no_vendor() -> None:
    assert named(names_in, OWN) == {module: names for module, (names, _why) in ALLOWED.items()}


def test_shared_code_names_no_plane() -> None:
    assert named(planes_in, OF_PLANES) == {module: names for module, (names, _why) in ALLOWED_OF_PLANES.items()}


def test_the_names_of_others_are_seen() -> None:
    """The check itself: what it must see, and what it must not."""
    for text in ("stack", "nccl_node_sizes", "NVIDIA_VISIBLE_DEVICES", "an NPU", "amd.com/gpu"):
        assert names_in(text), text
    for text in ("stacked", "input", "lambda", "rdma_rxe", "GPU", "scan"):
        assert not names_in(text), text
    for text in ("kubernetes", "set acceptance_kube_image", "over SSH", "sshd", "its pod", "kubectl", "pods"):
        assert planes_in(text), text
    for text in ("podium", "pod_waited_s", "hash", "node", "a tripod"):
        assert not planes_in(text), text
