# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message to a program that already runs on a node, in a file: the kubelet shows a pod an annotation of its own so.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import json
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

LOOK_S = 0.1


def message(node: Node, path: str, within: float) -> dict[str, t.Any] | None:
    """Wait for a packed file and return its content; None if it does not come in time."""
    end = min(time.monotonic() + within, node.end)
    while time.monotonic() < end:
        text = node.read(path)
        if text:
            return t.cast("dict[str, t.Any]", json.loads(zlib.decompress(base64.b64decode(text))))
        time.sleep(LOOK_S)
    return None
