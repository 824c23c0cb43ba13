# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens a TCP connection to each of GPUFLEET_W_ADDRESSES (host:port, commas between several) and sends nothing, until the pod is removed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import signal
import socket

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import run, say

CONNECT_S = 10.0


def main() -> int:
    addresses = [address for address in os.environ.get("GPUFLEET_W_ADDRESSES", "").split(",") if address]
    connections = []
    for address in addresses:
        host, _colon, port = address.rpartition(":")
        try:
            connections.append(socket.create_connection((host, int(port)), CONNECT_S))
        except (OSError, ValueError) as error:
            say(f"no connection to {address!r}: {error}")
            return 1
    if not connections:
        say("GPUFLEET_W_ADDRESSES: expected addresses like 10.0.0.1:9402, found none")
        return 1
    say(f"connected to {len(connections)} schedulers")
    while True:
        signal.pause()


if __name__ == "__main__":
    raise SystemExit(run(main))
