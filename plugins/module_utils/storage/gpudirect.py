# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUDirect Storage: a GPU writes to a file system and reads from it, by NVIDIA's tool gdsio.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import gdsio
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.base import FileSystemTest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import GPUDIRECT, READ, WRITE
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.touching import GIB, Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart


def observed(test: FileSystemTest, path: str, look: Look) -> Observation:
    """Write from the first GPU and read what was written, each compared by gdsio. Its rates are those of GPUDirect Storage only if the
    kernel has counted its reads and writes."""
    try:
        size = touching.job_size(test.limit(look), test.params["jobs"])
    except ReasonedError as error:
        return test.failed(GPUDIRECT, error.reason_code, error.reason)
    place, tool = os.path.join(path, "gds"), test.node.which("gdsio") or gdsio.TOOL
    apart.call(lambda: touching.emptied(path, place), test.params["answer_timeout"])
    asked = [tool, "-D", place, "-d", "0", "-w", str(test.params["jobs"]), "-s", f"{size >> 20}M", "-i", "1M", "-x", "0"]
    before = gdsio.counted(test.node.read(gdsio.COUNTERS))
    metrics: PlainData = {}
    raws: list[str] = []
    for way, more in ((WRITE, ["-I", "1", "-V"]), (READ, ["-I", "0"])):
        result = test.node.run([*asked, *more], timeout=test.params["test_timeout"])
        raws.append(result.raw)
        fields: PlainData = {"command": result.argv, "raw": "\n".join(raws)}
        if result.missing:
            return test.failed(GPUDIRECT, "tool_missing", f"gdsio: {result.missing}; install GPUDirect Storage on the node", **fields)
        if result.timed_out:
            return test.failed(GPUDIRECT, "timeout", f"{test.entry['path']}: gdsio did not end in time", **fields)
        lines = {line.way: line for line in gdsio.transfers(result.out)}
        if result.rc != 0 or not {way, READ} <= set(lines) or lines[way].rate <= 0:
            words = " ".join((result.err or result.out).split()[-40:]) or "it gave no number"
            return test.failed(GPUDIRECT, "tool_failed", f"{test.entry['path']}: gdsio ended with status {result.rc}: {words}", **fields)
        metrics[way] = {"value": lines[way].rate, "unit": "GiB/s"}
    after = gdsio.counted(test.node.read(gdsio.COUNTERS))
    unseen = [way for way in (READ, WRITE) if after.get(way, 0) <= before.get(way, 0)]
    context = {**test.context, "gib": size * test.params["jobs"] / GIB, "not_looked_for": {"other_gpus": "gdsio used the first GPU"}}
    if unseen:
        words = f"{gdsio.COUNTERS} counted no {' and no '.join(unseen)}, so data may have gone through the memory of the machine"
        context.update(comparable=False, unlike=words)
    return observation.measured(GPUDIRECT, variant=test.variant, metrics=metrics, context=context, **fields)
