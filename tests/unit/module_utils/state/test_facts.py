# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of this very machine, and of a host whose file system is mounted elsewhere."""

from __future__ import annotations

import json
import pathlib
import platform
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import facts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

PARAMS: dict[str, t.Any] = {
    "python": sys.executable,
    "packages": ["python", "pytest", "Flash_Attn"],
    "environment": ["NCCL_*", "CUDA_VISIBLE_DEVICES"],
    "sysctls": ["vm.overcommit_memory", "vm.no_such_setting"],
    "disks": ["/", "/no/such/place"],
    "gpu_count": None,
}


@pytest.fixture
def host(tmp_path: pathlib.Path) -> pathlib.Path:
    """The file system of a host, as a pod sees it."""
    for path, text in {
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
        "etc/environment": "NCCL_DEBUG=WARN\nhttps_proxy=http://user:pa@ss@proxy:3128\n",
        "etc/nccl.conf": "NCCL_NVLS_ENABLE=0\n",
        "etc/profile.d/cluster.sh": 'export NCCL_IB_HCA="mlx5_0,mlx5_1"\nexport NCCL_SECRET_TOKEN=xyz\n',
        "etc/systemd/system/docker.service.d/proxy.conf": 'Environment="HTTP_PROXY=http://a:b@p:1" NO_PROXY=x\n',
        "lib/systemd/system/containerd.service": "[Service]\nEnvironmentFile=-/etc/default/containerd\n",
        "etc/default/containerd": "https_proxy=http://p:2\n",
        "etc/docker/daemon.json": '{"proxies": {"https-proxy": "http://p:3"}}',
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=12 iommu=pt hugepages=64 api_key=geheim quiet",
        "proc/meminfo": "MemTotal:       2113406464 kB\nHugePages_Total:      64\nHugepagesize:       2048 kB\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n",
        "sys/class/dmi/id/bios_version": "2.1\n",
        "usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def collect(node: Node, fixtures: pathlib.Path, **params: t.Any) -> dict[str, t.Any]:
    recorded = fixtures / "h200-x4"
    seen = nvidia_smi.parse_xml((recorded / "nvidia-smi-q.xml").read_text())
    links = nvidia_smi.parse_nvlink_status((recorded / "nvidia-smi-nvlink-s.txt").read_text())
    return facts.collect({**PARAMS, **params}, node, seen, links)


def test_facts_of_this_machine(fixtures: pathlib.Path) -> None:
    found = collect(Node(60), fixtures)
    assert found["driver"] == "580.159.04" and found["cuda_driver"] == "13.0" and found["gpu_count"] == 4
    assert found["gpu"] == "NVIDIA H200" and found["vbios"] == ["96.00.A5.00.1A"] and found["gpu_pcie"] == ["gen5 x16"]
    assert found["gpu_nvlinks"] == ["18 x 26.562 GB/s"] and found["gpu_processes"] == []
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["package_pytest"] == pytest.__version__ and found["package_flash-attn"] == "absent"
    assert f"pytest=={pytest.__version__}" in found["pip_freeze"]
    assert found["sysctl_vm.overcommit_memory"] in ("0", "1", "2") and found["sysctl_vm.no_such_setting"] == "absent"
    assert found["free_disk_gib_/"] > 0 and found["free_disk_gib_/no/such/place"].startswith("unreadable: ")
    assert found["cpus"] and found["memory_gib"] and found["kernel"] and found["clock_synchronised"] in ("yes", "no")
    assert list(found) == sorted(found) and json.dumps(found)


def test_facts_are_the_same_a_second_time(fixtures: pathlib.Path) -> None:
    first, second = (collect(Node(60), fixtures) for _time in range(2))
    moving = {name for name in first if name.startswith(("free_disk", "clock_offset"))}
    assert {k: v for k, v in first.items() if k not in moving} == {k: v for k, v in second.items() if k not in moving}


def test_facts_of_a_mounted_host(host: pathlib.Path, fixtures: pathlib.Path) -> None:
    found = collect(Node(60, root=str(host)), fixtures)
    assert found["os"] == "Ubuntu 24.04.3 LTS" and found["memory_gib"] == 2016
    assert (found["hugepages"], found["hugepage_size_kib"]) == (64, 2048)
    assert found["kernel_command_line"] == "iommu=pt hugepages=64 api_key=(masked) quiet"
    assert found["driver_kind"] == "open" and found["bios_version"] == "2.1"
    assert found["nccl_system"] == ["libnccl.so.2.28.3"]
    assert found["env_NCCL_IB_HCA"] == "mlx5_0,mlx5_1" and found["env_NCCL_DEBUG"] == "WARN"
    assert found["env_NCCL_SECRET_TOKEN"] == "(masked)"
    assert found["conf_NCCL_NVLS_ENABLE"] == "0", "a setting in a file of NCCL's is a fact as one of the environment is"


def test_proxies_are_shown_without_their_passwords(host: pathlib.Path, fixtures: pathlib.Path) -> None:
    found = collect(Node(60, root=str(host)), fixtures)
    assert {name: value for name, value in found.items() if name.startswith("proxy_")} == {
        "proxy_login_https_proxy": "http://(masked)@proxy:3128",
        "proxy_docker_HTTP_PROXY": "http://(masked)@p:1",
        "proxy_docker_NO_PROXY": "x",
        "proxy_docker_HTTPS_PROXY": "http://p:3",
        "proxy_containerd_HTTPS_PROXY": "http://p:2",
    }
    assert "pa@ss" not in json.dumps(found) and "geheim" not in json.dumps(found) and "xyz" not in json.dumps(found)


def test_the_login_environment_is_that_of_a_login(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    for name in (".profile", ".bash_profile"):
        (tmp_path / name).write_text("echo Welcome to the cluster\nexport NCCL_IB_GID_INDEX=3\nexport TWO='a\nb'\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = facts.login_environment(Node(60))
    assert found["NCCL_IB_GID_INDEX"] == "3" and found["TWO"] == "a\nb"
    assert not any("Welcome" in name for name in found)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("http_proxy", "http://u:p@h:1/", "http://(masked)@h:1/"),
        ("HTTPS_PROXY", "u:p@h:1", "(masked)@h:1"),
        ("http_proxy", "http://u:p/w@h:1", "http://(masked)@h:1"),
        ("no_proxy", "localhost,10.0.*.*", "localhost,10.0.*.*"),
        ("NCCL_IB_PKEY", "3", "3"),
        ("HF_TOKEN", "hf_abc", "(masked)"),
        ("", "git+https://u:t@host/a/b@1f2e", "git+https://(masked)@host/a/b@1f2e"),
    ],
)
def test_passwords_in_facts_are_masked(name: str, value: str, shown: str) -> None:
    assert facts.mask(name, value) == shown


def test_a_python_that_is_not_there_costs_only_its_own_facts(fixtures: pathlib.Path) -> None:
    found = collect(Node(60), fixtures, python="/no/such/python")
    assert found["python"] == "unreadable: /no/such/python: not found" and found["driver"] == "580.159.04"
    assert "pip_freeze" not in found


def test_one_broken_part_does_not_lose_the_others(host: pathlib.Path, fixtures: pathlib.Path) -> None:
    (host / "etc/docker/daemon.json").write_text("{")
    found = collect(Node(60, root=str(host)), fixtures)
    assert found["proxy_docker"].startswith("unreadable: /etc/docker/daemon.json") and "proxy_docker_NO_PROXY" in found
    found = collect(Node(60), fixtures, disks=7)
    assert found["limits"].startswith("unreadable: TypeError") and found["driver"] == "580.159.04"


def test_no_gpu_is_a_fact_and_no_answer_is_none() -> None:
    none = nvidia_smi.parse_xml("No devices were found")
    assert facts.collect(PARAMS, Node(60), none, None)["gpu_count"] == 0
    lost = nvidia_smi.parse_xml("Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.")
    assert facts.collect(PARAMS, Node(60), lost, None)["gpu_count"].startswith("unreadable: ")


def test_a_pod_is_called_as_its_machine(host: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod has another name in each run, which is no change of the machine."""
    assert facts._hostname(Node(60)) == platform.node()
    monkeypatch.setenv("GPUFLEET_POD_UID", "1-2-3")
    assert facts._hostname(Node(60)) is None, "nobody says what the machine is called"
    monkeypatch.setenv("GPUFLEET_NODE", "node-01")
    assert facts._hostname(Node(60)) == "node-01"
    (host / "etc/hostname").write_text("gpu-01.example\n")
    assert facts._hostname(Node(60, root=str(host))) == "gpu-01.example"
