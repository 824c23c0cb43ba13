# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of cases as data: what each makes for others to name, what it takes, and what it is in words. engine.py does them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

Step = t.Mapping[str, t.Any]

# Steps that are about pods that run: side by side, known to a scheduler, or disturbed.
_OF_RUNNING = ("together", "restart", "drain")

_NAMED = re.compile(r"\{(\w+)\}")
_LOOPS = ("each", "repeat")
# What disturbs others than the case's own pods, and what takes a node.
DISTURBING, OF_NODE = ("restart", "drain", "uncordon"), ("drain", "uncordon")
# What a step inside of repeat may name besides parameters: the number of the round.
ROUND = "round"


@dataclasses.dataclass
class Names:
    """The objects that the steps of a case make, by the names that expressions use; names with `{}` stand for several."""

    groups: set[str] = dataclasses.field(default_factory=set)
    samples: set[str] = dataclasses.field(default_factory=set)
    changes: set[str] = dataclasses.field(default_factory=set)
    done: set[str] = dataclasses.field(default_factory=set)


def kind_of(step: Step) -> tuple[str, t.Any]:
    """A step's verb and what it takes."""
    (verb, taken), *_others = step.items()
    return str(verb), taken


def names(steps: t.Iterable[Step]) -> Names:
    """Return the names of the objects that steps make."""
    found = Names()
    for step in steps:
        verb, taken = kind_of(step)
        if verb == "make":
            found.groups.add(taken["group"])
        elif verb == "together":
            found.groups |= {one["group"] for one in taken["make"]}
            found.samples.add(taken["as"])
        elif verb in ("sample", "watch"):
            found.samples.add(taken["as"])
        elif verb == "change":
            found.changes.add(taken["as"])
        elif verb in ("restart", "drain", "uncordon", "alert"):
            found.done.add(taken["as"])
        elif verb in _LOOPS:
            inner = names(taken["do"])
            for field in dataclasses.fields(Names):
                mine: set[str] = getattr(inner, field.name)
                getattr(found, field.name).update(_spread(mine, taken) if verb == "each" else mine)
    return found


def _spread(mine: set[str], taken: Step) -> set[str]:
    if not isinstance(taken["in"], list):
        return mine
    return {one.replace("{" + taken["name"] + "}", str(value)) for one in mine for value in taken["in"]}


def beside(steps: t.Iterable[Step]) -> bool:
    """Return True if pods must still run when one of these steps comes."""
    found = False
    for step in steps:
        verb, taken = kind_of(step)
        looked = (verb == "sample" and "of" in taken) or (verb == "watch" and "until_ended" in taken)
        found = found or verb in _OF_RUNNING or looked or (verb in _LOOPS and beside(taken["do"]))
    return found


def does(steps: t.Iterable[Step], verbs: t.Collection[str]) -> bool:
    """Return True if one of the kinds is among the steps, in whatever loop."""
    return any(verb in verbs or (verb in _LOOPS and does(taken["do"], verbs)) for verb, taken in map(kind_of, steps))


def parameters(steps: t.Iterable[Step]) -> set[str]:
    """The parameters that steps take, without what their loops count by."""
    return _taken(list(steps), set())


def _taken(value: t.Any, counted: set[str]) -> set[str]:
    if isinstance(value, dict):
        inside = counted | {ROUND}
        if "do" in value and "name" in value:
            inside = inside | {value["name"]}
        return {name for item in value.values() for name in _taken(item, inside)}
    if isinstance(value, list):
        return {name for item in value for name in _taken(item, counted)}
    return {name for name in _NAMED.findall(value) if name not in counted} if isinstance(value, str) else set()


def filled(value: t.Any, known: t.Mapping[str, t.Any]) -> t.Any:
    """Return the arguments of a step with parameters and counters filled in; a text that is one name alone takes the value's own type.
    The steps inside of a loop are filled when it comes to them."""
    if isinstance(value, dict):
        return {key: item if key == "do" else filled(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, known) for item in value]
    if not isinstance(value, str):
        return value
    whole = _NAMED.fullmatch(value)
    if whole:
        return known[whole.group(1)]
    return _NAMED.sub(lambda found: str(known[found.group(1)]), value)


# What of a step only a system can do that has this.
_OF_SYSTEM = {"core": "core_quota", "memory": "memory_quota", "memory_env": "memory_quota", "oversub": "oversubscription"}


def within(steps: t.Iterable[Step], has: t.Collection[str]) -> tuple[Step, ...]:
    """Steps without those quotas of new pods that the system does not know: a load that asks for some of them is a load all the same."""
    found: list[Step] = []
    for step in steps:
        verb, taken = kind_of(step)
        if verb == "make":
            taken = _plain(taken, has)
        elif verb == "together":
            taken = {**taken, "make": [_plain(one, has) for one in taken["make"]]}
        elif verb in _LOOPS:
            taken = {**taken, "do": list(within(taken["do"], has))}
        found.append({verb: taken})
    return tuple(found)


def _plain(taken: Step, has: t.Collection[str]) -> Step:
    return {key: value for key, value in taken.items() if _OF_SYSTEM.get(key) is None or _OF_SYSTEM[key] in has}


# In words ----------------------------------------------------------------------------------------------------------------


def said(steps: t.Iterable[Step]) -> tuple[list[str], list[str]]:
    """Return the operations of steps on the cluster, and their samplings, for a report."""
    operation: list[str] = []
    sampling: list[str] = []
    for step in steps:
        verb, taken = kind_of(step)
        if verb in _LOOPS:
            did, looked = said(taken["do"])
            how = _loop(verb, taken)
            operation += [f"{how}: {'; '.join(did)}"] if did else []
            sampling += [f"{how}: {'; '.join(looked)}"] if looked else []
        elif verb in ("sample", "watch", "alert"):
            sampling.append(_WORDS[verb](taken))
        else:
            operation.append(_WORDS[verb](taken))
            if verb in ("together", "change") and (verb == "together" or taken.get("observe")):
                sampling.append(_ALSO[verb](taken))
    return operation, sampling


def _loop(verb: str, taken: Step) -> str:
    if verb == "each":
        values = taken["in"] if isinstance(taken["in"], str) else ", ".join(map(str, taken["in"]))
        return f"for {taken['name']} of {values}"
    return f"{taken['rounds']} times" if "rounds" in taken else f"again and again for {taken['seconds']} s"


def _make(taken: Step) -> str:
    pods = taken.get("pods", 1)
    what = f"make {pods} {'Job' if taken.get('job') else 'pod'}{'' if pods == 1 else 's'} {taken['group']} of {taken['workload']}"
    having = [f"compute quota {taken['core']} %"] if "core" in taken else []
    having += [f"memory quota {taken['memory']}"] if "memory" in taken else []
    having += [f"memory quota {taken['memory_env']} by its environment"] if "memory_env" in taken else []
    having += ["oversubscription on"] if taken.get("oversub") else []
    if isinstance(taken.get("n"), dict):
        having.append(f"matrices for {taken['n']['of_memory']} of a GPU's memory")
    elif "n" in taken:
        having.append(f"matrices of {taken['n']}")
    having += [f"a new allocation of {taken['allocate']} at each probe"] if "allocate" in taken else []
    where = {True: "on the named node", "preferred": "on the named node first"}.get(taken.get("on_node", False))
    having += [where] if where else []
    return f"{what} with {', '.join(having)}" if having else what


_WORDS: dict[str, t.Callable[[Step], str]] = {
    "make": _make,
    "together": lambda taken: " and ".join(_make(one) for one in taken["make"]) + ", all on the first one's GPU, made again until they are",
    "wait": lambda taken: f"wait until {taken['group']} {'runs' if taken['until'] == 'running' else 'is over'}",
    "pause": lambda taken: f"wait {taken['seconds']} s",
    "probes": lambda taken: f"wait for {taken['count']} probe lines of {taken['group']}",
    "change": lambda taken: f"set the {'compute' if 'core' in taken else 'memory'} quota of {taken['group']} to "
    + (f"{taken['core']} %" if "core" in taken else str(taken["memory"])),
    "observe": lambda taken: f"wait until the metrics show {taken['change']}",
    "delete": lambda taken: f"delete {taken['group']}",
    "restart": lambda taken: f"restart every {taken['what']}, one after the other",
    "drain": lambda taken: "cordon the named node and evict our pods from it",
    "uncordon": lambda taken: "uncordon it",
    "alert": lambda taken: f"{taken['as']}: a Prometheus, where one is named, until {taken['name']} holds for {taken['group']}",
    "sample": lambda taken: f"{taken['as']}: health and metrics of every scheduler"
    + (f" as soon as they know {taken['of']}" if "of" in taken else "")
    + (", memory and open files of its process" if taken.get("processes") else ""),
    "watch": lambda taken: f"{taken['as']}: metrics of every scheduler every {taken['every']} s "
    + (f"until {taken['until_ended']} is over" if "until_ended" in taken else f"for {taken['seconds']} s")
    + (f", and nvidia-smi dmon on the nodes of {taken['dmon']}" if "dmon" in taken else ""),
}
_ALSO: dict[str, t.Callable[[Step], str]] = {
    "together": lambda taken: f"{taken['as']}: metrics of every scheduler while they run",
    "change": lambda taken: f"metrics of every scheduler until they show {taken['as']}",
}
VERBS = (*_WORDS, *_LOOPS)
