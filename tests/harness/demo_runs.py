# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of playbooks over the simulated hosts of inventories/demo, which are this machine."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Done(t.NamedTuple):
    status: int
    output: str

    def recap(self) -> dict[str, int]:
        """By host how often it failed."""
        lines = self.output.partition("PLAY RECAP")[2].splitlines()
        return {found[1]: int(found[2]) for line in lines if (found := re.match(r"(\S+) +: .*failed=(\d+)", line))}


def play(
    results: pathlib.Path,
    *arguments: str,
    playbook: str = "acceptance.yml",
    env: t.Mapping[str, str] | None = None,
    inventory: str | pathlib.Path = "inventories/demo",
    **variables: t.Any,
) -> Done:
    command = [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), playbook, "-i", str(inventory), *arguments]
    places = {"acceptance_results_dir": str(results), "acceptance_state_dir": f"{results}-state/{{{{ inventory_hostname }}}}"}
    done = subprocess.run(
        [*command, "-e", json.dumps({**places, **variables})],
        cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "120", **(env or {})}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stdout
    return Done(done.returncode, done.stdout)
