# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event loop of everything that follows pods: probes of single nodes, groups and guardians.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import queue
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower

Handler = t.Callable[[t.Any], object]


class PodLoop:
    """Passes the news of a follower to the handler of their kind, and looks after the pods from time to time.

    `handlers`: {kind of news: function of their content}; news without a handler are dropped. `queues`: other sources of news, which are
    read before those of the follower. `look`: a function of the time by the monotonic clock, called at most every `look_s` seconds, for
    the first time at once or, if `wait_first`, after `look_s`.
    """

    def __init__(
        self,
        following: Follower,
        handlers: t.Mapping[str, Handler],
        queues: t.Sequence[queue.Queue[tuple[str, t.Any]]] = (),
        look: t.Callable[[float], object] | None = None,
        look_s: float = 0.0,
        wait_first: bool = False,
    ) -> None:
        self.following, self.handlers, self.queues = following, handlers, queues
        self._look, self._look_s = look, look_s
        self._looked = time.monotonic() if wait_first else float("-inf")

    def take(self, wait_s: float) -> None:
        """Handle the news that there are. Wait at most `wait_s` seconds if there are none."""
        for kind, content in self.following.news(wait_s, *self.queues):
            handler = self.handlers.get(kind)
            if handler is not None:
                handler(content)

    def look(self) -> None:
        """Look after the pods if it is time to."""
        now = time.monotonic()
        if self._look is not None and now - self._looked > self._look_s:
            self._looked = now
            self._look(now)
