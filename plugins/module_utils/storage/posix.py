# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of pjdfstest: a file system does as POSIX says.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import textwrap

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import prove
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.base import FileSystemTest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import POSIX
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart

# Files with failed tests that a finding names.
SHOWN = 8
# Characters of what is said of one file of tests.
LONGEST = 60
# Where the tests of pjdfstest may be.
PJDFSTEST = tuple(f"{folder}/pjdfstest/tests" for folder in ("/usr/share", "/usr/lib", "/usr/local/share", "/opt"))


def observed(test: FileSystemTest, path: str) -> Observation:
    """Run the tests of pjdfstest in a folder of their own."""
    wanted = test.params["pjdfstest"]
    tests = next((name for name in ([wanted] if wanted else PJDFSTEST) if os.path.isdir(name)), "")
    if not tests or not test.node.which("prove"):
        words = f"pjdfstest: no folder {wanted or ', '.join(PJDFSTEST)}" if not tests else "prove: it is not installed"
        return test.failed(POSIX, "tool_missing", f"{words}; install it on the node, or name its folder tests in storage_pjdfstest")
    place = os.path.join(path, POSIX)
    apart.call(lambda: os.mkdir(place, 0o755), test.params["answer_timeout"])
    result = test.node.run(["env", f"--chdir={place}", "prove", "-r", tests], timeout=test.params["test_timeout"])
    found = prove.parse(result.out)
    fields: PlainData = {"command": result.argv, "raw": result.raw, "duration_s": result.duration_s}
    if result.timed_out or found.result not in ("PASS", "FAIL") or not found.tests or (result.rc == 0) != (found.result == "PASS"):
        code = "timeout" if result.timed_out else "tool_failed"
        words = result.ended_after(test.params["test_timeout"]) if result.timed_out else " ".join((result.err or result.out).split()[-40:])
        return test.failed(POSIX, code, f"{test.entry['path']}: pjdfstest did not come to its end: {words}", **fields)
    failed = {os.path.relpath(name, tests): what for name, what in found.failed.items()}
    listed: list[findings.Finding] = []
    if found.result != "PASS":
        shown = ", ".join(f"{name} ({textwrap.shorten(what, LONGEST)})" for name, what in list(failed.items())[:SHOWN])
        more = f" and {len(failed) - SHOWN} more files" if len(failed) > SHOWN else ""
        words = f"{found.not_ok} of {found.tests} tests of pjdfstest failed: {shown}{more}"
        listed.append(("", "file_system", f"{test.entry['name']} ({test.entry['path']}): {words}"))
    context = {**test.context, "failed": failed, "tests": found.tests, "looked_for": [f"{found.tests} tests of pjdfstest"]}
    return findings.observed(POSIX, listed, {"variant": test.variant, "context": context, **fields})
