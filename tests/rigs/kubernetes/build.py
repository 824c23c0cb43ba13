# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every program of the cluster, built from Go modules of pinned versions, once per content of modules/."""

from __future__ import annotations

import hashlib
import pathlib
import re
import shutil
import sys
import typing as t

from rigs import common, golang

HERE = pathlib.Path(__file__).resolve().parent
MODULES = HERE / "modules"
# What single tests want besides; it is no part of a cluster, and another version of it builds nothing else anew.
OPTIONAL = HERE / "optional"
AMD = HERE / "amd"
Programs = dict[str, tuple[str, str]]
PROGRAMS = {  # program: (folder of modules/, package)
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": ("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-proxy": ("kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
    "kubelet": ("kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    "containerd": ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    "containerd-shim-runc-v2": ("containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    "ctr": ("containerd", "github.com/containerd/containerd/v2/cmd/ctr"),
    "device-plugin": ("kubernetes", "./device-plugin"),
    "pause": ("pause", "."),
    "coredns": ("coredns", "github.com/coredns/coredns"),
    "kwok": ("kwok", "."),
    "mpi-operator": ("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),
    "volcano-controller-manager": ("volcano", "volcano.sh/volcano/cmd/controller-manager"),
    "volcano-scheduler": ("volcano", "volcano.sh/volcano/cmd/scheduler"),
}
MANIFESTS = {  # folder of modules/: (Go module, files of it that the rig applies or reads)
    "mpi-operator": ("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml"),
    "volcano": ("volcano.sh/volcano", "config/crd/volcano/bases/*.yaml"),
    "kwok": ("sigs.k8s.io/kwok", "kustomize/stage/*/*/*.yaml"),
}
OPTIONAL_PROGRAMS = {"training-operator": ("training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1")}
OPTIONAL_MANIFESTS = {
    "training-operator": ("github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
}
AMD_PROGRAMS = {"amd-device-plugin": ("device-plugin", ".")}
# What a cluster without fake nodes and without these operators can do without.
KWOK = frozenset({"kwok"})
OF_OPERATOR = {"mpi-operator": frozenset({"mpi-operator"}), "volcano": frozenset({"volcano-controller-manager", "volcano-scheduler"})}
FLAGS = ("-trimpath", "-mod=readonly", "-tags", "no_btrfs no_zfs no_devmapper")


def programs(operators: t.Collection[str] = tuple(OF_OPERATOR), kwok: bool = True) -> pathlib.Path:
    """Return the folder with PROGRAMS and, under manifests/, MANIFESTS. What only other operators or fake nodes need may be missing."""
    unneeded = {name for operator, names in OF_OPERATOR.items() if operator not in operators for name in names} | (set() if kwok else KWOK)
    return _built("programs", MODULES, PROGRAMS, MANIFESTS, unneeded)


def optional() -> pathlib.Path:
    """The same of what is no part of a cluster."""
    return _built("optional", OPTIONAL, OPTIONAL_PROGRAMS, OPTIONAL_MANIFESTS)


def amd() -> pathlib.Path:
    """Return the folder with AMD_PROGRAMS, which only a cluster with AMD GPUs needs."""
    return _built("amd", AMD, AMD_PROGRAMS, {})


def _built(
    what: str, modules: pathlib.Path, programs: Programs, manifests: Programs, unneeded: t.Collection[str] = ()
) -> pathlib.Path:
    """Return the folder of programs, and build those that are missing and needed. What an interrupted build made is kept."""
    target = common.CACHE / "kubernetes" / f"{what}-{_version(modules, programs, manifests)}"
    with common.locked(target.with_name("lock"), f"another process, which builds the {what} of the Kubernetes rig"):
        target.mkdir(exist_ok=True)
        missing = golang.missing(target, [name for name in programs if name not in unneeded])
        needed_folders = {programs[name][0] for name in programs if name not in unneeded}
        folders = golang.missing(target / "manifests", [folder for folder in manifests if folder in needed_folders])
        if not missing and not folders:
            return target
        go = golang.go()
        for number, name in enumerate(missing, 1):
            folder, package = programs[name]
            golang.build(
                f"{name}, {number} of {len(missing)}", *FLAGS, "-ldflags", _linker_flags(folder),
                package=package, into=target / name, cwd=modules / folder,
            )  # fmt: skip
        for folder in folders:
            module, pattern = manifests[folder]
            common.run(go, "mod", "download", module, cwd=modules / folder, env=golang.environment())
            source = pathlib.Path(
                common.run(go, "list", "-m", "-f", "{{.Dir}}", module, cwd=modules / folder, env=golang.environment()).strip()
            )
            new = target / f".{folder}.new"
            shutil.rmtree(new, ignore_errors=True)
            for file in source.glob(pattern):
                copy = new / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
            (target / "manifests").mkdir(exist_ok=True)
            new.rename(target / "manifests" / folder)
    return target


def _version(modules: pathlib.Path, programs: Programs, manifests: Programs) -> str:
    """Changes with what is built and how, not with how this file is written."""
    digest = hashlib.sha256(repr((programs, manifests, FLAGS)).encode())
    for path in sorted(path for path in modules.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(modules)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _linker_flags(folder: str) -> str:
    flags = "-s -w"
    if folder == "kubernetes":  # a client asks the API server for its version
        found = re.search(r"^\tk8s\.io/kubernetes v((\d+)\.(\d+)\.\d+)", (MODULES / folder / "go.mod").read_text(), re.M)
        assert found, "modules/kubernetes/go.mod names no version of k8s.io/kubernetes"
        full, major, minor = found.groups()
        where = "k8s.io/component-base/version"
        flags += f" -X {where}.gitVersion=v{full} -X {where}.gitMajor={major} -X {where}.gitMinor={minor}"
    return flags


if __name__ == "__main__":  # python3 -m rigs.kubernetes.build: ahead of whoever needs them
    try:
        print(programs())
    except common.RigError as problem:
        sys.exit(f"{problem}")
