# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in nvbandwidth.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nvbandwidth import parse


def nvbandwidth(text: t.Any, rc: int = 0, err: str = "", tests: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Parse the output of nvbandwidth; an error has its reason."""
    return parse(text, rc=rc, err=err, tests=tests)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"nvbandwidth": nvbandwidth}
