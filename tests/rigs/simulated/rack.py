# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated trays of a GB200 NVL72 rack. Nothing of a rack has ever been run here: the trays print what public sources say of real ones."""

from __future__ import annotations

import pathlib
import typing as t

from rigs.simulated import nodes

CLUSTER = "0d1f3c52-9d1b-4a7e-8c35-0a4d9d1b4a7e"
CHASSIS = "1821425170025"
TRAYS = 18
UNIT = "etc/systemd/system/multi-user.target.wants/nvidia-imex.service"
# What is on the disk of a tray by who starts IMEX there: {path: text}.
OWNERS: dict[str, dict[str, str]] = {
    "host": {UNIT: "[Service]\nExecStart=/usr/bin/nvidia-imex\n"},
    "slurm": {
        "etc/slurm/slurm.conf": "ClusterName=rack\nProlog=/etc/slurm/prolog.d/*\n",
        "etc/slurm/prolog.d/50-imex.sh": "#!/bin/sh\nsystemctl restart nvidia-imex\n",
    },
    "kubernetes": {"var/lib/kubelet/plugins/compute-domain.nvidia.com/dra.sock": ""},
    "none": {},
}


def addresses(count: int = TRAYS) -> list[str]:
    """Addresses of the trays of the rack, in the order of their slots."""
    return [f"10.0.7.{number}" for number in range(1, count + 1)]


def cells(number: int, cluster: str = CLUSTER, clique: str = "1", chassis: str = CHASSIS) -> str:
    """The faults of a node.conf that make a healthy simulated node tray `number` (from 1) of a rack: cells of all its GPUs."""
    of_all = {
        "clusterUuid": cluster, "cliqueId": clique, "summary": "Not_Supported", "chassis_serial_number": chassis,
        "slot_number": str(number), "tray_index": str(number - 1), "product_architecture": "Blackwell",
    }  # fmt: skip
    return " ".join(["link_rate=50", *(f"cells={name}:{value}" for name, value in of_all.items())])


def tray(
    folder: pathlib.Path, number: int, *, faults: str = "", owner: str = "host", model: str = "NVIDIA GB200", gpus: int = 4,
    nodes_config: t.Sequence[str] | None = None, cluster: str = CLUSTER, clique: str = "1", **settings: t.Any,
) -> dict[str, t.Any]:  # fmt: skip
    """Make tray `number` of a rack under `folder` and return its host variables. `faults` also takes no_channel."""
    of_rack = cells(number, cluster, clique) if "GB" in model else ""
    listed = addresses() if nodes_config is None else nodes_config
    variables = nodes.local(
        folder, 700 + number, model=model, gpus=gpus, faults=" ".join(filter(None, (of_rack, faults))), IMEX=" ".join(listed), **settings
    )
    root = folder / "root"
    files = {**OWNERS[owner], **({"etc/nvidia-imex/nodes_config.cfg": "\n".join(listed) + "\n"} if listed else {})}
    if "no_channel" not in faults.split():
        files["dev/nvidia-caps-imex-channels/channel0"] = ""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return variables
