# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a console.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class CallLimits:
    """Limits of one caller, and of all together."""

    body: int = 256 * 1024
    body_s: float = 15.0  # for a whole body to come
    rate: float = 100.0  # requests a second of a caller, over a while
    burst: int = 300
    changes: float = 0.5  # the same for what changes something
    changes_burst: int = 30
    streams: int = 200
    streams_of_one: int = 8
    stream_s: float = 900.0  # then a page asks anew
    callers: int = 10_000  # whose rates are remembered


@dataclasses.dataclass(frozen=True)
class Settings:
    """`hosts`: under which names the console is asked for; empty: any. `secure`: it is reached by https. `logs`: folder of the runner's
    actions with their logs; empty if it is on another machine."""

    results_dir: str
    history_url: str = ""
    namespace: str = ""
    hosts: frozenset[str] = frozenset()
    secure: bool = False
    logs: str = ""
    session_s: float = 3600.0  # without a request
    session_whole_s: float = 43_200.0
    rights_s: float = 10.0  # how long a right to look is remembered; a right to change something is asked for each time
    limits: CallLimits = CallLimits()
