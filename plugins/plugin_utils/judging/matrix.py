# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a matrix of pair tests: who is bad, the node, the port, the path or the switch.

Pure. A cell is one test between two ports. What speaks for what:

    a bad row      the port; the same node's rows on all its rails: the node
    a bad cell     the path between two ports that are good elsewhere
    a bad block    the path between two leaf switches; all blocks of one leaf: the switch

The matrix alone convicts nobody: `Diagnosis.again` names the tests that are still needed, with other good partners, and
their cells (`again=True`) are added to the matrix before it is read once more:

    diagnosis = diagnose_matrix(cells)
    while diagnosis.again:
        cells += [measure(a, b, rail) for a, b, rail in diagnosis.again]      # again=True
        diagnosis = diagnose_matrix(cells)

Where a cell is `directed` its first port sends and its second receives, and a port is judged in both roles by themselves, as if
they were two: what is bad one way only is found as surely as what is bad both ways, and the finding says which end sends.

A cell between ports of different rates is held to the slower one's: a good number says nothing of the faster port, which is good
only where it met one as fast as itself.

A port is convicted when it misses the floor again with two different good partners, a path when it misses it again
while both ends meet it again with others, and only where chance gives so many bad tests hardly ever:

    p = C * (n - k + 1) * P(Binomial(n, q) >= k) <= ALPHA

k of its n tests were bad, the mildest of them at a share t of its floor; C is how many ports or paths there are. q is how often a
test of a healthy subject comes out at t or below: at least NOISE, or as often as those first tests of others that nobody else is to
blame for, with two standard errors: (b + 2 sqrt(b)) / m for b of m. So one diagnosis convicts an innocent by the scatter of its tests
with a chance of at most ALPHA (1 + ln n) for each kind of subject, whatever their distribution. A port's tests count without those of
its two worst partners (of three, where it has eight or more; one partner always counts).

What comes and goes elsewhere must not be taken for a fault of its own. A path must besides differ from the other tests of both of its
ends, a block from those of both leaves with third ones (Fisher's exact test over the tests that were asked for, as whatever is suspected
was bad before; times the number of paths suspected or of blocks, and n - k + 1; at most ALPHA): a port that fails some of its tests is no
bad path. Where a path or a port is not told from a leaf switch, or from the way between two, in that manner, the finding names these.
What does not reach this, after as many tests as are worth it, is unresolved.

A cell that was not measured is neither good nor bad: a port without a good cell is unresolved. One bad test makes a cell bad, however
often it was good: what fails half of its tests stays bad. What lies behind a bad port cannot be told:
`SearchFinding.not_looked_at` lists it.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import END_ALPHA, NOISE, SearchFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_chance import Chances, against, as_others, peel
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_findings import Findings, either, together
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_leaves import Leaves
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_paths import Paths
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_repeats import Confidence, Repeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import SENDING, Cell, PairTable, pair_of, role, whole

HEDGED_PATHS = 4  # so few bad paths of a port are named beside it: they may as well meet at a healthy one


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """`findings`, and the tests (port, port, rail) to run before the next reading, the port that sends first where cells are
    directed; one may be listed more than once."""

    findings: tuple[SearchFinding, ...]
    again: tuple[tuple[str, str, str], ...]

    @property
    def clean(self) -> bool:
        """Every cell was measured and met its floor."""
        return not self.findings


def diagnose_matrix(
    cells: Iterable[Cell],
    *,
    better: Literal["higher", "lower"] = "higher",
    topology: Mapping[str, str] | None = None,
    unit: str = "Gb/s",
) -> Diagnosis:
    """Reads each cell against its own floor, a limit where `better` is lower (latency).

    `topology`: leaf switch by port id or by node. Raises ValueError for a cell of one port, or a floor that is no number.
    """
    return _Reading(PairTable(list(cells), better, topology or {}, unit)).diagnose()


class _Reading:
    """One reading of a matrix: from its table to findings."""

    def __init__(self, table: PairTable) -> None:
        self.table = table
        self.chances = Chances(table)
        self.repeats = Repeats(table, self.chances)
        self.findings = Findings(table)

    def diagnose(self) -> Diagnosis:
        leaves = Leaves(self.table, self.chances, self.repeats, self.findings)
        switches, blocks = leaves.suspected()
        inside = {port for leaf in switches for port in self.table.leaf_ports[leaf]}
        explained = self.chances.explained = {pair for pair in self.table.state if self.table.block_of(pair) in blocks}
        tests = {port: self.chances.tests_of(port, inside) for port in self.table.ports if port not in inside}
        usual = statistics.median([bad / max(1, every) for bad, every in map(against, tests.values())] or [0.0])
        rows = peel(tests, max(NOISE, 2 * usual))
        suspects = rows | inside
        self.chances.take_others(suspects)
        for leaf in sorted(switches):
            leaves.judge_switch(leaf, inside)
        for block in sorted(blocks):
            leaves.judge_block(block, inside)
        self._rows(rows, suspects)
        paths = [pair for pair, state in self.table.state.items() if state == "bad" and not suspects & set(pair) and pair not in explained]
        Paths(self.table, self.chances, self.repeats, self.findings, suspects).judge(paths)
        self._unmeasured(suspects)
        return Diagnosis(self.findings.merged(), tuple(self.repeats.requests))

    def _rows(self, rows: set[str], suspects: set[str]) -> None:
        states = {port: self.repeats.row(port, suspects) for port in sorted(rows)}
        # What fails now and then on half of a leaf's ports may as well be its switch.
        often = rows | {port for port, peers in self.table.bad.items() if len(peers - suspects) > 1}
        half_bad = {leaf for leaf, ports in self.table.leaf_ports.items() if self.table.many(often & {*ports}, (len(ports) + 1) // 2)}
        for node, ports in sorted(self.table.node_ports.items()):
            bad = [port for port in ports if port in rows]
            if not bad:
                continue
            roles: dict[str, list[str]] = defaultdict(list)
            for port in bad:
                roles[whole(port)].append(port)
            sure = {port: either([states[p] for p in role_ports]) for port, role_ports in roles.items()}
            every = set(map(whole, ports))
            if len(roles) == len(every) > 1:
                cells = [(p, o) for p in bad for o in self.table.bad[p] if o not in suspects]
                reason = f"bad rows on all its {len(every)} ports: {self._count(bad, suspects)}"
                self.findings.add("node", [node], together(list(sure.values())), reason, cells=cells, behind=bad)
                continue
            for port, role_ports in roles.items():
                siblings = {whole(p) for p in ports if self.table.good[p]} - set(roles)
                reason = f"bad row: {self._count(role_ports, suspects)}; "
                reason += f"{len(siblings)} other ports of the node meet it" if siblings else self._others(every - {port}, ports)
                cells = [(p, o) for p in role_ports for o in self.table.bad[p] if o not in suspects]
                alternatives = [] if siblings else [("node", node)]
                alternatives += [("switch", leaf) for leaf in {self.table.leaf[p] for p in role_ports} if leaf in half_bad]
                alternatives += [("switch", name) for p in role_ports for name in self._leaves_like(p, suspects)]
                alternatives += self._paths_like(role_ports, suspects)
                self.findings.add("nic", [port], sure[port], reason, cells=cells, alternatives=alternatives, behind=role_ports)

    def _others(self, others: set[str], roles: list[str]) -> str:
        """Return what is known of the other ports of a node, none of which is good; `roles` are those of all of its ports."""
        measured = {whole(p) for p in roles if self.table.bad[p]} & others
        if not measured:
            return "no other port of the node was measured"
        return f"none of the node's other ports meets it ({len(measured)} measured, {len(others - measured)} not)"

    def _paths_like(self, roles: list[str], suspects: set[str]) -> list[tuple[str, str]]:
        """Return the paths of a port, given by its roles, that fail most of their tests, if these are so few that they may as well be bad
        by themselves and meet at a healthy port."""
        pairs = [(p, o) for p in roles for o in self.table.bad[p] - suspects]
        paths = {"|".join(sorted(map(whole, pair))) for pair in pairs if statistics.median(self.table.depths[pair_of(*pair)]) < 1}
        return [("pair", path) for path in sorted(paths)] if len(paths) <= HEDGED_PATHS else []

    def _leaves_like(self, port: str, suspects: set[str]) -> list[str]:
        """Return alternative explanations for a bad port: its leaf switch, or the way to the only leaf with bad partners.

        Other ports of its leaf fail too often there, those apart that are never good and so are bad themselves, or were tried too seldom.
        """
        own_leaf = self.table.leaf[port]
        away = {
            o: self.table.leaf[o] or ""
            for o in self.table.bad[port] | self.table.good[port]
            if o not in suspects and self.table.leaf[o] not in (None, own_leaf)
        }
        bad_leaves = {leaf for peer, leaf in away.items() if peer in self.table.bad[port]}
        if own_leaf is None or not bad_leaves:
            return []
        neighbours = [p for p in self.table.leaf_ports[own_leaf] if p != port and self.table.good[p] - suspects]
        explanations = [(own_leaf, set(away.values()) | bad_leaves)] + [("|".join(sorted((own_leaf, *bad_leaves))), bad_leaves)] * (
            len(bad_leaves) == 1
        )
        alike: list[str] = []
        for name, leaves in explanations:
            port_results = [depth < 1 for o, leaf in away.items() if leaf in leaves for depth in self.table.depths[pair_of(port, o)]]
            pairs = [
                pair_of(p, o)
                for p in neighbours
                for o in self.table.bad[p] | self.table.good[p]
                if o not in suspects and self.table.leaf[o] in leaves
            ]
            met = [self.table.depths[pair][0] < 1 for pair in pairs if not self.table.always_bad(pair)]
            if as_others(sum(port_results), len(port_results), sum(met), len(met), len(self.table.ports)) > END_ALPHA:
                alike.append(name)
        return alike

    def _count(self, ports: list[str], suspects: set[str]) -> str:
        bad = sum(len(self.table.bad[p] - suspects) for p in ports)
        good = sum(len(self.table.good[p] - suspects) for p in ports)
        repeated_with = sorted({o for p in ports for o in self.table.again_bad[p] if o not in suspects})
        text = f"{bad} of {bad + good} cells with good partners miss the floor"
        directions = {role(p) for p in ports}
        if len(directions) == 1 and "" not in directions:
            text += " where it sends" if SENDING in directions else " where it receives"
        return f"{text}; again with {', '.join(repeated_with[:4])}" if repeated_with else text

    def _unmeasured(self, suspects: set[str]) -> None:
        """Add findings for unmeasured cells: ports without any result, then the other cells in one finding."""
        silent = {
            p for p in self.table.ports if p not in suspects and self.table.unknown[p] and not self.table.good[p] and not self.table.bad[p]
        }
        for port in sorted(set(map(whole, silent))):
            cells = [pair_of(p, peer) for p in sorted(silent) if whole(p) == port for peer in self.table.unknown[p]]
            reason = f"none of its {len(cells)} cells could be measured: {self.table.why(cells)}"
            self.findings.add("nic", [port], "unresolved", reason, cells=cells)
        self._slower(suspects)
        unmeasured = sorted(pair for pair, state in self.table.state.items() if state == "unknown" and not silent & set(pair))
        if unmeasured:
            reason = f"{len(unmeasured)} of {len(self.table.state)} cells were not measured: {self.table.why(unmeasured)}"
            members = sorted({port for pair in unmeasured for port in pair})
            self.findings.add("group", members, "unresolved", reason, cells=unmeasured, name="unmeasured")

    def _slower(self, suspects: set[str]) -> None:
        """Test again the ports whose partners were all slower, with a partner that is as fast."""
        for port in self.table.ports:
            if port in suspects or self.table.good[port] or self.table.bad[port]:
                continue
            slower = sorted(o for o in self.table.rate if self.table.state.get(pair_of(port, o)) == "good")
            if not slower:
                continue
            answers = [self.repeats.ask(port, p) for p in self.repeats.partners(port, 1, suspects)]
            rate = self.table.rate
            reason = f"all its partners were slower ({whole(slower[0])} and others of {rate[slower[0]]:g}, it has {rate[port]:g})"
            state: Confidence = "suspected" if any(answers) else "unresolved"
            cells = [(port, peer) for peer in slower]
            self.findings.add("nic", [port], state, f"{reason}: test it again with a partner that is as fast", cells=cells)
