# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of a context that only the peers of a part show: the rate that a port should have is not the one that it negotiated.

A measurement names its part in `of_peers` of its context, {what is compared: {"model", "machine", "place", "now", "sets"}}: the model of
the part, the product of its machine, its place in the machine, the value that it has now, and the keys of the context that go with this
value (`sets`, without it the key that is compared). From all of a run follows what parts of this model should have.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Measurement, is_number

NAME = "of_peers"
# Of a key: model and product, by place and node what the part there has now.
_Values = dict[tuple[str, str, str], dict[str, dict[str, float]]]


class Peer(t.NamedTuple):
    """One part as a measurement names it: what is compared, its model, the product of its machine, its place there, the value that it has
    now (None if it does not say it), and the keys of the context that go with this value."""

    key: str
    model: str
    machine: str
    place: str
    now: float | None
    sets: Context | None = None


def peers_of(record: Measurement) -> list[Peer]:
    """Return the parts that the context of a measurement names, as far as they have their form."""
    listed = record.context.get(NAME)
    if not isinstance(listed, dict):
        return []
    peers = []
    for name, of in listed.items():
        now = of.get("now") if isinstance(of, dict) else None
        sets = of.get("sets", {name: _whole(now) if is_number(now) else None}) if isinstance(of, dict) else None
        if isinstance(sets, dict) and set(sets) <= set(context_keys.MATCHED):
            model, machine, place = (str(of.get(word)) for word in ("model", "machine", "place"))
            peers.append(Peer(name, model, machine, place, float(now) if is_number(now) and now > 0 else None, sets))
    return peers


class PeerValues:
    """The values that parts are held to, taken from all parts of their model in a run."""

    def __init__(self, parts: t.Iterable[tuple[str, Peer]]) -> None:
        """`parts` are (node, part)."""
        self._values: _Values = collections.defaultdict(lambda: collections.defaultdict(dict))
        self._sets: dict[tuple[str, str, str, float], Context] = {}
        for node, peer in parts:
            if peer.now is not None:
                self._sets.setdefault((*peer[:3], peer.now), peer.sets or {})
                of_place = self._values[peer.key, peer.model, peer.machine][peer.place]
                of_place[node] = max(peer.now, of_place.get(node, peer.now))
        # {model in machines of a product, with a place: the value of should_be()}: each of thousands of nodes has the same parts.
        self._held_to: dict[tuple[str, str, str, str], float | None] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def best(self, peer: Peer) -> float | None:
        """Return the best value of any part of the model in machines of the product."""
        places = self._values.get((peer.key, peer.model, peer.machine), {})
        return max((value for by_node in places.values() for value in by_node.values()), default=None)

    def usual(self, peer: Peer) -> float | None:
        """Return the value that nearly all of enough machines of the product have in this place; None if there is none."""
        places = self._values.get((peer.key, peer.model, peer.machine), {})
        return t.cast("float | None", context_keys.agreed(list(places.get(peer.place, {}).values())))

    def should_be(self, peer: Peer) -> float | None:
        """Return the value that a part is held to: that of its place, if enough machines agree on it, else the best of its model."""
        part = peer[:4]
        if part not in self._held_to:
            usual = self.usual(peer)
            self._held_to[part] = self.best(peer) if usual is None else usual
        return self._held_to[part]

    def keys_of(self, peer: Peer) -> Context:
        """Return the keys of a context by which a part is held to what it should have; empty if nobody shows it."""
        value = self.should_be(peer)
        if value is None or value == peer.now:
            return peer.sets or {}
        return self._sets[(*peer[:3], value)]


def _whole(value: float) -> float:
    """Return a whole number as one: identical hardware has the same text in all contexts (peer_comparison.hardware)."""
    return int(value) if value == int(value) else value


def complete(records: t.Mapping[Key, list[Measurement]]) -> None:
    """Set in the context of each measurement that names peers what it is held to, in place."""
    all_records = (record for attempts in records.values() for record in attempts)
    values = PeerValues((node_of(record.subject.id), peer) for record in all_records for peer in peers_of(record))
    if not values:
        return
    for attempts in records.values():
        for number, record in enumerate(attempts):
            held_to = {key: value for peer in peers_of(record) for key, value in values.keys_of(peer).items()}
            changed = {key: value for key, value in held_to.items() if repr(record.context.get(key)) != repr(value)}
            if changed:
                attempts[number] = record.replaced(context={**record.context, **changed})
