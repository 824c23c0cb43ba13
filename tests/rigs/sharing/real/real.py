# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real scheduler and library of a system that shares GPUs, in place of the stand-in's: README.md says what is left of the latter."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

from rigs.kubernetes.kubernetes import Kubernetes
from rigs.sharing.real import build
from rigs.sharing.sharing import PLUGIN, SCHEDULER, Model, Sharing

HERE = pathlib.Path(__file__).resolve().parent
GPUS = "/var/run/simulated-gpus"
# Bytes per second, as the stand-in's program/gpus.py has them.
BANDWIDTH = {"Tesla T4": 240.6e9, "NVIDIA A800": 1.88e12}


class Real(Sharing):
    """A version of the real system on one cluster, built from the clone `source`. It looks at annotations every 5 s, whatever is said."""

    def __init__(
        self, cluster: Kubernetes, model: Model, speed: float = 1.0, watch_s: float = 5.0, *, source: pathlib.Path, prefix: str,
        commit: str = "",
    ) -> None:  # fmt: skip
        super().__init__(cluster, model, speed, watch_s, prefix)
        self.built = build.built(source, prefix, commit)

    def place(self, folder: pathlib.Path) -> None:
        super().place(folder)
        for part in ("system", "driver"):
            shutil.copytree(self.built / part, folder / part, symlinks=True)
        shutil.copytree(HERE / "program", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))

    def plant_gpus(self, node: str, number: int, **more: object) -> None:
        super().plant_gpus(node, number, BANDWIDTH=BANDWIDTH[self.model.name] * self.speed, **more)

    def filled(self, document: dict[str, t.Any]) -> dict[str, t.Any]:
        document = super().filled(document)
        if document["kind"] == "DaemonSet":
            spec = document["spec"]["template"]["spec"]
            for container in spec["containers"]:
                if container["name"] == f"{self.prefix}-{SCHEDULER}":
                    container["command"] = [f"/opt/sharing/system/{self.prefix}-scheduler"]
                    container["env"].append({"name": "LD_LIBRARY_PATH", "value": "/opt/sharing/system:/opt/sharing/driver"})
                    container["volumeMounts"].append({"name": "gpus", "mountPath": GPUS})
                    spec["volumes"].append({"name": "gpus", "hostPath": {"path": GPUS, "type": "DirectoryOrCreate"}})
                elif container["name"] == f"{self.prefix}-{PLUGIN}":
                    lib = f"/var/run/{self.prefix}/lib"
                    loaded = f"LD_LIBRARY_PATH={lib}/driver LD_PRELOAD={lib}/driver/lib{self.prefix}.so"
                    more = {"SETTINGS": loaded, "MOUNTS": f"{GPUS}:{GPUS}"}
                    for variable in container["env"]:
                        if variable["name"] in more:
                            variable["value"] += f" {more[variable['name']]}"
        return document
