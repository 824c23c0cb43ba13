# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Coherence of a file system that nodes share: their files, locks, renames and owners as the other nodes see them, and how soon.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks, shared_files, timeline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import form
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, is_number

# What one node has written and synced another one reads within so many ms.
VISIBLE_MS = 1000.0
# Nodes that a finding names.
SHOWN = 4
# The form of what nodes say; what has another one is not read.
_NAMES, _WORDS = form.list_of(form.is_text), form.perhaps(form.object_of(form.is_text))
_OWNER = form.perhaps(form.row(form.is_count, form.is_count))
is_of_probe = form.with_keys(
    nodes=_NAMES, sizes=form.list_of(form.is_count), index=form.is_count, unseen=_NAMES, locks=_WORDS, not_looked_for=_WORDS,
    echo=form.perhaps(form.with_keys(trips=form.is_count)), few=form.perhaps(form.with_keys()), link=form.perhaps(form.with_keys()),
    owners=form.perhaps(form.with_keys(own=_OWNER, next=_OWNER, process=_OWNER)),
    machine=form.perhaps(form.is_text), stated=form.perhaps(form.object_of(is_number)),
)  # fmt: skip


def by_file_system(stage: str, deciding: t.Mapping[Key, Measurement]) -> list[dict[Key, Measurement]]:
    """Return the checks of what nodes see of each other, for each file system."""
    writers: dict[str, dict[Key, Measurement]] = collections.defaultdict(dict)
    for key, record in deciding.items():
        if key.stage == stage and key.check == checks.COHERENT and "unseen" in record.context and is_of_probe(record.context):
            writers[key.variant][key] = record
    return list(writers.values())


def opinions(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield what nodes see wrongly of each other on one file system, and what could not be tried."""
    for find in (_unseen, _unlocked, _late, _untried, _owners):
        yield from find(of_storage)


def _unseen(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield FAIL for each node that does not see the files of more than half of the other nodes that have written some (UNKNOWN if so many
    nodes do not that nobody knows who is right), and UNKNOWN for each that does not see those of a node with which nothing else is wrong:
    the fault may be at either."""
    names = {key.subject for key in of_storage}
    blind = {key: [name for name in record.context["unseen"] if name in names] for key, record in of_storage.items()}
    apart = {key.subject for key, unseen in blind.items() if 2 * len(unseen) > len(names) - 1}
    for key, unseen in blind.items():
        is_apart = key.subject in apart
        shown = unseen if is_apart else [name for name in unseen if name not in apart]
        if shown:
            more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
            words = f"{of_storage[key].context.get('storage')}: files that {', '.join(shown[:SHOWN])}{more} wrote are not seen here"
            if is_apart and 2 * len(apart) >= len(names):
                words += f", and {len(apart)} of {len(names)} nodes do not see the files of most others: no majority says which is right"
                yield key, Opinion("UNKNOWN", words, "mount_differs")
            elif is_apart:
                yield key, Opinion("FAIL", f"{words}: another file system is mounted at the path", "mount_differs")
            else:
                yield key, Opinion("UNKNOWN", f"{words}, and this node sees those of others", "unresolved")


def _unlocked(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield FAIL for each node that took a lock which the first node held, and UNKNOWN for each whose try tells nothing. A file system
    without such locks on both nodes is no fault; the measurement says so."""
    holder = next((record for record in of_storage.values() if record.context.get("index") == 0), None)
    held: dict[str, str] = (holder.context.get("locks") or {}) if holder else {}
    for key, record in of_storage.items():
        if record is holder:
            continue
        locks: dict[str, str] = record.context.get("locks") or {}
        # A node that did not see the first one replace its file may have begun when that one had let its locks go.
        is_in_time = "rename" not in (record.context.get("not_looked_for") or {})
        told = {("taken", "refused"), *([("taken", "taken")] if is_in_time else [])}
        taken = [kind for kind, what in locks.items() if is_in_time and (held.get(kind), what) == ("taken", "taken")]
        untold = [
            f"{kind} ({what} here, {held.get(kind, 'nothing known')} on the first node)"
            for kind, what in locks.items()
            if (held.get(kind), what) not in told and not _have_none(held.get(kind), what)
        ]
        storage = record.context.get("storage")
        if holder is not None and taken:
            words = f"{' and '.join(taken)} took a lock that {holder.subject.id} held: locks do not hold between nodes"
            yield key, Opinion("FAIL", f"{storage}: {words}", "file_system")
        if untold:
            yield key, Opinion("UNKNOWN", f"{storage}: whether locks hold between nodes is not known: {', '.join(untold)}", "incomplete")


def _have_none(first: str | None, here: str) -> bool:
    """Return True if two nodes say alike that their file system has no such lock, each in the words of its kernel."""
    return first == here and first not in ("taken", "refused", shared_files.LATE)


def _late(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield WARN for each node whose synced data another one read later than within a second, and UNKNOWN for each that got no answer at
    all from one that was asked."""
    asked = {key.subject for key, record in of_storage.items() if "echo" in record.context}
    for key, record in of_storage.items():
        echo, names, index = record.context.get("echo"), record.context.get("nodes") or [], record.context.get("index")
        if not isinstance(echo, dict) or not isinstance(index, int) or not names:
            continue
        partner, storage = names[(index + 1) % len(names)], record.context.get("storage")
        most = echo.get("most_ms")
        if is_number(most) and float(most) > VISIBLE_MS:
            words = f"{storage}: what this node had written and synced, {partner} read up to {float(most) / 1e3:.1f} s later"
            yield key, Opinion("WARN", f"{words}, expected within {VISIBLE_MS / 1e3:g} s", "late_data", float(most), "ms")
        elif not echo.get("trips") and partner in asked and partner not in record.context["unseen"]:
            words = f"{storage}: {partner} answered nothing within {timeline.ECHO_S:g} s"
            yield (
                key,
                Opinion(
                    "UNKNOWN", f"{words}: whether it reads within {VISIBLE_MS / 1e3:g} s what is written here is not known", "incomplete"
                ),
            )


def _untried(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield UNKNOWN for each node that was too late for what nodes try with each other, or that did not see the first node replace its
    file although that one did: nothing was found because nothing was tried."""
    first = next((record for record in of_storage.values() if record.context.get("index") == 0), None)
    for key, record in of_storage.items():
        not_tried = record.context.get("not_looked_for")
        not_tried = not_tried if isinstance(not_tried, dict) else {}
        listed = [str(not_tried["visible"])] if "visible" in not_tried and "echo" not in record.context else []
        is_seen = first is not None and first.subject.id not in record.context["unseen"] and "replaced" in first.context
        listed += [str(not_tried["rename"])] if "rename" in not_tried and (is_seen or record is first) else []
        if listed:
            words = "; ".join(dict.fromkeys(listed))
            yield key, Opinion("UNKNOWN", f"{record.context.get('storage')}: not all was tried with the other nodes: {words}", "incomplete")


def _owners(of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield WARN for each node whose files belong to somebody else than those of most nodes, or that sees another owner of the next node's
    file than that node itself."""
    owners = {key: record.context["owners"] for key, record in of_storage.items() if isinstance(record.context.get("owners"), dict)}
    own = {key.subject: tuple(each["own"]) for key, each in owners.items() if each.get("own")}
    usual, count = collections.Counter(own.values()).most_common(1)[0] if own else ((), 0)
    for key, each in owners.items():
        names, index = of_storage[key].context.get("nodes") or [key.subject], int(of_storage[key].context.get("index") or 0)
        partner, storage = names[(index + 1) % len(names)], of_storage[key].context.get("storage")
        mine = own.get(key.subject)
        if mine and mine != usual and 2 * count > len(own):
            words = f"files that it writes belong to {_owner(mine)}, on {count} of {len(own)} nodes to {_owner(usual)}"
            yield key, Opinion("WARN", f"{storage}: {words}: users are mapped in another way (root_squash, idmap)", "mount_differs")
        elif partner in own and each.get("next") and tuple(each["next"]) != own[partner]:
            words = f"the file of {partner} belongs to {_owner(each['next'])} here, to {_owner(own[partner])} there"
            yield key, Opinion("WARN", f"{storage}: {words}: users are mapped in another way (idmap)", "mount_differs")


def _owner(pair: t.Sequence[t.Any]) -> str:
    return f"user {pair[0]} and group {pair[1]}" if len(pair) == 2 else "nobody known"


def begun_apart(stage: str, curve: Measurement, deciding: t.Mapping[Key, Measurement]) -> list[str]:
    """Return the nodes that did not see the first one replace its file while it did: nothing shows that they began when it did."""
    for of_storage in by_file_system(stage, deciding):
        first = next((record for record in of_storage.values() if record.context.get("index") == 0), None)
        if first is not None and first.variant == curve.variant and "replaced" in first.context:
            return [
                key.subject
                for key, record in of_storage.items()
                if "rename" in (record.context.get("not_looked_for") or {}) and first.subject.id not in record.context["unseen"]
            ]
    return []


def visible(coherent: t.Sequence[Measurement]) -> PlainData:
    """Return {"ms": median, "most_ms": of the slowest node, "node"} of how soon a node reads what another has written and synced."""
    echoes = {record.subject.id: record.context.get("echo") or {} for record in coherent}
    known = {node: echo for node, echo in echoes.items() if is_number(echo.get("ms")) and is_number(echo.get("most_ms"))}
    if not known:
        return {}
    node = max(known, key=lambda name: float(known[name]["most_ms"]))
    return {"ms": statistics.median(float(echo["ms"]) for echo in known.values()), "most_ms": known[node]["most_ms"], "node": node}


def visible_words(visible: t.Mapping[str, t.Any]) -> list[str]:
    if not visible:
        return []
    return [
        f"What a node has written and synced the next one reads {visible['ms']:.3g} ms later, at most {visible['most_ms']:.4g} ms "
        f"({visible['node']})."
    ]
