# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in checks.yml."""

from __future__ import annotations

import itertools
import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import variant


def checks(axes: t.Any) -> list[dict[str, str]]:
    """Every combination of the axes as a check with its canonical variant."""
    if not isinstance(axes, dict) or "check" not in axes or not all(isinstance(v, list) for v in axes.values()):
        raise AnsibleFilterError(f"checks: found {axes!r}, expected a dictionary of lists with the key 'check'")
    names = [name for name in axes if name != "check"]
    return [
        {"check": str(check), "variant": variant(**dict(zip(names, values, strict=True)))}
        for check in axes["check"]
        for values in itertools.product(*(axes[name] for name in names))
    ]


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"checks": checks}
