# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason at a node: short, harmless, and ours only while nobody has changed it."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import reason
from hypothesis import given
from hypothesis import strategies as st

RUN = "20260101T000000Z-0a1b2c"
MARK = reason.Mark(RUN, reason.PART, 1767262500, "gpu-03 GPU 7: uncorrectable memory errors")


def test_a_reason_says_whose_it_is_and_why() -> None:
    text = reason.text_of(MARK)
    assert text.startswith(f"gpufleet.acceptance {RUN} part 20260101T101500Z ") and text.endswith(
        ": gpu-03 GPU 7: uncorrectable memory errors"
    )
    assert reason.mark_of(text) == MARK and not reason.is_changed(text)


@given(st.text(max_size=600), st.integers(0, 4102444800), st.sampled_from(reason.CLASSES))
def test_any_words_make_a_short_reason_of_plain_characters_that_is_ours(words: str, at: int, kind: str) -> None:
    text = reason.text_of(reason.Mark(RUN, kind, at, words))
    mark = reason.mark_of(text)
    assert len(text.encode()) <= reason.LIMIT and text.isascii() and text.isprintable() and not set(text) & set("\"'|`$\\")
    assert mark is not None and (mark.run, mark.kind, mark.at) == (RUN, kind, at)


@pytest.mark.parametrize(
    "text",
    [
        reason.text_of(MARK) + ", see ticket 7", reason.text_of(MARK).replace("part", "use"), reason.text_of(MARK)[:-1],
        "gpufleet.acceptance", f"gpufleet.acceptance {RUN} part 20269901T101500Z 00000000: x",
    ],
)  # fmt: skip
def test_a_reason_that_somebody_has_changed_is_not_ours(text: str) -> None:
    assert reason.mark_of(text) is None and reason.is_changed(text)


@pytest.mark.parametrize("text", ["", "NHC: check_gpu", f"x {reason.text_of(MARK)}", f"ticket {RUN}"])
def test_a_reason_of_somebody_else_is_not_ours(text: str) -> None:
    assert reason.mark_of(text) is None and not reason.is_changed(text)


def test_a_run_began_when_its_id_says() -> None:
    assert reason.began(RUN) == 1767225600
