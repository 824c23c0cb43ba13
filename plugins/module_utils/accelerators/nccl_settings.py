# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's settings that a machine has by itself, as NCCL finds them (initEnv and setEnvFile in its src/misc/param.cc).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import pwd
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# Engines whose containers see neither the files nor the environment of the host.
APART = ("docker", "podman")


def in_files(read: t.Callable[[str], str | None], conf_file: str | None = None, library: str = "nccl") -> dict[str, str]:
    """Settings of $NCCL_CONF_FILE, else of ~/.nccl.conf, and of /etc/nccl.conf: the first that names one has the say. `library`: `nccl`,
    or a library that reads the same variables and has files of its own name."""
    settings: dict[str, str] = {}
    for path in (conf_file or _of_user(f".{library}.conf"), f"/etc/{library}.conf"):
        for line in ((read(path) if path else "") or "").splitlines():
            name, equals, value = line.partition("=")
            if equals and name.strip().startswith("NCCL_"):
                settings.setdefault(name.strip(), value.strip())
    return settings


def _of_user(name: str) -> str:
    """Return the path of a file in the home of our user; empty for a user that the machine does not know, as NCCL has it then."""
    try:
        return os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, name)
    except KeyError:
        return ""


def of_machine(node: Node, env: t.Mapping[str, t.Any], library: str = "nccl") -> dict[str, str]:
    """Return NCCL's settings in the files and in the environment of this machine, without those that the run sets by `env`."""
    if node.contained and node.exec["kind"] in APART:
        return {}
    # A tool in a container has the files of its image, wherever the host's are mounted.
    read = Node(0).read if container.is_inside() else node.read
    environment = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    conf_file = str(env.get("NCCL_CONF_FILE") or environment.get("NCCL_CONF_FILE") or "")
    return {name: value for name, value in {**in_files(read, conf_file, library), **environment}.items() if name not in env}
