# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summaries of prove, as Perl 5.36 prints them."""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import prove

BAD = """/t/chmod/00.t ..
Failed 2/3 subtests
/t/chmod/01.t .. ok

Test Summary Report
-------------------
/t/chmod/00.t (Wstat: 0 Tests: 3 Failed: 2)
  Failed tests:  2-3
/t/open/00.t (Wstat: 768 (exited 3) Tests: 1 Failed: 0)
  Non-zero exit status: 3
  Parse errors: Bad plan.  You planned 2 tests but ran 1.
/t/open/01.t (Wstat: 0 Tests: 0 Failed: 0)
  Parse errors: No plan found in TAP output
Files=4, Tests=6,  0 wallclock secs ( 0.02 usr +  0.02 sys =  0.04 CPU)
Result: FAIL
"""


def test_failed_tests_have_their_files_and_numbers() -> None:
    found = prove.parse(BAD)
    assert (found.files, found.tests, found.not_ok, found.result) == (4, 6, 2, "FAIL")
    assert found.failed == {
        "/t/chmod/00.t": "2-3", "/t/open/00.t": "status 768", "/t/open/01.t": "Parse errors: No plan found in TAP output",
    }  # fmt: skip


def test_all_that_passed_and_none_at_all() -> None:
    good = "/t/a.t .. ok\nAll tests successful.\nFiles=1, Tests=2,  0 wallclock secs\nResult: PASS\n"
    assert prove.parse(good) == prove.Proved(1, 2, {}, 0, "PASS")
    assert prove.parse("Files=0, Tests=0,  0 wallclock secs\nResult: NOTESTS\n").result == "NOTESTS"


def test_an_output_that_is_cut_has_no_result() -> None:
    assert prove.parse(BAD[:200]).result == prove.parse("").result == ""


def test_numbers_of_failed_tests_go_on_over_several_lines() -> None:
    """The formatter of Perl breaks them behind forty characters."""
    lines = "  Failed tests:  2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22\n                24, 26-30\n                200\n"
    todo = "/t/open/02.t (Wstat: 0 Tests: 3 Failed: 0)\n  TODO passed:   3, 5\n                7\n"
    found = prove.parse(BAD.replace("  Failed tests:  2-3\n", lines + todo))
    assert found.failed["/t/chmod/00.t"] == "2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26-30, 200"
    assert "/t/open/02.t" not in found.failed
