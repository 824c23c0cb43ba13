# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of gdsio and counters of nvidia-fs, in the forms that NVIDIA documents."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import gdsio

VERIFIED = """IoType: WRITE XferType: GPUD Threads: 4 DataSetSize: 4156416/4194304(KiB) IOSize: 1024(KiB) Throughput: 1.049312 GiB/sec, \
Avg_Latency: 3721.307952 usecs ops: 4059 total_time 3.777586 secs
Verifying data
IoType: READ XferType: GPUD Threads: 4 DataSetSize: 4069376/4194304(KiB) IOSize: 1024(KiB) Throughput: 2.698050 GiB/sec, \
Avg_Latency: 1443.841342 usecs ops: 3974 total_time 1.438394 secs
"""
STATS = """GDS Version: 1.0.0.71
IO stats: Enabled, peer IO stats: Enabled
Reads                           : n=12 ok=11 err=1 readMiB=11 io_state_err=0
Reads                           : Bandwidth(MiB/s)=5 Avg-Latency(usec)=0
Sparse Reads : n=6 io=0 holes=0 pages=0
Writes                          : n=7 ok=7 err=0 writeMiB=7 io_state_err=0
        pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Mmap : n=183 ok=183 err=0 munmap=183
"""


def test_each_line_is_a_transfer() -> None:
    written, read = gdsio.transfers(VERIFIED)
    assert written == gdsio.Transfer("write", "GPUD", 4156416 << 10, 1.049312, 3721.307952)
    assert (read.way, read.rate) == ("read", 2.69805)


def test_a_line_may_be_broken_and_its_requests_of_several_sizes() -> None:
    text = VERIFIED.replace(" IOSize: 1024", "\nIOSize: 16384-32768-4096")
    assert [line.way for line in gdsio.transfers(text)] == ["write", "read"]


@pytest.mark.parametrize(
    "text", ["", "Error: cuFileDriverOpen", VERIFIED[:100], VERIFIED.replace("GiB", "MiB"), "IoType: TRIM" + VERIFIED[13:160]]
)
def test_what_is_no_whole_line_of_that_form_is_no_transfer(text: str) -> None:
    assert gdsio.transfers(text.replace("IoType: READ", "")) == []


def test_reads_and_writes_that_the_kernel_has_done_are_counted() -> None:
    assert gdsio.counted(STATS) == {"read": 11, "write": 7}
    assert gdsio.counted(None) == gdsio.counted("Reads : err=0 io_state_err=0\n") == {}
