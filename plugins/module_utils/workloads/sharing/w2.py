# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""W2: small matrices, 3.1 GB at most, added 40,000 times.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import added, run


def main() -> int:
    return added(14000, 40000)


if __name__ == "__main__":
    raise SystemExit(run(main))
