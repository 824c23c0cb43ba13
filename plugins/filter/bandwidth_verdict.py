# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in bandwidth_verdict.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bandwidth import bandwidth_verdict


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"bandwidth_verdict": bandwidth_verdict}
