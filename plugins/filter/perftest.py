# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in perftest.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.perftest import parse


def perftest(
    text: t.Any, rc: int = 0, expect_bytes: int | None = None, expect_iterations: int | None = None, expect_duration: int | None = None
) -> dict[str, t.Any]:
    """Parse the output of a perftest program; an error has its reason."""
    return parse(text, rc=rc, expect_bytes=expect_bytes, expect_iterations=expect_iterations, expect_duration=expect_duration)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"perftest": perftest}
