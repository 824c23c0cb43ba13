# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds the shared device that its pod was given, without using the GPU, until the pod is removed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import signal

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import place, run, say


def main() -> int:
    say(f"--- on {place() or 'an unknown GPU'} ---")
    while True:
        signal.pause()


if __name__ == "__main__":
    raise SystemExit(run(main))
