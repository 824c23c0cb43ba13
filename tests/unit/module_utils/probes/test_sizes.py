# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes of messages as people write them."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("8M", 8 << 20), (" 1g ", 1 << 30), ("16GB", 16 << 30), (4096, 4096)])
def test_sizes_are_read_with_units_of_1024(text: object, size: int) -> None:
    assert nccl.size(text) == size


@pytest.mark.parametrize("text", ["8X", "1Q", "", "M", "-1", "1.5G", "1 G G", "²"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes such as 1024, 8M or 1G"):
        nccl.size(text)
