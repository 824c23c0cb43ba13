# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options and return values that every probe module has."""

    DOCUMENTATION = r"""
options:
  checks:
    description:
      - What to measure, as the stage's C(_checks) variable lists it.
      - Inside an acceptance run the plan says which of them are still to be measured.
    type: list
    elements: dict
    suboptions:
      check:
        description: Name of the check.
        type: str
        required: true
      variant:
        description: Its settings as V(key=value) words.
        type: str
        default: ""
  timeout:
    description:
      - Deadline of the whole probe in seconds.
      - A guardian process on the node ends the probe and everything it started at this deadline, when the connection is
        lost, and when either of them is killed.
    type: float
    default: 600.0
  state_dir:
    description:
      - Where lock, ledger and results of the probe lie on the node. Removed when nothing is left in it.
      - Empty means C(/var/lib/gpufleet-acceptance) for root, else C(~/.gpufleet-acceptance).
    type: path
    default: ""
  lock_wait:
    description: How many seconds to wait where another run holds the node.
    type: float
    default: 0.0
  root:
    description: Where the file system of the host is mounted. A pod has it elsewhere.
    type: path
    default: /
  nvidia_smi:
    description: The nvidia-smi program, for nodes with NVIDIA GPUs. Empty where a node's NVIDIA GPUs are not meant.
    type: str
    default: nvidia-smi
  npu_smi:
    description: The npu-smi program, for nodes with Ascend NPUs. Empty where a node's NPUs are not meant.
    type: str
    default: npu-smi
  amd_smi:
    description: The amd-smi program, for nodes with AMD GPUs. Empty where a node's AMD GPUs are not meant.
    type: str
    default: amd-smi
  exec:
    description: Where the tools under test live.
    type: dict
    default: {kind: host}
    suboptions:
      kind:
        description: On the host, or in a container of this engine.
        type: str
        choices: [host, docker, podman, enroot, apptainer]
        default: host
      image:
        description: The container image.
        type: str
      args:
        description: More arguments for the engine, before the image.
        type: list
        elements: str
        default: []
  run:
    description: Set by the acceptance run; not for people.
    type: dict
    default: {}
    suboptions:
      run_id:
        description: The run.
        type: str
      stage:
        description: The stage.
        type: str
      phase:
        description: Run to the end, only start, or collect what was started.
        type: str
        choices: [all, start, collect]
        default: all
      grace:
        description: How many seconds a start waits for a quick end; the plan of a run says it where nobody does.
        type: float
        default: 1.0
      attempts:
        description: Which attempt each check is. What the node has finished of it is taken and not measured again.
        type: dict
        default: {}
      settings:
        description: Of a stage between nodes, whose options are made anew each time, the settings of the plan in one word.
        type: str
        default: ""
      continues:
        description: >-
          Whether the probe goes on behind the checkpoints of an attempt that was cut off, after a reboot too, and is not ended by a new
          attempt.
        type: bool
        default: false
      heartbeat:
        description: The heartbeat file by which the controller knows a probe of this stage that O(run.continues).
        type: str
        default: ""
      interpreters:
        description: >-
          The variables of the run that name a Python on the node, with its path. If one does not exist, nothing begins.
        type: dict
        default: {}
      driver:
        description: The process that drives the run, as MACHINE/BOOT/PID-NAMESPACE/PID/START.
        type: str
        default: ""
      by:
        description: The user and the machine that the run was started by, for people.
        type: str
        default: ""
      host:
        description: The name that the node has in the inventory; another one for the same machine in the same run is refused.
        type: str
        default: ""
      output:
        description: The file on the node that shows the last lines of the tool that runs. It is removed with the probe.
        type: str
        default: ""
requirements:
  - python >= 3.8
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: The arguments are validated and returned; nothing is measured.
  diff_mode:
    description: Returns what changed.
    support: none
    details: A measurement changes nothing.
  idempotent:
    description: Whether a second call does nothing.
    support: none
    details: Every call measures again.
"""
