# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of the verdicts that are no PASS: each cause once, with everything that is bad because of it.

A stage says what its measurements convict (`Blame`); a part stands for what its node repeats of it, the part whose error counters rose for
every WARN that they made, and a node that was not measured for its pairs and groups that were not. Whatever nobody else is behind is a
cause by itself. No verdict is changed here.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, kind_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause, Measurement, Verdict

GOOD = ("PASS", "SKIPPED")
# Checks that a cause names beside the one whose reason it gives.
ALSO = 4
# What a number that is too low, or a link that broke under the test, says; another finding of the same check is one of its own.
LOW = frozenset({*reasons.LOW, "below_warn", "bad_rail", "localised"})


@dataclasses.dataclass(frozen=True)
class Blame:
    """`culprit`, the id of a subject of this `kind`, is `said` to be bad. Its own verdict stands at `own`; the checks that it `explains`
    may be low, or broken, because of it; with `whatever` it explains each of them whatever its reason is. Of error `counters` it explains
    the WARN that they are, and no number."""

    culprit: str
    kind: str
    said: str
    own: tuple[Key, ...] = ()
    explains: frozenset[Key] = frozenset()
    counters: bool = False
    whatever: bool = False


def found(verdicts: t.Iterable[Verdict], blames: t.Iterable[Blame], deciding: t.Mapping[Key, Measurement]) -> list[Cause]:
    """The causes of all verdicts that are no PASS: what was convicted first, then the worst."""
    return _Search({v.key: v for v in verdicts if v.verdict not in GOOD}, list(blames), deciding).causes()


class _Search:
    def __init__(self, bad: dict[Key, Verdict], blames: list[Blame], deciding: t.Mapping[Key, Measurement]) -> None:
        self.bad = bad
        self.deciding = deciding
        self.kinds: dict[str, str] = {}
        self.convicted: set[str] = set()
        self.own: dict[str, list[Key]] = collections.defaultdict(list)
        self.explains: dict[str, list[Key]] = collections.defaultdict(list)
        # What was said of a culprit in one sentence, with the checks of its own that this tells all of.
        self.said: dict[str, dict[str, list[Key]]] = collections.defaultdict(dict)
        self.rose: dict[str, dict[str, list[Key]]] = collections.defaultdict(dict)
        self.behind: dict[Key, str] = {}
        for blame in blames:
            self._take(blame)
        # Nodes of which a stage knows nothing: what it could not measure of their pairs and groups is theirs.
        unknown = [key for key, v in bad.items() if v.verdict == "UNKNOWN" and subjects.bearer(v.subject.kind, v.subject.id)[0] == "node"]
        self.silent = {(key.stage, key.subject) for key in unknown}
        # Checks of nodes that have the number and the verdict of one part, which says it.
        self.repeated: set[Key] = set()
        # {what _number returns: the parts whose own check says it}
        self.parts_by_number: dict[tuple[str | float | None, ...], list[str]] = collections.defaultdict(list)
        for key, v in bad.items():
            if _has_number(v) and key.subject != node_of(key.subject) and key not in self.behind:
                self.parts_by_number[self._number(key, v)].append(key.subject)
        for key, v in bad.items():
            if key not in self.behind:
                self._place(key, v)

    def _take(self, blame: Blame) -> None:
        own_keys = [key for key in blame.own if key in self.bad and self._is_of(key, blame)]
        explained = [key for key in sorted(blame.explains) if key in self.bad and self._is_of(key, blame)]
        own_here = [key for key in own_keys if self.behind.setdefault(key, blame.culprit) == blame.culprit]
        explained_here = [key for key in explained if self.behind.setdefault(key, blame.culprit) == blame.culprit]
        if not own_keys and not explained_here:
            return
        self.kinds[blame.culprit] = blame.kind
        if not blame.counters:
            self.convicted.add(blame.culprit)
        self.own[blame.culprit] += [key for key in own_here if key not in self.own[blame.culprit]]
        self.explains[blame.culprit] += [key for key in explained_here if key not in self.explains[blame.culprit]]
        self.said[blame.culprit].setdefault(blame.said, []).extend([*own_here, *explained_here])

    def _counted(self, key: Key) -> bool:
        return (self.bad[key].verdict, self.bad[key].reason_code) == ("WARN", "evidence")

    def _is_of(self, key: Key, blame: Blame) -> bool:
        """Return True if a conviction explains what is bad about a check."""
        if blame.counters:
            return self._counted(key)
        if blame.whatever:
            return True
        record = self.deciding.get(key)
        unmeasured = self.bad[key].verdict == "UNKNOWN" and (record is None or record.outcome != "measured")
        return (unmeasured and key not in blame.own) or self.bad[key].reason_code in LOW

    def _place(self, key: Key, verdict: Verdict) -> None:
        """Behind a check that no stage has explained."""
        kind, bearer = subjects.bearer(verdict.subject.kind, verdict.subject.id)
        if kind != "node" and verdict.verdict == "UNKNOWN":
            silent = sorted(node for node in subjects.nodes_of(verdict.subject) if (key.stage, node) in self.silent)
            if silent:
                self.kinds.setdefault(silent[0], "node")
                self.explains[silent[0]].append(key)
                return
        culprits = {key.subject: str(verdict.subject.kind)}
        if kind == "node":
            part = self._part_said(bearer, key, verdict)
            culprits = self._counters(key, bearer) if self._counted(key) else {}
            culprits = culprits or {part: kind_of(part)}
        for culprit, kind in culprits.items():
            self.kinds.setdefault(culprit, kind)
            self.own[culprit].append(key)

    def _part_said(self, node: str, key: Key, verdict: Verdict) -> str:
        """Return the part that a node's reason or number is about, or the subject itself."""
        whom = verdict.reason.split(": ", 1)[0]
        if whom.startswith(f"{node}/") and node_of(whom) == node:
            return whom
        parts = self.parts_by_number.get(self._number(key, verdict), ()) if _has_number(verdict) else ()
        if len(parts) != 1:
            return verdict.subject.id
        self.repeated.add(key)
        return parts[0]

    @staticmethod
    def _number(key: Key, verdict: Verdict) -> tuple[str | float | None, ...]:
        return key.stage, key.check, key.variant, node_of(key.subject), verdict.metric, verdict.value, verdict.verdict

    def _counters(self, key: Key, node: str) -> dict[str, str]:
        """The parts of a node whose counters rose in a test, with their kinds."""
        changes = (self.deciding[key].evidence.get("changes") or []) if key in self.deciding else []
        counters = {}
        for change in changes if isinstance(changes, list) else ():
            part = change.get("part") if isinstance(change, dict) else None
            name = f"{node}/{part}"
            if part and isinstance(part, str) and node_of(name) == node:
                counters[name] = kind_of(name)
                self.rose[name].setdefault(str(change.get("text") or change.get("code")), []).append(key)
        return counters

    def causes(self) -> list[Cause]:
        culprits = dict.fromkeys((*self.own, *self.explains))
        causes = [self._cause(culprit) for culprit in culprits if self.own[culprit] or self.explains[culprit]]
        return sorted(causes, key=lambda c: (-SEVERITY[c["verdict"]], not c["convicted"], -len(c["explains"]), c["subject"]))

    def _cause(self, culprit: str) -> Cause:
        own_keys, explained = self.own.get(culprit, []), self.explains.get(culprit, [])
        own_keys = sorted(own_keys, key=lambda key: (-self._severity(key), key))
        sentences = dict(self.said.get(culprit, {}))
        if culprit in self.rose:
            texts, tests = list(self.rose[culprit]), {key for keys in self.rose[culprit].values() for key in keys}
            count = f" in {len(tests)} tests" if len(tests) > 1 else ""
            unsaid = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
            sentences[f"error counters rose{count}: {'; '.join(texts[:4])}{unsaid}"] = list(tests)
        covered = {key for keys in sentences.values() for key in keys}
        parts = [(max(map(self._severity, keys or own_keys)), text) for text, keys in sentences.items()]
        # {reason: the first check that says it}
        reasons_left: dict[str, Key] = {}
        for key in own_keys:
            if key not in covered and key not in self.repeated:
                reasons_left.setdefault(self._reason(key, culprit), key)
        if reasons_left:
            (first, key), *others = reasons_left.items()
            parts.append((self._severity(key), f"{first}{self._also(key, others)}"))
        parts.sort(key=lambda part: -part[0])
        reason = "; ".join(text for _severity, text in parts) or "not measured"
        return Cause(
            subject=culprit, kind=self.kinds[culprit], convicted=culprit in self.convicted, whole=not reasons_left,
            verdict=max((self.bad[key].verdict for key in (*own_keys, *explained)), key=SEVERITY.__getitem__),
            said=f"{subjects.spoken(culprit)}: {reason}{self._because(explained)}", own=own_keys, explains=sorted(explained),
        )  # fmt: skip

    def _also(self, first: Key, others: t.Sequence[tuple[str, Key]]) -> str:
        """Return the reasons beside the first one, each of which may have another cause: a single one of another check in full, else what
        differs of a variant of the same check, and the names of other checks, each with what its variant has another value of."""
        if not others:
            return ""
        if len(others) == 1 and others[0][1][:2] != first[:2]:
            return f"; also {others[0][0]}"
        names = dict.fromkeys(
            " ".join([key.stage, key.check, *_other_values(key.variant, first.variant)])
            if key[:2] != first[:2]
            else _differing(key.variant, first.variant)
            for _reason, key in others
        )
        unsaid = f" and {len(names) - ALSO} more" if len(names) > ALSO else ""
        return f"; also {', '.join(list(names)[:ALSO])}{unsaid}"

    def _severity(self, key: Key) -> int:
        return SEVERITY[self.bad[key].verdict]

    def _reason(self, key: Key, culprit: str) -> str:
        """Return the reason of a check without the name of its subject."""
        text = self.bad[key].reason
        for name in (culprit, node_of(culprit)):
            text = text.removeprefix(f"{name}: ")
        stages = {k.stage for k in self.own[culprit] if self.bad[k].reason == self.bad[key].reason}
        return f"{key.stage} {key.check}: {text}" if len(stages) == 1 else text  # a node that was lost was so in every stage

    def _because(self, explained: list[Key]) -> str:
        whom = {self.bad[key].subject.id: self.bad[key].subject.kind for key in explained}
        if not whom:
            return ""
        words = {self.bad[key].verdict for key in explained}
        is_low = all(self.bad[key].reason_code in LOW for key in explained)
        how = "were not measured" if words == {"UNKNOWN"} else "are a WARN" if words == {"WARN"} else "are low" if is_low else "are bad"
        if len(whom) == 1:
            how = how.replace("are", "is").replace("were", "was")
        return f"; {subjects.counted(whom.values())} {how} because of it"


def _has_number(verdict: Verdict) -> bool:
    """Return True for a number of a metric. A count, as of restarts, has none: that of a node is not that of a part with the same count."""
    return verdict.value is not None and verdict.metric is not None


def _other_values(variant: str, first: str) -> list[str]:
    """Return the words of a variant that have another value in the first one: `storage=home` beside `storage=scratch`."""
    values = dict(word.split("=", 1) for word in first.split() if "=" in word)
    return [word for word in variant.split() if values.get(word.partition("=")[0], word.partition("=")[2]) != word.partition("=")[2]]


def _differing(variant: str, first: str) -> str:
    """Return the words of a variant that another one of the same check does not have: `mode=together`."""
    known = set(first.split())
    return " ".join(word for word in variant.split() if word not in known) or "another finding of this check"
