# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of the runs that are judged in a results folder."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import sys
import typing as t

DOCUMENTATION = r"""
short_description: Yield finished runs, new findings and new regressions of a results folder
description:
  - Looks at a results folder again and again and yields an event for each run that was judged, for each finding that is new and for each
    number that became worse than its own past.
  - Every event is yielded at least once. The file O(position) remembers what was yielded, so that a restart goes on where the source ended.
  - The Python of ansible-rulebook needs the packages of the collection's requirements.txt.
options:
  results_dir:
    description: Folder of all runs.
    type: str
    required: true
  position:
    description: File that remembers what was yielded. Each source needs its own.
    type: str
    required: true
  interval:
    description: Seconds between two looks.
    type: float
    default: 10
  first:
    description:
      - What a source without a position does with the runs that are there already. With V(new) they are not yielded, and their findings are
        not new; with V(all) they are yielded.
    type: str
    default: new
    choices: [new, all]
  confirm_after:
    description:
      - Seconds after which an event counts as worked on. If ansible-rulebook ends earlier, the event is yielded again after a restart.
      - Not used with O(feedback).
    type: float
    default: 30
  feedback:
    description: Let ansible-rulebook say which events it has stored. It must run with a persistence id then, and the source needs a name.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: results
  gpufleet.acceptance.results_folder:
    results_dir: /srv/gpufleet/results
    position: /var/lib/gpufleet/eda-position.json
"""

# ansible-rulebook runs this file by itself: the collection that it belongs to need not be on Python's path.
for _folder in pathlib.Path(__file__).absolute().parents:
    if _folder.name == "ansible_collections" and str(_folder.parent) not in sys.path:
        sys.path.append(str(_folder.parent))

OPTIONS: dict[str, dict[str, t.Any]] = {
    "results_dir": {"type": "str", "required": True},
    "position": {"type": "str", "required": True},
    "interval": {"type": "float", "default": 10},
    "first": {"type": "str", "default": "new", "choices": ["new", "all"]},
    "confirm_after": {"type": "float", "default": 30},
    "feedback": {"type": "bool", "default": False},
}
logger = logging.getLogger(__name__)


async def main(queue: asyncio.Queue[t.Any], args: dict[str, t.Any]) -> None:
    """Yield events for ever. Raise an error of one sentence if the options, the folder or the position cannot be used."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import following, position

    given, feedback = position.options(OPTIONS, args)
    place = position.Position(given["position"])
    try:
        delivery = position.Delivery(queue, place, feedback, given["confirm_after"])
        folder = following.Folder(given["results_dir"], place, every=given["first"] == "all")
        while True:
            # In a thread: a large report takes a second, in which other sources go on.
            for problem in await asyncio.to_thread(folder.look):
                logger.warning("%s", problem)
            await delivery.deliver()
            await asyncio.sleep(given["interval"])
            delivery.confirm()
    finally:
        place.close()
