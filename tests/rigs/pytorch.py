# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PyTorch for hosts of the fleet, which lie over this machine's own files: Debian's, for its own Python."""

from __future__ import annotations

PACKAGES = {"/usr/lib/python3/dist-packages/torch": "python3-torch"}
# Of Debian, whatever else is called python3 here.
PYTHON = "/usr/bin/python3"
