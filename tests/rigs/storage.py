# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of file systems need on a host of the fleet: its root lies over this machine's, so that tools are installed here."""

from __future__ import annotations

PACKAGES = {"fio": "fio", "sshfs": "sshfs"}
