# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in nccl_tests.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_tests import parse


def nccl_tests(text: t.Any, rc: int = 0) -> dict[str, t.Any]:
    """Parse the output of an nccl-tests program; an error has its reason."""
    return parse(text, rc=rc)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"nccl_tests": nccl_tests}
