# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of a range of time as Grafana writes them."""

from __future__ import annotations

import types

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""), ("now", ""), ("now-6h", "2025-12-31T18:00:00Z"), ("now-7d", "2025-12-25T00:00:00Z"), ("now-1M", "2025-12-02T00:00:00Z"),
        ("now-30m", "2025-12-31T23:30:00Z"), ("1767225600000", "2026-01-01T00:00:00Z"), ("now-9999y", "1970-01-01T00:00:00Z"),
        ("now-1d/d", "now-1d/d"), ("2026-08-01", "2026-08-01"), ("now-\u0663d", "now-\u0663d"), ("99999999999999", "99999999999999"),
    ],
)  # fmt: skip
def test_an_end_of_a_range_is_a_moment(monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    monkeypatch.setattr(ranges, "time", types.SimpleNamespace(time=lambda: 1767225600.0))
    assert ranges.moment(text) == expected
