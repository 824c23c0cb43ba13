# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in hccl_test.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.hccl_test import parse


def hccl_test(
    text: t.Any, rc: int = 0, op: str | None = None, ranks: int | None = None, factor: float | None = None, step: int | None = None
) -> dict[str, t.Any]:
    """Parse the output of an hccl_test program; an error has its reason."""
    return parse(text, rc=rc, op=op, ranks=ranks, factor=factor, step=step)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"hccl_test": hccl_test}
