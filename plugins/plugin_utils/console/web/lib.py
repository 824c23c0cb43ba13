# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the console's pages, loaded only here, and only by a process that opens the console.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# Each by itself, so that all names are there and need() can say what is missing.
try:
    import cryptography.fernet
except ImportError:
    cryptography = None  # type: ignore[assignment]
try:
    import prometheus_client
except ImportError:
    prometheus_client = None  # type: ignore[assignment]
try:
    import starlette.applications
    import starlette.concurrency
    import starlette.requests
    import starlette.responses
    import starlette.routing
except ImportError:
    starlette = None  # type: ignore[assignment]

__all__ = ["cryptography", "need", "prometheus_client", "starlette"]


def need() -> None:
    """One sentence where a package is missing."""
    packages = {"cryptography": cryptography, "prometheus_client": prometheus_client, "starlette": starlette}
    missing = [name for name, package in packages.items() if package is None]
    if missing:
        raise RunError(f"the console needs the Python packages {', '.join(missing)}; install the collection's requirements.txt")
