# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address of a Redfish service.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import urllib.parse


def problem(url: str) -> str | None:
    """Return what is expected in place of `url`, None if it is the address of a Redfish service. The words do not quote it: somebody may
    have written a password into it."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.username or parts.password or parts.query or parts.path.strip("/") not in ("", "redfish/v1"):
        return "https://HOST or https://HOST:PORT, without a login"
    return None


def service_of(url: str) -> tuple[str, int]:
    """Return host and port of an address without a problem: the same for all ways to write the address of one service."""
    parts = urllib.parse.urlsplit(url)
    return str(parts.hostname).rstrip("."), parts.port or 443
