# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All reason codes, as the controller knows them: those that everything shares, and those that the planes of the collection bring.

A plane brings a module `reason_codes` in its folder, with REASON_CODES, {code: (what it means, what to do about it)}. Records are read
where no plane is used, as in a later judgement, so the codes are read from the folders and not asked of a plane.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import importlib
import pathlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons

_PACKAGE = f"{__name__.rpartition('.records.')[0]}.planes"
_PLANES = pathlib.Path(__file__).parent.parent / "planes"

# {reason code that a plane brings: what to do about it}
ADVICE: dict[str, str] = {}

for _path in sorted(_PLANES.glob("*/reason_codes.py")):
    _brought = importlib.import_module(f"{_PACKAGE}.{_path.parent.name}.reason_codes").REASON_CODES
    reasons.bring({code: meaning for code, (meaning, _advice) in _brought.items()})
    ADVICE.update({code: advice for code, (_meaning, advice) in _brought.items()})

# {reason code: what it means}
ALL = reasons.ALL
