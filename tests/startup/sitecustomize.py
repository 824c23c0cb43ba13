# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make Python's cycle collector run less often.

Every Python that has this folder in PYTHONPATH imports this file first. `make` sets it for tests and drills, which start thousands of short
programs: the collector finds nothing in them, and in each process that Ansible forks it writes to, and so copies, the pages of its parent.
"""

from __future__ import annotations

import gc

gc.set_threshold(50_000)
