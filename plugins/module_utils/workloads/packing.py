# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A workload as one text, with the modules that it uses in front of it: it runs under the node's Python, where this collection is not.

A module that is packed imports nothing of this collection but what is packed in front of it, and that only where it has no such name yet.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import types

_FUTURE = "from __future__ import annotations\n"


def packed(*modules: types.ModuleType) -> str:
    """The texts of these modules as one, from a file, a zip or memory: wherever this collection was unpacked."""
    return _FUTURE + "".join(f"\n# {module.__name__}\n" + _text(module).replace(_FUTURE, "") for module in modules)


def _text(module: types.ModuleType) -> str:
    source = module.__loader__.get_source(module.__name__)  # type: ignore[union-attr]
    return source if isinstance(source, str) else source.decode()  # Ansible's own loader has bytes
