# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture of a fabric as SVG: the switches above the leaves, the leaves with the rails that they serve, the nodes below them, and what is
bad in red. Healthy nodes of a large fabric are one box for each group of leaves.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import html
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.groups import Groups
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Finding, Map, in_order

WIDTH = 1000
# Up to so many nodes, and so many cables between switches, each is drawn; of larger fabrics only those with a finding.
NODES, CABLES = 64, 400
# Nodes with a finding that a group shows, switches that are drawn above the leaves, groups, and words of a box.
BAD, ABOVE, GROUPS, WORD = 16, 256, 512, 13
_BOX, _NODE, _HIGH, _GAP, _ROW, _NARROW = 96, 52, 26, 8, 70, 225
_COLOURS = {"FAIL": "var(--FAIL,#b3261e)", "UNKNOWN": "var(--UNKNOWN,#5b3f9e)", "WARN": "var(--WARN,#8a5200)"}
_WORST = ("FAIL", "UNKNOWN", "WARN")
_INK, _LINE, _PANEL = "var(--ink,#1a2027)", "var(--line,#d8dde3)", "var(--panel,#f5f7f9)"


class _Box(t.NamedTuple):
    """A box: its left upper corner, its width, its words, and the verdict that colours it."""

    x: float
    y: float
    width: float
    words: str
    verdict: str
    title: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def draw(fabric: Map, findings: t.Sequence[Finding]) -> str:
    """Return the picture of a fabric with its findings; empty if no node is plugged into a switch."""
    return _Picture(fabric, findings).text() if fabric.leaves() else ""


class _Picture:
    def __init__(self, fabric: Map, findings: t.Sequence[Finding]) -> None:
        self.fabric = fabric
        self.bad: dict[End, str] = {}
        self.words: dict[str, list[str]] = collections.defaultdict(list)
        for finding in sorted(findings, key=lambda each: _WORST.index(each.verdict) if each.verdict in _WORST else len(_WORST)):
            if finding.verdict not in _WORST:
                continue
            for end in finding.ends:
                self.bad.setdefault(end, finding.verdict)
                self.words[end.device].append(finding.words)
        self.of_device: dict[str, str] = {}
        for end, verdict in sorted(self.bad.items(), key=lambda item: _WORST.index(item[1])):
            self.of_device.setdefault(end.device, verdict)
        self.groups = Groups(fabric)
        self.leaves = fabric.leaves()
        self.every_node = len(fabric.ports) <= NODES
        most = max(map(len, self.groups.leaves))
        self.columns = min(len(self.groups.leaves), max(1, int(WIDTH // max(_NARROW, most * (64 + _GAP) + _GAP))))
        self.lines: list[str] = []
        self.boxes: list[str] = []
        self.at: dict[str, _Box] = {}
        self.railed = any(len(ends) > 1 for ends in fabric.ports.values())
        self.rail = {end: number for ends in fabric.ports.values() for number, end in enumerate(ends, 1)}

    def text(self) -> str:
        bottom = self._above(24)
        shown, columns = list(self.groups.leaves)[:GROUPS], self.columns
        for first in range(0, len(shown), columns):
            each = WIDTH / columns
            bottom = max(self._group(group, bottom, place * each, each) for place, group in enumerate(shown[first : first + columns]))
        bottom = self._alone(bottom)
        self._cables()
        left = len(self.groups.leaves) - GROUPS
        if left > 0:
            self._label(4, bottom + 14, f"and {left} more groups of leaves")
            bottom += 24
        height = math.ceil(bottom + 8)
        named = html.escape(f"The fabric: {len(self.fabric.ports)} nodes, {len(self.leaves)} leaves, {len(self.bad)} ports with findings")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{named}" viewBox="0 0 {WIDTH} {height}" width="100%" '
            f'style="max-width:{WIDTH}px" font-family="inherit" font-size="11">{"".join(self.lines)}{"".join(self.boxes)}</svg>'
        )

    # Boxes -------------------------------------------------------------------------------------------------------------------

    def _above(self, top: float) -> float:
        """Draw the switches that no node is plugged into, in rows; return where the leaves begin."""
        above = sorted(
            (id_ for id_, device in self.fabric.devices.items() if device.kind == SWITCH and id_ not in self.leaves),
            key=lambda each: in_order(self.fabric.name(each)),
        )
        if not above:
            return top
        # Those with findings are always there.
        shown = [each for each in above if each in self.of_device]
        shown = sorted({*shown, *above[: max(0, ABOVE - len(shown))]}, key=lambda each: in_order(self.fabric.name(each)))
        words = f"{len(above)} switches above the leaves" + (f", {len(shown)} of them drawn" if len(shown) < len(above) else "")
        words += "" if self._drawn() else f"; of {self._between()} cables to them those with a finding are drawn"
        self._label(4, 12, words)
        across = min(len(shown), int((WIDTH - _GAP) // (_BOX + _GAP)))
        start = (WIDTH - across * (_BOX + _GAP)) / 2
        for number, switch in enumerate(shown):
            row, column = divmod(number, across)
            self._box(switch, start + column * (_BOX + _GAP), top + row * (_HIGH + _GAP), _BOX, self.fabric.name(switch))
        return top + math.ceil(len(shown) / across) * (_HIGH + _GAP) + (_ROW if self._drawn() else 24)

    def _drawn(self) -> bool:
        """Return True if each cable between a leaf and the switches above it is drawn: all leaves stand in one row."""
        return self.every_node and len(self.groups.leaves) <= self.columns and self._between() <= CABLES

    def _between(self) -> int:
        return sum(end.device in self.leaves and self._is_above(far) for end, far in self.fabric.links.items())

    def _is_above(self, far: End) -> bool:
        return self.fabric.kind(far.device) == SWITCH and far.device not in self.leaves

    def _group(self, group: tuple[str, ...], top: float, left: float, width: float) -> float:
        """Draw a group of leaves with its nodes; return where what is below it begins."""
        leaves = self.groups.leaves[group]
        nodes = sorted((node for node, of in self.groups.of_node.items() if of == group), key=in_order)
        bad = [node for node in nodes if node in self.of_device]
        if not self.every_node:
            self._label(left + 4, top + 11, f"{_range(nodes)} ({len(nodes)} nodes)")
            top += 16
        across = max(1, int((width - _GAP) // (64 + _GAP)))
        wide = min(_BOX, (width - _GAP) / min(len(leaves), across) - _GAP)
        rows = math.ceil(len(leaves) / across)
        for number, leaf in enumerate(leaves):
            row, column = divmod(number, across)
            count = min(len(leaves) - row * across, across)
            start = left + (width - count * (wide + _GAP) + _GAP) / 2
            self._box(leaf, start + column * (wide + _GAP), top + row * (_HIGH + 18), wide, self.fabric.name(leaf))
            rails = collections.Counter(
                self.rail[self.fabric.links[end]] for end in self.leaves[leaf] if self.fabric.links[end] in self.rail
            )
            rail, most = max(rails.items(), key=lambda item: item[1], default=(0, 0))
            ports = f"rail {rail}" if 2 * most > sum(rails.values()) and self.railed else f"{len(self.leaves[leaf])} ports"
            self._label(start + column * (wide + _GAP), top + row * (_HIGH + 18) + _HIGH + 12, ports)
        top += rows * (_HIGH + 18) + (30 if self.every_node or bad else 2)
        shown = nodes if self.every_node else bad[:BAD]
        rest = len(nodes) - len(shown)
        texts = [*((node, node) for node in shown)]
        if rest and not self.every_node:
            hidden = len(bad) - len(shown)
            texts.append(("", f"{rest} nodes" + (f", {hidden} bad" if hidden > 0 else "")) if shown else ("", ""))
        texts = [pair for pair in texts if pair[1]]
        across = max(1, int((width - _GAP) // (_NODE + _GAP)))
        for number, (node, words) in enumerate(texts):
            row, column = divmod(number, across)
            count = min(len(texts) - row * across, across)
            wide = min(_BOX, (width - _GAP) / min(len(texts), across) - _GAP)
            start = left + (width - count * (wide + _GAP) + _GAP) / 2
            self._box(node, start + column * (wide + _GAP), top + row * (_HIGH + _GAP), wide, words)
        return top + math.ceil(len(texts) / across) * (_HIGH + _GAP) + (10 if texts else 4)

    def _alone(self, top: float) -> float:
        """Draw the nodes that are at no group of leaves, as far as a finding names them; return where the picture ends."""
        alone = [node for node in sorted(self.fabric.ports, key=in_order) if node not in self.groups.of_node and node in self.of_device]
        if not alone:
            return top
        self._label(4, top + 14, f"nodes that are not at one group of leaves: {len(alone)}")
        across = int((WIDTH - _GAP) // (_BOX + _GAP))
        for number, node in enumerate(alone[: 4 * across]):
            row, column = divmod(number, across)
            self._box(node, 4 + column * (_BOX + _GAP), top + 40 + row * (_HIGH + 24), _BOX, node)
        return top + 40 + math.ceil(min(len(alone), 4 * across) / across) * (_HIGH + 24)

    def _box(self, device: str, x: float, y: float, width: float, words: str) -> None:
        verdict = self.of_device.get(device, "") if device else ""
        said = self.words.get(device, [])
        more = [f"and {len(said) - 6} more"] if len(said) > 6 else []
        title = "; ".join([self.fabric.name(device) if device else words, *said[:6], *more])
        box = _Box(x, y, width, words, verdict, title)
        if device:
            self.at[device] = box
        colour = _COLOURS.get(verdict, _LINE)
        most = max(4, int(width / 6.4))
        short = words if len(words) <= most else words[: most // 2 - 1] + "…" + words[-(most - most // 2) :]
        dashed = "" if device else ' stroke-dasharray="3 3"'
        self.boxes.append(
            f'<g><title>{html.escape(title)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HIGH}" rx="4" '
            f'fill="{_PANEL}" stroke="{colour}" stroke-width="{2.5 if verdict else 1}"{dashed}/>'
            f'<text x="{box.middle:.1f}" y="{y + 17:.1f}" text-anchor="middle" fill="{_COLOURS.get(verdict, _INK)}">{html.escape(short)}'
            "</text></g>"
        )

    def _label(self, x: float, y: float, words: str) -> None:
        self.boxes.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="var(--soft,#55606b)">{html.escape(words)}</text>')

    # Cables ------------------------------------------------------------------------------------------------------------------

    def _cables(self) -> None:
        """Draw each cable between two boxes once, the bad ones last; a bad end without a cable is a stub with its port."""
        every_up = self._drawn()
        good: dict[tuple[str, str], int] = collections.Counter()
        bad: list[tuple[End, End, str]] = []
        for end, far in self.fabric.links.items():
            if end > far or end.device not in self.at or far.device not in self.at:
                continue
            verdict = next((each for each in _WORST if each in (self.bad.get(end), self.bad.get(far))), "")
            if verdict:
                bad.append((end, far, verdict))
            elif NODE in (self.fabric.kind(end.device), self.fabric.kind(far.device)) or every_up:
                good[end.device, far.device] += 1
        for (a, b), count in good.items():
            self._line(a, b, _LINE, 1 + min(2.0, math.log2(count) / 2), "")
        for end, far, verdict in bad:
            self._line(end.device, far.device, _COLOURS[verdict], 2, f"{self.fabric.spoken(end)} - {self.fabric.spoken(far)}")
        stubs: collections.Counter[str] = collections.Counter()
        for end, verdict in sorted(self.bad.items()):
            if end in self.fabric.links or end.device not in self.at or not end.port:
                continue
            box = self.at[end.device]
            up = self.fabric.kind(end.device) == NODE or end.device in self.leaves
            x = box.x + 6 + 7 * stubs[end.device] % max(1.0, box.width - 12)
            stubs[end.device] += 1
            y, way = (box.y, -1) if up else (box.y + _HIGH, 1)
            self.lines.append(
                f'<g stroke="{_COLOURS[verdict]}" stroke-width="2"><title>{html.escape(self.fabric.spoken(end))}</title>'
                f'<path fill="none" stroke-dasharray="3 2" d="M{x:.1f} {y:.1f}v{14 * way}"/>'
                f'<path fill="none" d="M{x - 3:.1f} {y + 17 * way:.1f}l6 {6 * way}m0 {-6 * way}l-6 {6 * way}"/></g>'
            )

    def _line(self, a: str, b: str, colour: str, width: float, title: str) -> None:
        upper, lower = sorted((self.at[a], self.at[b]), key=lambda box: box.y)
        named = f"<title>{html.escape(title)}</title>" if title else ""
        self.lines.append(
            f'<path fill="none" stroke="{colour}" stroke-width="{width:.1f}" d="M{upper.middle:.1f} {upper.y + _HIGH:.1f}'
            f'L{lower.middle:.1f} {lower.y:.1f}">{named}</path>'
        )


def _range(names: t.Sequence[str]) -> str:
    if not names:
        return "no nodes"
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
