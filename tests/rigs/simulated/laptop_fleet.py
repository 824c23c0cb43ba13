# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of inventories/demo with RDMA ports and a fabric, all on this machine: what a console needs so that every kind of run works.

Simulated by gpufleet.acceptance. One port is planted slow (SLOW_NODE, SLOW_DEVICE): half of the data rate through it, and half of the
bandwidth of every group with its node. The perftest tools are compiled; nodes are entered through namespaces (laptop/enter).
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing as t

import yaml
from rigs.simulated import nodes, pairs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
VARIABLES = ROOT / "inventories/demo/group_vars/all.yml"
DEMO = HERE / "demo"
RAILS = 8
SLOW_NODE, SLOW_DEVICE, SLOW_FACTOR = "h200-07", 2, 0.5
# busbw in GB/s of a group whose nodes have RAILS ports of 400 Gb/s.
FABRIC_BUSBW = 388


def lacking() -> str:
    """Return why nodes cannot have RDMA ports and a fabric on this machine, or an empty text."""
    if not shutil.which("cc"):
        return "a C compiler is missing, which builds the simulated perftest (Debian: gcc)"
    # As the nodes do it. In many containers, and on some distributions, only root may.
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "trial/tmp").mkdir(parents=True)
        (pathlib.Path(folder) / "trial/address").write_text("127.0.0.1\n")
        (pathlib.Path(folder) / "in-tmp").touch()
        enter = [str(HERE / "laptop/enter"), folder, "trial", "true"]
        done = subprocess.run(enter, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return f"this machine does not let its users make namespaces: {' '.join(done.stderr.split())[:200]}" if done.returncode else ""


def hosts() -> dict[str, dict[str, t.Any]]:
    """Return the demo's groups of hosts, {group: {host: its variables}}; addresses are those of this machine's loopback."""
    names = sorted(path.name for path in (DEMO / "nodes").iterdir())
    groups: dict[str, dict[str, t.Any]] = {}
    for number, name in enumerate(names, 1):
        groups.setdefault(name.partition("-")[0], {})[name] = {"acceptance_fabric_address": _address(0, number)}
    return groups


def build(folder: pathlib.Path) -> pathlib.Path:
    """Make the fleet under `folder`, which holds nothing else, and return the path of its inventory. A fleet that is there and made of the
    same files stays: runs may be using it."""
    inventory, digest = folder / "hosts.yml", folder / "made-of"
    sources = _digest(folder)
    if digest.is_file() and digest.read_text() == sources:
        return inventory
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "laptop", folder / "bin")
    (folder / "tools").symlink_to(nodes.TOOLS)
    (folder / "in-tmp").write_text("".join(f"{name}\n" for name in _in_tmp(folder)))
    (folder / "addresses").mkdir()
    (folder / "slow").write_text(f"{SLOW_NODE}\n")
    for name, busbw in (("fabric", FABRIC_BUSBW), ("fabric-slow", FABRIC_BUSBW * SLOW_FACTOR)):
        (folder / name).mkdir()
        (folder / name / "bin").symlink_to(nodes.TOOLS)
        (folder / name / "node.conf").write_text(nodes.conf(1, BUSBW=busbw))
    groups = hosts()
    names = sorted(host for group in groups.values() for host in group)
    slow = f"slow {_address(SLOW_DEVICE, names.index(SLOW_NODE) + 1)} {SLOW_FACTOR}"
    for number, name in enumerate(names, 1):
        _node(folder, name, number, slow)
    demo = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))
    at = f"{folder}/{{{{ inventory_hostname }}}}"
    variables: dict[str, t.Any] = {
        **demo,
        "demo_node": f"{at}/nodes/{{{{ inventory_hostname }}}}",
        "ansible_python_interpreter": f"{at}/python",
        "acceptance_state_dir": f"{at}/state",
        "rdma_binary_dir": str(pairs.tools()),
        "rdma_governor": "",
        "rdma_long": False,
        "rdma_test_timeout": 20,
        "nic_loopback_governor": "",
        "nccl_fabric_ssh": "existing",
        "nccl_fabric_binary_dir": "{{ demo_node }}/bin",
    }
    children = {group: {"hosts": of, "vars": _of_group(group)} for group, of in groups.items()}
    inventory.write_text(yaml.safe_dump({"all": {"children": children, "vars": variables}}, sort_keys=False), encoding="utf-8")
    digest.write_text(sources)
    return inventory


def _of_group(group: str) -> dict[str, t.Any]:
    """Return the variables that a group of the demo has of its own, but for the stages: a run has those of all its nodes."""
    files = sorted(ROOT.glob(f"inventories/demo*/group_vars/{group}.yml"))
    variables = {name: value for file in files for name, value in yaml.safe_load(file.read_text(encoding="utf-8")).items()}
    variables.pop("acceptance_stages", None)
    return variables


def _in_tmp(folder: pathlib.Path) -> list[str]:
    """Return the folders of /tmp that nodes need although each has a /tmp of its own: those of the fleet, the checkout, the tools and the
    interpreter, and those that a link on the way to them leads to."""
    needed = (folder, HERE, pairs.tools(), pathlib.Path(sys.executable), pathlib.Path(sys.base_prefix))
    below = {place.parts[2] for path in needed for place in _on_the_way(path) if place.parts[:2] == ("/", "tmp")}
    return sorted(name for name in below if not pathlib.Path("/tmp", name).is_file())


def _on_the_way(path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Yield an absolute path, and the same path behind each link in it. A virtual environment may be a link, and so may its interpreter."""
    yield path
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            yield from _on_the_way(pathlib.Path(os.path.normpath(part.parent / part.readlink() / path.relative_to(part))))
            return


def _digest(folder: pathlib.Path) -> str:
    """The digest of everything that a fleet is made of, and of where it was."""
    digest = hashlib.sha256(f"{ROOT} {sys.executable} {_in_tmp(folder)}".encode())
    folders = (DEMO, HERE / "laptop")
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in (*files, pathlib.Path(__file__), pathlib.Path(pairs.__file__), pairs.SOURCE, VARIABLES):
        digest.update(f"{path} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _node(folder: pathlib.Path, name: str, number: int, slow: str) -> None:
    """One node: a copy of the demo's with ports, and the interpreter through which Ansible enters it."""
    home = folder / name
    home.mkdir()
    (home / "tmp").mkdir(mode=0o700)
    # Links of a node lead to the machine beside it: each node has one of its own, for its ports.
    shutil.copytree(DEMO / "machine", home / "machine", symlinks=True)
    shutil.copytree(DEMO / "nodes" / name, home / "nodes" / name, symlinks=True)
    root = home / "nodes" / name / "root"
    pairs.sysfs(root, [_address(rail, number) for rail in range(RAILS)], seed=name)
    pairs.conf(root, "seconds 0.1", "gbps 391", slow)
    (folder / "addresses" / _address(0, number)).write_text(f"{name}\n")
    (home / "address").write_text(f"{_address(0, number)}\n")
    words = shlex.join([str(folder / "bin/enter"), str(folder), name, sys.executable])
    python = home / "python"
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    python.chmod(0o755)


def _address(rail: int, number: int) -> str:
    return f"127.{rail + 1}.0.{number}"
