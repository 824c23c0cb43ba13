# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason codes of the plane `slurm`: what each means, and the next step of whoever is to correct it.

This plugin util is PRIVATE to the collection. records/reason_codes.py reads it, so it imports nothing of ours.
"""

from __future__ import annotations

REASON_CODES = {
    "job_ended": ("Slurm ended a job before its answer", "Read in the reason who or what ended the job, and run again."),
    "job_refused": (
        "Slurm refused a job, or could not start it",
        "Correct what Slurm names: account, partition, QOS, time limit or resources of the jobs (acceptance_slurm_*).",
    ),
    "node_busy": (
        "the node did not become free for a job in the time that it was waited for",
        "Wait longer (acceptance_slurm_wait), or have the node reserved for the run (acceptance_slurm_reservation).",
    ),
    "node_down": ("Slurm starts no job on the node, which is down or not known", "Look at what the reason says, and at the node's slurmd."),
    "node_drained": (
        "somebody has taken the node out of service in Slurm",
        "Ask whoever set the reason, and measure when it is resumed, within a maintenance reservation for example (docs/slurm.md).",
    ),
    "node_reserved": (
        "the node is in a reservation of others",
        "Name a reservation that this user may use (acceptance_slurm_reservation), or wait for its end.",
    ),
    "slurm_unreachable": (
        "Slurm's client commands cannot be reached or fail",
        "Look at acceptance_slurm_ssh, and whether sinfo works on that machine.",
    ),
}
