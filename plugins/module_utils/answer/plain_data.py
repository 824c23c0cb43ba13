# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names for the plain data that nodes, probes and tools exchange as JSON.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

# An object of JSON whose fields are not known here.
PlainData = t.Dict[str, t.Any]
# The validated options of a probe module.
Params = t.Dict[str, t.Any]
# What a probe yields: the fields of observation.FIELDS.
Observation = t.Dict[str, t.Any]
