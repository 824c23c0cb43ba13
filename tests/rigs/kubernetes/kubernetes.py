# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes on this machine, without Docker: control plane, kubelets that run containers, kwok nodes (README.md)."""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import typing as t

from rigs import common
from rigs.kubernetes import api, build, images
from rigs.simulated import nodes as simulated

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {
    "ip": "iproute2",
    "/usr/bin/python3": "python3",
    "unshare": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "iptables": "iptables",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
}
INSTANCES = 8
MOST_NODES = 15
MOST_KWOK = 5000
GPUS = 8
PRODUCT = "NVIDIA-H200"
START_LIMIT_S = 180.0
GRACE_S = 40  # a node that is silent for so long is NotReady; Kubernetes' own 50 s cost tests too much
CONTROL = "control"
GPU_LABELS = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.count": str(GPUS)}
# As node feature discovery and AMD's node labeller set them.
AMD_PRODUCT = "AMD Instinct MI300X"
AMD_LABELS = {"feature.node.kubernetes.io/amd-gpu": "true", "amd.com/gpu.product-name": "AMD_Instinct_MI300X"}
# Device files of a node's AMD GPUs in as many partitions as there may be, and the number of the group `render` on Ubuntu 24.04.
RENDER_GROUP = 992
DEVICE_FILES = ("kfd", *(f"dri/renderD{128 + place}" for place in range(8 * GPUS)))
KWOK_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
    "pod/chaos/pod-container-running-failed",
)
OPERATORS = {"mpi-operator": "kubeflow.org/v2beta1/mpijobs", "volcano": "batch.volcano.sh/v1alpha1/jobs"}
# An operator ends itself where it could not renew its Lease for 5 s, which a busy machine may take; elsewhere its Deployment starts it
# again. One that is killed stays dead.
AGAIN = '"$0" "$@"; while [ $? != 137 ]; do sleep 1; "$0" "$@"; done'


class Kubernetes:
    """A cluster: a control machine at 10.233.INSTANCE.2, nodes kube-01 … at .11 and up, and nodes kwok-0001 … that exist in the
    API only. Instances do not see each other."""

    def __init__(self, instance: int = 0) -> None:
        if not 0 <= instance < INSTANCES:
            raise common.RigError(f"instance {instance}: from 0 to {INSTANCES - 1}")
        self.instance = instance
        self.state = common.STATE / "kubernetes" / str(instance)
        self.pki = self.state / "pki"
        self.kubeconfig = self.state / "admin.kubeconfig"
        self.server = f"https://{self.address(CONTROL)}:6443"
        self.bridge = f"gfk{instance}br"
        self.kubelet: dict[str, object] = {}  # settings of the kubelets beyond those of the rig; before `up`
        self.amd: t.Collection[str] = ()  # nodes that are born with AMD GPUs; before `up`
        self._api: api.Api | None = None

    @classmethod
    def reserve(cls) -> Kubernetes:
        return common.reserve(cls(instance) for instance in range(1, INSTANCES))

    # Names -------------------------------------------------------------------------------------------------------

    @property
    def image(self) -> str:
        """Name of the tester image, which every node has."""
        return images.tester()

    @property
    def bare_image(self) -> str:
        """Name of an image with a shell and its small tools only: no python3, no GPU tools, no MPI."""
        return images.BARE

    @property
    def nodes(self) -> list[str]:
        """Nodes with a kubelet that were put up, running or not."""
        return sorted(path.parent.name for path in self.state.glob("kube-*/machine-id"))

    def folder(self, machine: str) -> pathlib.Path:
        """Return the folder that the machine sees as /rig."""
        return self.state / machine

    def plant(self, node: str) -> pathlib.Path:
        """The node.conf of the node's simulated GPUs, which its containers see as /opt/simulated/node.conf."""
        return self.folder(node) / "node.conf"

    def as_born(self, node: str) -> None:
        """Its GPUs are those it was born with."""
        if node in self.amd:
            self.plant_amd(node)
        else:
            self.plant(node).write_text(f'NAME="{PRODUCT.replace("-", " ")}" IDENTITY={_index(node)}\n')

    def plant_amd(self, node: str, **settings: t.Any) -> None:
        """Its GPUs are MI300X, which containers see by the device files that they were given, with these settings of a node.conf."""
        self.plant(node).write_text(simulated.conf(_index(node), model=AMD_PRODUCT, **{"DEVICE_FILES": "yes", **settings}))

    def address(self, machine: str) -> str:
        return f"10.233.{self.instance}.{2 if machine == CONTROL else 10 + _index(machine)}"

    def pods(self, node: str) -> str:
        """The addresses of the node's pods."""
        return f"10.234.{16 * self.instance + _index(node)}.0/24"

    def link(self, machine: str) -> str:
        """Our end of the machine's cable."""
        return f"gfk{self.instance}v{0 if machine == CONTROL else _index(machine):02d}"

    def _cgroup(self, machine: str) -> str:
        return f"gfk{self.instance}-{machine}"

    # Up and down -------------------------------------------------------------------------------------------------

    def up(
        self, nodes: int = 2, kwok: int = 0, operators: t.Collection[str] = tuple(OPERATORS), grace_s: int = GRACE_S
    ) -> dict[str, float]:
        """Exactly these nodes, operators of OPERATORS, and all else a cluster has; what runs stays as it is. A node that is
        silent for `grace_s` is NotReady: kwok nodes speak four times as often, and a thousand of them keep half a core busy by it.
        Returns the seconds the steps took."""
        common.need_root("kubernetes")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        if not 0 <= nodes <= MOST_NODES or not 0 <= kwok <= MOST_KWOK:
            raise common.RigError(f"{nodes} nodes and {kwok} kwok nodes: at most {MOST_NODES} and {MOST_KWOK} fit")
        if unknown := set(operators) - set(OPERATORS):
            raise common.RigError(f"operators {', '.join(sorted(unknown))}: known are {', '.join(OPERATORS)}")
        _need_machine()
        common.need_packages(PACKAGES)
        took = {}
        began = time.monotonic()
        programs = build.programs(operators, bool(kwok))
        archives = images.archives(programs) if nodes else []
        amd_plugin = images.amd_device_plugin(build.amd()) if self.amd else None
        took["build"] = time.monotonic() - began
        names = [f"kube-{number:02d}" for number in range(1, nodes + 1)]
        with common.locked(self.state / "lock"):
            began = time.monotonic()
            for node in sorted(set(self.nodes) - set(names)):
                self._remove_node(node)
            machines = [CONTROL, *names]
            self._authority(names)
            for machine in machines:
                self._machine(machine, programs)
            self._network(machines)
            self._start_control()
            for node in names:
                self._start_containerd(node, programs)
            self._wait_api()
            took["api"] = time.monotonic() - began
            self._start_controllers(grace_s)
            for node in names:
                self._images(node, [*archives, *([amd_plugin] if amd_plugin and node in self.amd else [])])
                self._start_kubelet(node)
            self._operators(programs / "manifests", operators)
            if kwok:
                self._start_kwok(programs / "manifests", grace_s)
            if names:
                self._devices(images.device_plugin(programs))
            if amd_plugin:
                self.offer_amd(amd_plugin[0])
            self._kwok_nodes(kwok)
            self._wait_nodes(names)
            took["all"] = time.monotonic() - began
        return took

    def down(self) -> None:
        """End every process, remove every link, cgroup and file; nothing left of a killed `up` either."""
        common.need_root("kubernetes")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        with common.locked(self.state / "lock"):
            self._remove({path.parent.name for path in self.state.glob("*/machine-id")} | set(self._leftovers()))
            if self.bridge in common.links():
                common.ip_batch([f"link del {self.bridge}"])
            for path in self.state.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in ("lock", "reserved"):
                    path.unlink()
        self._api = None

    def status(self) -> dict[str, str]:
        """Machine or its program -> up or down; and node -> Ready or what it is instead, where the API server answers."""
        found = {}
        for machine in [CONTROL, *self.nodes]:
            if not self.folder(machine).exists():
                continue
            found[machine] = "up" if self.init(machine) else "down"
            running = self.programs(machine)
            for path in sorted(self.folder(machine).glob("*.command")):
                found[f"{machine} {path.stem}"] = "up" if path.stem in running else "down"
        try:
            for node in self.api.items("/api/v1/nodes"):
                found[f"node {node['metadata']['name']}"] = "Ready" if _ready(node) else "NotReady"
        except (common.RigError, OSError):
            found["API"] = "no answer"
        return found

    # The machines ------------------------------------------------------------------------------------------------

    def init(self, machine: str) -> int | None:
        """Process 1 of the machine, by its number on this one."""
        return common.recorded(self.folder(machine) / "init")

    def _machine(self, machine: str, programs: pathlib.Path) -> None:
        """Namespaces, root and process 1, unless they are there with these programs."""
        folder = self.folder(machine)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seed = f"{self.instance} {machine} {(self.pki / 'ca.crt').read_text()}"
        (folder / "machine-id").write_text(hashlib.sha256(seed.encode()).hexdigest()[:32] + "\n")
        (folder / "resolv.conf").write_text(f"nameserver {self.address(CONTROL)}\n")
        command = [str(HERE / "machine.sh"), str(folder), machine, self._cgroup(machine), str(programs)]
        kept = folder / "machine"
        if self.init(machine) and kept.exists() and shlex.split(kept.read_text()) == command:
            return
        self._stop(machine)
        kept.write_text(shlex.join(command) + "\n")
        with open(folder / "machine.log", "ab") as log:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        common.record(folder / "launcher", started.pid)
        until = time.monotonic() + 60
        while not self.init(machine):
            if started.poll() is not None or time.monotonic() > until:
                raise common.RigError(f"{machine} did not start: {_tail(folder / 'machine.log')}")
            time.sleep(0.02)

    def _stop(self, machine: str) -> None:
        """Processes end with process 1 of their namespace, mounts with the last process; then the links and cgroups go."""
        folder = self.folder(machine)
        common.end([path for path in (folder / "launcher", folder / "init", folder / "init.new") if path.exists()])
        self._end_cgroup(machine)
        if self.link(machine) in common.links():
            common.ip_batch([f"link del {self.link(machine)}"])

    def _end_cgroup(self, machine: str) -> None:
        """The machine's branch of each hierarchy, with what a killed `up` may have left in it."""
        until = time.monotonic() + 60
        for branch in _cgroups(self._cgroup(machine)):
            while branch.exists():
                for folder, _folders, _files in os.walk(branch, topdown=False):
                    with contextlib.suppress(OSError):  # busy for a moment after its last process
                        for pid in pathlib.Path(folder, "cgroup.procs").read_text().split():
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(int(pid), signal.SIGKILL)
                        os.rmdir(folder)
                if branch.exists() and time.monotonic() > until:
                    raise common.RigError(f"the cgroup {branch} does not end")
                time.sleep(0.02)

    def _leftovers(self) -> list[str]:
        """Machines of which only cgroups or folders are left."""
        prefix = f"gfk{self.instance}-"
        return [path.name.removeprefix(prefix) for path in _cgroups(f"{prefix}*")]

    def _remove(self, machines: t.Iterable[str]) -> None:
        for machine in machines:
            self._stop(machine)
            if self.folder(machine).exists():
                shutil.rmtree(self.folder(machine))

    def _remove_node(self, node: str) -> None:
        self._remove([node])
        with contextlib.suppress(common.RigError):  # the API server may be down
            self.api.delete(f"/api/v1/nodes/{node}")

    def _network(self, machines: t.Sequence[str]) -> None:
        there = common.links()
        gateway = f"10.233.{self.instance}.1"
        lines = []
        if self.bridge not in there:
            lines += [
                f"link add {self.bridge} address {common.mac(gateway)} type bridge",
                common.signed(self.bridge, self.state),
                f"addr add {gateway}/24 dev {self.bridge}",
                f"link set {self.bridge} up",
            ]
        new = [machine for machine in machines if self.link(machine) not in there]
        for machine in new:
            mac = common.mac(self.address(machine))
            lines.append(f"link add {self.link(machine)} type veth peer name eth0 address {mac} netns {self.init(machine)}")
            lines.append(f"link set {self.link(machine)} master {self.bridge} up")
        common.ip_batch(lines)
        for machine in new:
            lines = ["link set lo up", f"addr add {self.address(machine)}/24 dev eth0", "link set eth0 up"]
            lines.append(f"route add default via {gateway}")
            self.inside(machine, "ip", "-batch", "-", input="\n".join(lines) + "\n")
            if machine != CONTROL:
                self.inside(machine, "tee", "/proc/sys/net/ipv4/ip_forward", input="1")
        # Everybody finds the pods of every node without this machine's forwarding anything.
        routes = {node: f"route replace {self.pods(node)} via {self.address(node)}" for node in machines if node != CONTROL}
        for machine in machines:
            others = [line for node, line in routes.items() if node != machine]
            if others:
                self.inside(machine, "ip", "-batch", "-", input="\n".join(others) + "\n")
        common.ip_batch(list(routes.values()))

    def inside(self, machine: str, *argv: t.Any, **options: t.Any) -> str:
        """Output of a command that must succeed, in the machine's namespaces and cgroups."""
        return common.run(*self.enter(machine, *argv), **options)

    def enter(self, machine: str, *argv: t.Any) -> list[str]:
        """The argument list that runs a command in the machine's namespaces and cgroups."""
        init = self.init(machine)
        if init is None:
            raise common.RigError(f"{machine} is not up")
        # A process takes its namespaces from process 1, but not its cgroups; version 2 has one branch for processes, init.
        join = """branches=/sys/fs/cgroup/init
            [ -e $branches ] || branches=$(echo /sys/fs/cgroup/*)
            for branch in $branches; do echo 0 > "$branch/cgroup.procs"; done
            exec "$@" """
        return [
            "nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--",
            "env", "-i", "PATH=/opt/rig/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
            "sh", "-c", join, "sh", *map(str, argv),
        ]  # fmt: skip

    def processes(self, machine: str) -> dict[int, list[str]]:
        """Every process of the machine itself, not of its containers: number on this machine -> its command line."""
        init = self.init(machine)
        if init is None:
            return {}
        space = os.readlink(f"/proc/{init}/ns/pid")
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != init and os.readlink(entry / "ns/pid") == space:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0")
                    if words:  # a zombie has none
                        found[int(entry.name)] = words.split("\0")
        return found

    def programs(self, machine: str) -> dict[str, int]:
        """The machine's running programs: name -> number on this machine."""
        commands = {_path(_words(path)): path.stem for path in self.folder(machine).glob("*.command")}
        return {commands[argv[0]]: pid for pid, argv in self.processes(machine).items() if argv[0] in commands}

    def _program(
        self,
        machine: str,
        name: str,
        *arguments: t.Any,
        program: str = "",
        config: tuple[str, str] | None = None,
        variables: t.Sequence[str] = (),
    ) -> None:
        """Start it, unless it runs with these very arguments and this file (name, content) in /rig."""
        variables = [*variables, f"RIG_CONFIG={_digest(config[1])}"] if config else variables
        words = [*variables, program or f"/opt/rig/bin/{name}", *map(str, arguments)]
        kept = self.folder(machine) / f"{name}.command"
        if kept.exists() and _words(kept) != words:
            self.kill(machine, name)
        if config and not (kept.exists() and _words(kept) == words):  # some programs end when their file is written again
            _write(self.folder(machine) / config[0], config[1])
        kept.write_text(shlex.join(words) + "\n")
        self.start(machine, name)

    # What runs on them -------------------------------------------------------------------------------------------

    @property
    def api(self) -> api.Api:
        """The API server, as an administrator."""
        if self._api is None:
            if not (self.pki / "admin.crt").exists():
                raise common.RigError("the cluster is not up")
            self._api = api.Api(self.address(CONTROL), 6443, self.pki, "admin")
        return self._api

    def _authority(self, nodes: t.Sequence[str]) -> None:
        api.authority(self.pki)
        control = self.folder(CONTROL)
        control.mkdir(mode=0o700, parents=True, exist_ok=True)
        addresses = [f"IP:{address}" for address in (self.address(CONTROL), "127.0.0.1", "10.96.0.1")]
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"]
        api.issue(self.pki, "apiserver", "/CN=kube-apiserver", [*addresses, *(f"DNS:{name}" for name in names)])
        api.issue(self.pki, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        for file in ("ca.crt", "sa.key", "sa.pub", "apiserver.crt", "apiserver.key", "kubelet-client.crt", "kubelet-client.key"):
            shutil.copy(self.pki / file, control / file)
        for user, subject in (
            ("admin", "/O=system:masters/CN=rig-admin"),
            ("kube-controller-manager", "/CN=system:kube-controller-manager"),
            ("kube-scheduler", "/CN=system:kube-scheduler"),
            ("kube-proxy", "/CN=system:kube-proxy"),
        ):
            api.issue(self.pki, user, subject)
            _write(control / f"{user}.kubeconfig", api.kubeconfig(self.server, self.pki, user))
        _write(self.kubeconfig, api.kubeconfig(self.server, self.pki, "admin"))
        for node in nodes:
            folder = self.folder(node)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            api.issue(self.pki, node, f"/O=system:nodes/CN=system:node:{node}")
            shutil.copy(self.pki / "ca.crt", folder / "ca.crt")
            _write(folder / "kubelet.kubeconfig", api.kubeconfig(self.server, self.pki, node))
            _write(folder / "kube-proxy.kubeconfig", api.kubeconfig(self.server, self.pki, "kube-proxy"))

    def _start_control(self) -> None:
        here = self.address(CONTROL)
        (self.folder(CONTROL) / "etcd").mkdir(mode=0o700, exist_ok=True)
        self._program(
            CONTROL, "etcd", "--data-dir=/rig/etcd", "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380",
            "--unsafe-no-fsync", "--log-level=warn",
        )  # fmt: skip
        self._program(
            CONTROL, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={here}", f"--advertise-address={here}",
            "--secure-port=6443", "--tls-cert-file=/rig/apiserver.crt", "--tls-private-key-file=/rig/apiserver.key",
            "--client-ca-file=/rig/ca.crt", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-account-key-file=/rig/sa.pub", "--service-account-signing-key-file=/rig/sa.key", "--allow-privileged=true",
            "--kubelet-client-certificate=/rig/kubelet-client.crt", "--kubelet-client-key=/rig/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            # A seventh of its time went into collecting a small heap over and over again.
            variables=["GOGC=300", "GOMEMLIMIT=3GiB"],
        )  # fmt: skip

    def _wait_api(self) -> None:
        self._wait("the API server", lambda: self.api.request("GET", "/readyz") == "ok", CONTROL, "kube-apiserver")

    def _start_controllers(self, grace_s: int) -> None:
        for name, more in (
            (
                "kube-controller-manager",
                ("--service-account-private-key-file=/rig/sa.key", "--root-ca-file=/rig/ca.crt", "--use-service-account-credentials=true",
                 "--allocate-node-cidrs=false", f"--node-monitor-grace-period={grace_s}s", "--node-monitor-period=2s",
                 "--kube-api-qps=200", "--kube-api-burst=400"),
            ),
            ("kube-scheduler", ()),
        ):  # fmt: skip
            login = f"/rig/{name}.kubeconfig"
            self._program(
                CONTROL, name, f"--kubeconfig={login}", f"--authentication-kubeconfig={login}", f"--authorization-kubeconfig={login}",
                "--leader-elect=false", "--bind-address=127.0.0.1", *more,
            )  # fmt: skip
        corefile = (
            f"cluster.local 10.in-addr.arpa {{\n    bind {self.address(CONTROL)}\n    errors\n"
            "    kubernetes cluster.local 10.in-addr.arpa {\n        kubeconfig /rig/admin.kubeconfig rig\n        pods insecure\n"
            "        ttl 1\n    }\n}\n"
        )
        self._program(CONTROL, "coredns", "-conf=/rig/Corefile", config=("Corefile", corefile))

    def _start_containerd(self, node: str, programs: pathlib.Path) -> None:
        folder = self.folder(node)
        if not self.plant(node).exists():
            self.as_born(node)
        if node in self.amd:
            _device_files(folder / "dev")
            _amd_bus(folder / "pci")
            self.inside(node, "sh", "-c", "at=/sys/bus/pci/devices; mountpoint -q $at || mount --bind /rig/pci $at")
        spec = json.loads(common.run(programs / "ctr", "oci", "spec"))
        spec["process"]["rlimits"] = []  # to raise a limit takes CAP_SYS_RESOURCE, which root may lack
        # As a GPU runtime does it, the node brings its devices into every container: here the description of simulated ones.
        spec["mounts"].append(
            {"destination": "/opt/simulated/node.conf", "type": "bind", "source": "/rig/node.conf", "options": ["rbind", "ro"]}
        )
        _write(folder / "base-spec.json", json.dumps(spec))
        (folder / "cni").mkdir(exist_ok=True)
        ipam = {"type": "host-local", "ranges": [[{"subnet": self.pods(node)}]], "routes": [{"dst": "0.0.0.0/0"}]}
        plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
        _write(folder / "cni" / "10-rig.conflist", json.dumps({"cniVersion": "1.0.0", "name": "rig", "plugins": plugins}))
        self._program(node, "containerd", "--config=/rig/containerd.toml", config=("containerd.toml", CONTAINERD))

    def _images(self, node: str, archives: t.Sequence[tuple[str, pathlib.Path]]) -> None:
        ctr = ("ctr", "-a", "/rig/containerd.sock", "-n", "k8s.io", "images")
        self._wait("containerd", (self.folder(node) / "containerd.sock").is_socket, node, "containerd")
        there = self.inside(node, *ctr, "ls", "-q").split()
        for name, archive in archives:
            if name not in there:
                with open(archive, "rb") as handle:
                    self.inside(node, *ctr, "import", "--local", "-", stdin=handle)

    def _start_kubelet(self, node: str) -> None:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": self.address(node),
            "authentication": {"x509": {"clientCAFile": "/rig/ca.crt"}, "webhook": {"enabled": True}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"}, "clusterDNS": [self.address(CONTROL)], "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///rig/containerd.sock", "cgroupDriver": "cgroupfs", "failSwapOn": False,
            "failCgroupV1": False, "localStorageCapacityIsolation": False, "oomScoreAdj": 0, "resolvConf": "/etc/resolv.conf",
            "volumePluginDir": "/var/lib/volume-plugins", "nodeStatusUpdateFrequency": "4s", "nodeStatusReportFrequency": "1m",
            "nodeLeaseDurationSeconds": 16, "evictionHard": {"memory.available": "50Mi"}, "imageGCHighThresholdPercent": 100,
            "healthzPort": 0, "serializeImagePulls": False, "maxPods": 250, **self.kubelet,
        }  # fmt: skip
        own = AMD_LABELS if node in self.amd else GPU_LABELS
        labels = ",".join(f"{key}={value}" for key, value in own.items())
        self._program(
            node, "kubelet", "--config=/rig/kubelet.json", "--kubeconfig=/rig/kubelet.kubeconfig", f"--hostname-override={node}",
            f"--node-ip={self.address(node)}", "--cert-dir=/var/lib/kubelet/pki", f"--node-labels={labels}",
            config=("kubelet.json", json.dumps(config)),
        )  # fmt: skip

    def _start_proxy(self, node: str) -> None:
        """Once the node has its address: kube-proxy ends when that changes, from none too."""
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": "/rig/kube-proxy.kubeconfig"}, "hostnameOverride": node, "clusterCIDR": "10.234.0.0/16",
            "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
            # The table of connections is the whole machine's: leave it.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }  # fmt: skip
        self._program(node, "kube-proxy", "--config=/rig/kube-proxy.json", config=("kube-proxy.json", json.dumps(proxy)))

    def _operators(self, manifests: pathlib.Path, operators: t.Collection[str]) -> None:
        """The definitions of their resources first: an operator ends where they are not served."""
        for operator in OPERATORS:
            if operator in operators:
                for file in sorted((manifests / operator).rglob("*.yaml")):
                    self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", file.read_text())
            else:  # left of an earlier `up`
                for name in self.programs(CONTROL):
                    if name.startswith(operator):
                        self.kill(CONTROL, name)
                        (self.folder(CONTROL) / f"{name}.command").unlink()
        login = ["KUBECONFIG=/rig/admin.kubeconfig"]
        if "mpi-operator" in operators:
            self._wait_served("kubeflow.org/v2beta1", "mpijobs")
            self.api.create("/api/v1/namespaces", _namespace("mpi-operator"))
            self._program(
                CONTROL, "mpi-operator", "--kubeConfig=/rig/admin.kubeconfig", "--namespace=", "--lock-namespace=mpi-operator",
                "--kube-api-qps=100", "--kube-api-burst=200", variables=login,
            )  # fmt: skip
        if "volcano" in operators:
            self._wait_served("batch.volcano.sh/v1alpha1", "jobs")
            self._wait_served("scheduling.volcano.sh/v1beta1", "queues")
            self.api.create("/api/v1/namespaces", _namespace("volcano-system"))
            queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}}
            self.api.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue)
            arguments = ("--kubeconfig=/rig/admin.kubeconfig", "--leader-elect=false", "--logtostderr")
            controllers = "--controllers=gc-controller,job-controller,pg-controller,queue-controller"
            self._program(CONTROL, "volcano-controller-manager", *arguments, controllers, variables=login)
            conf = ("volcano-scheduler.conf", VOLCANO_SCHEDULER)
            self._program(CONTROL, "volcano-scheduler", *arguments, f"--scheduler-conf=/rig/{conf[0]}", config=conf, variables=login)

    def _wait_served(self, group: str, resource: str) -> None:
        def served() -> bool:
            return any(found["name"] == resource for found in self.api.request("GET", f"/apis/{group}")["resources"])

        self._wait(f"the API of {resource} of {group}", served, CONTROL, "kube-apiserver")

    def _start_kwok(self, manifests: pathlib.Path, grace_s: int) -> None:
        server = (HERE / "control" / "pod_logs.py").read_text()
        self._program(CONTROL, "pod-logs", "/rig/pod_logs.py", program="/usr/bin/python3", config=("pod_logs.py", server))
        stages = [manifests / "kwok/kustomize/stage" / f"{stage}.yaml" for stage in KWOK_STAGES]
        stages += [HERE / "control" / f"{stage}.yaml" for stage in ("never-complete", "answers-before")]
        self._program(
            CONTROL, "kwok", "--kubeconfig=/rig/admin.kubeconfig", "--config=/rig/stages.yaml", "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-ip=127.0.0.1", "--node-port=10251",
            "--server-address=127.0.0.1:10247", "--cidr=10.244.0.0/16", f"--node-lease-duration-seconds={grace_s}", "-v=WARN",
            config=("stages.yaml", "---\n".join(stage.read_text() for stage in stages)),
        )  # fmt: skip

    def _devices(self, name: str) -> None:
        """Install what a GPU operator brings to a cluster: the device plugin and the runtime class."""
        self.api.apply("/apis/node.k8s.io/v1/runtimeclasses/nvidia", {
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
        })  # fmt: skip
        plugin = json.loads((HERE / "control" / "device-plugin.json").read_text())
        plugin["spec"]["template"]["spec"]["containers"][0]["image"] = name
        self.api.apply("/apis/apps/v1/namespaces/kube-system/daemonsets/nvidia-device-plugin-daemonset", plugin)

    def offer_amd(self, image: str = "", strategy: str = "single") -> None:
        """Have the nodes with AMD GPUs offer amd.com/gpu or, by the strategy `mixed`, a resource for each mode of partitions."""
        image = image or images.amd_device_plugin(build.amd())[0]
        plugin = json.loads((HERE / "amd" / "device-plugin.json").read_text())
        (container,) = plugin["spec"]["template"]["spec"]["containers"]
        container.update(image=image, env=[{"name": "FILES", "value": "/rig/dev"}, {"name": "STRATEGY", "value": strategy}])
        self.api.apply(f"/apis/apps/v1/namespaces/kube-system/daemonsets/{plugin['metadata']['name']}", plugin)

    def _kwok_nodes(self, count: int) -> None:
        wanted = {f"kwok-{number:04d}" for number in range(1, count + 1)}
        path = "/api/v1/nodes?labelSelector=type%3Dkwok"
        there = {node["metadata"]["name"] for node in self.api.items(path)}
        for name in sorted(there - wanted):
            self.api.delete(f"/api/v1/nodes/{name}")
        for name in sorted(wanted - there):
            self.api.create("/api/v1/nodes", _kwok_node(name))
        self._wait("the kwok nodes", lambda: all(_ready(node) for node in self.api.items(path)), CONTROL, "kwok")

    def _wait_nodes(self, names: t.Sequence[str]) -> None:
        def node(name: str) -> dict[str, t.Any]:
            found: dict[str, t.Any] = self.api.request("GET", f"/api/v1/nodes/{name}")
            return found

        for name in names:
            self._wait(f"node {name}", functools.partial(lambda name: _ready(node(name)), name), name, "kubelet")
            self._start_proxy(name)
        for name in names:
            self._wait(f"the GPUs of {name}", functools.partial(lambda name: _gpus(node(name)) > 0, name), name, "kubelet")

    def _wait(self, what: str, there: t.Callable[[], bool], machine: str, program: str) -> None:
        """Until it is there, while the program it comes from runs."""
        until = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(api.ApiError):
                if there():
                    return
            if time.monotonic() > until or program not in self.programs(machine):
                log = self.folder(machine) / "logs" / f"{program}.log"
                raise common.RigError(f"{what} did not come: {log}: {_tail(log)}")
            time.sleep(0.1)

    # Use ---------------------------------------------------------------------------------------------------------

    def tester(self, suite: str) -> str:
        """Name of the tester image of another Debian, after putting it on every node: "trixie" has Open MPI 5."""
        for name, archive in images.archives(build.programs((), kwok=False), [suite]):
            self._load(name, archive)
        return images.tester(suite)

    def tools(self) -> str:
        """Name of an image with python3 and the simulated tools in /opt/gpufleet, after putting it on every node."""
        return self._load(*images.tools())

    def console(self) -> str:
        """Name of the console's image with the collection as it is in this checkout, after putting it on every node."""
        with tempfile.TemporaryDirectory(dir=self.state, prefix="console-") as folder:
            return self._load(*images.console(pathlib.Path(folder)))

    def _load(self, name: str, archive: pathlib.Path) -> str:
        with common.locked(self.state / "lock"):
            for node in self.nodes:
                self._images(node, [(name, archive)])
        return name

    def user(self, name: str, roles: t.Sequence[dict[str, t.Any]], namespace: str = "default", token_s: int = 0) -> pathlib.Path:
        """The kubeconfig of somebody who may what these Roles (in the namespace, which is made) and ClusterRoles say, and no
        more; manifests of other kinds are passed over. He comes with a certificate or, with `token_s` of 600 and more, as a
        service account with a token that is good for so long. Called again, he may what is said now."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        self.api.create("/api/v1/namespaces", _namespace(namespace))
        # Pods are refused until a controller has made the default one; nobody should have to wait for it.
        for account in ("default", *([name] if token_s else [])):
            made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
            self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", made)
        if token_s:
            subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        else:
            api.issue(self.pki, f"user-{name}", f"/CN={name}")
            subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}
        labels = {"rig-user": name}
        for kind, path in (("Role", f"{rbac}/namespaces/{namespace}/role"), ("ClusterRole", f"{rbac}/clusterrole")):
            wanted = [role for role in roles if role["kind"] == kind]
            for role in wanted:
                metadata = {"name": f"{name}-{role['metadata']['name']}", "labels": labels}
                head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
                self.api.apply(f"{path}s/{metadata['name']}", {**head, "kind": kind, "rules": role["rules"]})
                reference = {"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": metadata["name"]}
                binding = {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]}
                self.api.apply(f"{path}bindings/{metadata['name']}", binding)
            kept = {f"{name}-{role['metadata']['name']}" for role in wanted}
            for found in self.api.items(f"{path}bindings?labelSelector=rig-user%3D{name}"):
                if found["metadata"]["name"] not in kept:
                    self.api.delete(f"{path}bindings/{found['metadata']['name']}")
        token = ""
        if token_s:
            asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": token_s}}
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            token = self.api.request("POST", path, asked)["status"]["token"]
        file = self.state / f"user-{name}.kubeconfig"
        _write(file, api.kubeconfig(self.server, self.pki, f"user-{name}", token, namespace))
        return file

    def answer_logs(self, source: str) -> None:
        """From now on the logs of pods on kwok nodes are what `log(pod: dict) -> str` of this Python source says, and the messages
        with which they end what its `message(pod)` says."""
        new = self.folder(CONTROL) / "answer.new"
        new.write_text(source)
        new.rename(new.with_suffix(".py"))

    # Faults ------------------------------------------------------------------------------------------------------

    def kill(self, machine: str, program: str) -> None:
        """SIGKILL to one program: ("control", "kube-apiserver"), ("kube-02", "kubelet"). Containers live on."""
        pid = self.programs(machine).get(program)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until = time.monotonic() + 60
            # Without a command line it may still hold its port; its parent, nsenter, reaps it when its last thread is gone.
            while os.path.exists(f"/proc/{pid}"):
                if time.monotonic() > until:
                    raise common.RigError(f"{program} on {machine} does not end")
                time.sleep(0.02)

    def start(self, machine: str, program: str) -> None:
        """Start a program that was killed, as it was; nothing where it runs."""
        if program in self.programs(machine):
            return
        folder = self.folder(machine)
        (folder / "logs").mkdir(exist_ok=True)
        log = folder / "logs" / f"{program}.log"
        again = ("sh", "-c", AGAIN) if program in OPERATORS else ()
        with open(log, "ab") as handle:
            subprocess.Popen(
                self.enter(machine, *again, "env", *_words(folder / f"{program}.command")),
                stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + 60
        while program not in self.programs(machine):
            if time.monotonic() > until:
                raise common.RigError(f"{program} on {machine} did not start: {_tail(log)}")
            time.sleep(0.02)

    def cut(self, machine: str) -> None:
        """Pull the cable: nothing is refused, nothing arrives."""
        common.ip_batch([f"link set {self.link(machine)} down"])

    def heal(self, machine: str) -> None:
        common.ip_batch([f"link set {self.link(machine)} up"])


SERVICES = "10.96.0.0/16"
VOLCANO_SCHEDULER = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
CONTAINERD = f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "/rig/containerd.sock"
[ttrpc]
  address = "/run/containerd/containerd.ttrpc.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{images.PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "/rig/base-spec.json"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "/rig/base-spec.json"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/rig/cni"
"""


def _index(node: str) -> int:
    return int(node.rsplit("-", 1)[1])


def _need_machine() -> None:
    """Raise RigError that names everything missing that no package brings."""
    missing = []
    if platform.machine() != "x86_64":
        missing.append(f"an x86_64 machine, which the images are made for: this one is {platform.machine()}")
    if not re.search(r"\boverlay$", pathlib.Path("/proc/filesystems").read_text(), re.M):
        missing.append("the overlay file system: modprobe overlay")
    controllers = pathlib.Path("/proc/cgroups").read_text().split()
    if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        controllers = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").read_text().split()
    if absent := [name for name in ("cpu", "cpuset", "memory", "pids") if name not in controllers]:
        missing.append(f"the cgroup controllers {', '.join(absent)}")
    common.STATE.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(common.STATE).free >> 30) < 6:
        missing.append(f"6 GiB of disk under {common.STATE}: {free} GiB are free")
    memory = re.search(r"MemAvailable: *(\d+)", pathlib.Path("/proc/meminfo").read_text())
    if memory and int(memory[1]) >> 20 < 3:
        missing.append(f"3 GiB of memory: {int(memory[1]) >> 10} MiB are available")
    if missing:
        raise common.RigError(f"missing on this machine: {'; '.join(missing)}")


def _words(command: pathlib.Path) -> list[str]:
    """Return the words of a kept command: variables, program, arguments."""
    return shlex.split(command.read_text())


def _path(words: t.Sequence[str]) -> str:
    return next(word for word in words if word.startswith("/"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(path: pathlib.Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _tail(path: pathlib.Path) -> str:
    return path.read_text(errors="replace")[-800:] if path.exists() else "no log"


def _cgroups(pattern: str) -> list[pathlib.Path]:
    """Folders of these names at the top of every hierarchy, of version 1 or 2."""
    top = pathlib.Path("/sys/fs/cgroup")
    return [path for path in (*top.glob(pattern), *top.glob(f"*/{pattern}")) if not path.parent.is_symlink()]


def _ready(node: dict[str, t.Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions", []))


def _gpus(node: dict[str, t.Any]) -> int:
    return sum(int(node["status"].get("allocatable", {}).get(resource, "0")) for resource in ("nvidia.com/gpu", "amd.com/gpu"))


def _device_files(folder: pathlib.Path) -> None:
    """Make DEVICE_FILES, which only root and their group may open. It is /dev/null that answers in place of a driver."""
    for name in DEVICE_FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(1, 3))
            os.chown(path, 0, RENDER_GROUP)
            path.chmod(0o660)


def _amd_bus(folder: pathlib.Path) -> None:
    """Make the PCI devices of a node's AMD GPUs, at the addresses that the simulated amd-smi shows, as its /sys has them."""
    link = {f"{which}_link_{what}": value for which in ("current", "max") for what, value in (("width", "16"), ("speed", "32.0 GT/s PCIe"))}
    for place in range(GPUS):
        device = folder / f"0000:{5 + 32 * place:02x}:00.0"
        (device / f"drm/renderD{128 + place}").mkdir(parents=True, exist_ok=True)
        for name, text in {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000", **link}.items():
            (device / name).write_text(f"{text}\n")
        if not (device / "driver").is_symlink():
            (device / "driver").symlink_to("../../../../bus/pci/drivers/amdgpu")


def _namespace(name: str) -> dict[str, t.Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _kwok_node(name: str) -> dict[str, t.Any]:
    capacity = {"cpu": "128", "memory": "2Ti", "pods": "250", "nvidia.com/gpu": str(GPUS), "rdma/hca_shared_devices_a": "63"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok", **GPU_LABELS}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        # Without both addresses kwok takes away what there is when the node was NotReady and becomes Ready again.
        "status": {"capacity": capacity, "allocatable": capacity, "addresses": addresses},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="kubernetes", description="A real Kubernetes on this machine.")
    parser.add_argument("--instance", type=int, default=0, help=f"several clusters side by side, from 0 (default) to {INSTANCES - 1}")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="exactly these nodes")
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="nodes that run containers (2)")
    up.add_argument("--kwok", type=int, default=0, metavar="N", help="nodes that exist in the API only (0)")
    up.add_argument("--without", action="append", default=[], choices=sorted(OPERATORS), help="leave an operator out")
    commands.add_parser("down", help="remove the cluster")
    commands.add_parser("status", help="one line per machine, program and node")
    arguments = parser.parse_args()
    try:
        cluster = Kubernetes(arguments.instance)
        began = time.monotonic()
        if arguments.command == "up":
            took = cluster.up(arguments.nodes, arguments.kwok, [name for name in OPERATORS if name not in arguments.without])
            steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
            print(f"{arguments.nodes} nodes and {arguments.kwok} kwok nodes ({steps}): {cluster.kubeconfig}\nimage {cluster.image}")
        elif arguments.command == "down":
            cluster.down()
            print(f"down in {time.monotonic() - began:.1f} s")
        else:
            status = cluster.status()
            for name, state in status.items():
                print(f"{name}: {state}")
            return 0 if status and set(status.values()) <= {"up", "Ready"} else 1
    except common.RigError as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        return 1
    return 0
