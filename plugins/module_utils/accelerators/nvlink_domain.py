# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink domains that go beyond a node: racks such as GB200 NVL72, in which each node is a tray, and IMEX, which lets jobs use them.

A tray knows its domain by the pair ClusterUUID and CliqueId of its GPUs' fabric. The fabric manager runs on a switch tray, so a compute
tray without one is in order.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import imex
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, installed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# {word of a model's name: compute trays of one NVLink domain}. NVL72 racks have 18 trays of 4 GPUs (NVIDIA DGX GB200 and GB300 guides).
TRAYS = {"GB200": 18, "GB300": 18}
# Boards whose GPUs are connected among themselves and to no switch tray.
ALONE = re.compile(r"\bNVL[24]\b")

CTL, DAEMON, UNIT = "nvidia-imex-ctl", "nvidia-imex", "nvidia-imex.service"
NODES_CONFIG = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
CTL_TIMEOUT_S = 20.0
# The kubelet plug-in of NVIDIA's driver for dynamic resource allocation, which starts a daemon for each ComputeDomain.
COMPUTE_DOMAINS = "/var/lib/kubelet/plugins/compute-domain.nvidia.com"
SLURM_CONFIGS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf", "/opt/slurm/etc/slurm.conf")
# systemd starts the unit at boot if one of these links exists.
WANTED = tuple(f"/etc/systemd/system/{target}.target.wants/{UNIT}" for target in ("multi-user", "graphical", "basic"))
# Who starts IMEX, as users name it; `auto` finds it out.
AUTO, HOST, SLURM, KUBERNETES, NOBODY = "auto", "host", "slurm", "kubernetes", "none"
OWNERS = (AUTO, HOST, SLURM, KUBERNETES, NOBODY)

# healthMask of a GPU's place in the fabric (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): {name: its first bit}, two bits each: 0 not supported,
# 1 true, 2 false.
MASK_FLAGS = {"degraded bandwidth": 0, "route recovery in progress": 2, "route unhealthy": 4, "access timeout recovery": 6}
# Four bits from bit 8 on.
MASK_CONFIGURATION = {
    2: "system GUID", 3: "chassis serial number", 4: "no partition", 5: "insufficient NVLinks", 6: "incompatible GPU firmware",
    7: "invalid location", 8: "invalid state of the GPU",
}  # fmt: skip
_SUPPORTED, _TRUE, _FALSE = (1, 2), 1, 2


def trays_by_design(models: t.Iterable[str]) -> int | None:
    """Return how many trays make a rack of these GPUs; None if their NVLink does not leave the node."""
    counts = {count for model in models if not ALONE.search(model) for word, count in TRAYS.items() if word in words_of(model)}
    return counts.pop() if len(counts) == 1 else None


def words_of(model: str) -> list[str]:
    """Return the words of a model's name: `NVIDIA GB200` -> [`NVIDIA`, `GB200`]."""
    return model.replace("-", " ").replace(",", " ").split()


def mask_in_words(mask: int) -> dict[str, str]:
    """Return what a healthMask says of each part of the health of a GPU's place in the fabric: `yes`, `no`, `not supported`, or the cause
    of an incorrect configuration. 0xaa is a healthy GPU: its four flags are `no`."""
    words = {}
    for name, shift in MASK_FLAGS.items():
        value = mask >> shift & 3
        words[name] = {_TRUE: "yes", _FALSE: "no"}.get(value, "not supported")
    configuration = mask >> 8 & 15
    words["incorrect configuration"] = {0: "not supported", 1: "no"}.get(configuration) or MASK_CONFIGURATION.get(configuration, "unknown")
    return words


def mask_faults(mask: int) -> list[str]:
    """Return what is bad by a healthMask, in words; empty for a healthy GPU and for one that does not support the mask."""
    words = mask_in_words(mask)
    configuration = words.pop("incorrect configuration")
    faults = [name for name, word in words.items() if word == "yes"]
    return faults + ([f"incorrect configuration: {configuration}"] if configuration not in ("no", "not supported") else [])


def is_zero(cluster: str | None) -> bool:
    """Return True for the ClusterUUID of a GPU that is in no domain, or that reports none."""
    return not (cluster or "").strip("0- ") or (cluster or "").upper() == "N/A"


class Domain:
    """The NVLink domain of a node and the state of IMEX there, read once. `folder`: where the programs of the driver are, empty for those
    in PATH. `owner` is one of OWNERS."""

    def __init__(self, node: Node, snapshot: base.Snapshot, folder: str = "", owner: str = AUTO) -> None:
        self.node, self.tree = node, Tree(node)
        # Programs that lie elsewhere than in PATH lie beside the driver's others.
        self.ctl, self.program = (
            os.path.join(folder, name) if folder and os.path.exists(os.path.join(folder, name)) else name for name in (CTL, DAEMON)
        )
        self.gpus = snapshot["gpus"]
        self.driver = str(snapshot["driver"] or "")
        self.trays = trays_by_design(str(g["name"] or "") for g in self.gpus)
        self.problems: list[base.Problem] = []
        self.not_looked_for: dict[str, str] = {}
        self.cluster, self.clique = self._identity()
        self.owner, self.owner_by = (owner, "stack_imex says so") if owner != AUTO else self._owner()
        self.channels = self._channels()
        self.nodes = imex.nodes_of_config(node.read(NODES_CONFIG) or "")
        self.version = installed.version(installed.output(node, self.program, "--version"))
        self.daemon: str | None = None
        self.domain: imex.ImexDomain | None = None
        self.silence = ""
        self._ask()
        self._judge()

    # What is there ---------------------------------------------------------------------------------------------------

    def _identity(self) -> tuple[str | None, str | None]:
        """Return ClusterUUID and CliqueId, None each if the GPUs differ or report none. GPUs that differ are a finding of siblings()."""
        pairs = {((g["fabric"]["cluster"] or "").lower() or None, g["fabric"]["clique"] or None) for g in self.gpus}
        cluster, clique = pairs.pop() if len(pairs) == 1 else (None, None)
        fabrics = [g["fabric"] for g in self.gpus]
        if all(is_zero(fabric["cluster"]) for fabric in fabrics):
            if any(fabric["cluster"] or fabric["state"] for fabric in fabrics):
                states = ", ".join(sorted({f"{fabric['state'] or 'not reported'}" for fabric in fabrics}))
                words = f"the GPUs are in no NVLink domain: their ClusterUUID is all zero or N/A, the state of the fabric is {states}"
                self.problems.append(("nvlink_domain", f"{words}: see the links of the tray and the fabric manager of its switch trays"))
            else:
                words = "the driver reports no state of the NVLink fabric, so nobody knows which NVLink domain the GPUs are in"
                self.problems.append(("unreadable_state", words))
            return None, None
        silent = sorted({fabric["state"] or "N/A" for fabric in fabrics if (fabric["state"] or "").lower() in ("", "not supported")})
        if silent:
            words = f"the state of the NVLink fabric reads {', '.join(silent)}, expected Completed, and its GPUs name their NVLink domain"
            self.problems.append(("unreadable_state", words))
        if clique == "0":
            words = f"the GPUs have no partition of their NVLink domain {cluster} (CliqueId 0): see the partitions of its switch trays"
            self.problems.append(("nvlink_domain", words))
        return cluster, clique

    def _owner(self) -> tuple[str, str]:
        """Return who starts IMEX on this node, and how that is known."""
        if self.node.root == "/" and container.is_inside():
            return AUTO, "the files of the host are not seen from within a container"
        if self.tree.exists(COMPUTE_DOMAINS):
            return KUBERNETES, f"{COMPUTE_DOMAINS} exists"
        for path in SLURM_CONFIGS:
            text = self.node.read(path) or ""
            if re.search(r"(?im)^\s*SwitchType\s*=\s*switch/nvidia_imex\b", text):
                return SLURM, f"{path}: SwitchType is switch/nvidia_imex"
            for prolog in re.findall(r"(?im)^\s*Prolog\s*=\s*([^\s#]+)", text):
                if "nvidia-imex" in self._scripts(prolog):
                    return SLURM, f"the prolog {prolog} names nvidia-imex"
        link = next((path for path in WANTED if self._is_link(path)), "")
        return (HOST, f"{link} exists") if link else (NOBODY, "no unit, prolog or ComputeDomain driver was found that starts it")

    def _is_link(self, path: str) -> bool:
        """Return True if a link or a file exists, whatever it points at: the target of a link lies in the host's own tree."""
        folder, _slash, name = path.rpartition("/")
        return name in self.tree.names(folder)

    def _scripts(self, prolog: str) -> str:
        """Return the text of a prolog, of all files of its folder if it is one, or of what a pattern matches."""
        folder = prolog.rstrip("*").rstrip("/")
        texts = [self.node.read(prolog) or "", *(self.node.read(f"{folder}/{name}") or "" for name in self.tree.names(folder))]
        return "\n".join(texts)

    def _channels(self) -> list[str] | None:
        """Return the IMEX channels of the node; None if its device files are not seen."""
        if self.node.root == "/" and container.is_inside():
            return None
        return [name for name in self.tree.names(CHANNELS) if name.startswith("channel")]

    def _ask(self) -> None:
        """Ask the local daemon for its own state and for that of the domain."""
        if not self.node.which(self.ctl):
            self.silence = f"{CTL} was not found"
            return
        own = self.node.run([self.ctl, "-q"], timeout=CTL_TIMEOUT_S)
        self.daemon = imex.state_of_daemon(own.out) if own.ok else None
        if self.daemon is None:
            why = f"no answer in {own.ended_after(CTL_TIMEOUT_S)}" if own.timed_out else " ".join((own.err or own.out).split())[:200]
            self.silence = f"{CTL} -q: {why or f'status {own.rc}'}"
            return
        # Older programs have no JSON.
        for form in (["-j"], []):
            whole = self.node.run([self.ctl, "-N", *form], timeout=CTL_TIMEOUT_S)
            self.domain = imex.parse(whole.out) if whole.ok else None
            if self.domain is not None or whole.timed_out:
                break
        if self.domain is None:
            self.not_looked_for["imex_domain"] = f"the state of the IMEX domain: {CTL} -N printed none that can be read"

    # What is wrong ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Find what is wrong with IMEX on this tray. Trays that differ, or that are lost, are findings of the domain."""
        branch = self.driver.partition(".")[0]
        if self.version and branch and not self.version.startswith("unreadable") and self.version.partition(".")[0] != branch:
            words = f"nvidia-imex is {self.version} and the driver {self.driver}: both must be of one branch, install nvidia-imex-{branch}"
            self.problems.append(("imex", words))
        if self.owner == HOST:
            if self.daemon is None:
                words = f"the IMEX daemon does not answer ({self.silence}), and the host starts it ({self.owner_by})"
                self.problems.append(("imex", words))
            elif self.daemon != imex.READY:
                self.problems.append(("imex", f"the IMEX daemon is {self.daemon}, expected READY: see {NODES_CONFIG} and its log"))
            if self.channels is not None and "channel0" not in self.channels:
                words = f"{CHANNELS}/channel0 is missing: jobs over several trays cannot use NVLink; nvidia-modprobe -c 0 makes it"
                self.problems.append(("imex", f"{words}, or the module parameter NVreg_CreateImexChannel0=1"))
        elif self.owner == NOBODY and not self.owner_by.startswith("stack_imex"):
            words = f"nobody starts IMEX on this tray: {self.owner_by}"
            self.problems.append(("imex_owner", f"{words}; jobs over several trays cannot use NVLink. stack_imex says who does"))
        elif self.owner == KUBERNETES and any(self._is_link(path) for path in WANTED):
            words = f"ComputeDomains start IMEX ({self.owner_by}), and {UNIT} is enabled too"
            self.problems.append(("imex_owner", f"{words}: disable it, the two daemons take one another's ports"))
        elif self.daemon is None:
            why = self.owner_by if self.owner == AUTO else f"{self.owner} starts it for each job ({self.owner_by}), and none runs now"
            self.not_looked_for["imex"] = f"IMEX: {why}: {self.silence}"

    def facts(self) -> dict[str, t.Any]:
        """Return the facts of the domain as a node sees it, None where there is none."""
        return {
            "nvlink_cluster_uuid": self.cluster,
            "nvlink_clique": self.clique,
            "nvlink_fabric_health": sorted({g["fabric"]["health"] for g in self.gpus if g["fabric"]["health"]}) or None,
            "imex_version": self.version,
            "imex_owner": self.owner,
            "imex_daemon": self.daemon or (f"unreadable: {self.silence}" if self.owner == HOST else None),
            "imex_domain": self.domain.state if self.domain else None,
            "imex_nodes": len(self.nodes) or None,
            "imex_nodes_config": imex.digest(self.nodes) if self.nodes else None,
            "imex_channels": None if self.channels is None else len(self.channels),
        }

    def context(self) -> dict[str, t.Any]:
        """Return what is known of the domain, as plain data: by it the trays of one domain are put together."""
        places = [g["place"] for g in self.gpus]
        one = {name: sorted({str(place[name]) for place in places if place[name]}) for name in ("chassis", "slot", "tray")}
        return {
            "cluster_uuid": self.cluster,
            "clique": self.clique,
            "trays_by_design": self.trays,
            **{name: values[0] if len(values) == 1 else None for name, values in one.items()},
            "driver": self.driver or None,
            "imex": {
                "version": self.version, "owner": self.owner, "owner_by": self.owner_by, "daemon": self.daemon,
                "domain": self.domain.state if self.domain else None,
                "nodes_config": imex.digest(self.nodes) if self.nodes else None, "nodes": len(self.nodes),
                "channels": None if self.channels is None else len(self.channels),
                "not_well": self._not_well(),
            },
        }  # fmt: skip

    def _not_well(self) -> list[dict[str, t.Any]]:
        """Return the nodes of the IMEX domain that are not ready, or have a connection that is not up, as this daemon sees them."""
        nodes = self.domain.nodes if self.domain else []
        bad = [node for node in nodes if node.state != imex.READY or node.broken]
        return [
            {"index": node.number, "host": node.host, "state": node.state, "broken": dict(list(node.broken.items())[:20])} for node in bad
        ]
