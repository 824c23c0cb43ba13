# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of cases as data: the names that each step defines, its parameters, and its description in words. engine.py runs them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

Step = t.Mapping[str, t.Any]

# Steps that need running pods.
_OF_RUNNING = ("together", "restart", "drain", "progress")

# How many more lines with its speed a pod prints to show that it goes on, unless the step says otherwise.
PROGRESS = 2
_NAMED = re.compile(r"\{(\w+)\}")
_LOOPS = ("each", "repeat")
# Steps that disturb more than the case's own pods, and steps that need a named node.
DISTURBING, OF_NODE = ("restart", "drain", "uncordon"), ("drain", "uncordon")
# A step inside of `repeat` may name the number of the round like a parameter.
ROUND = "round"


@dataclasses.dataclass
class Names:
    """The names that the steps of a case define for expressions. A name with `{}` stands for several."""

    groups: set[str] = dataclasses.field(default_factory=set)
    samples: set[str] = dataclasses.field(default_factory=set)
    changes: set[str] = dataclasses.field(default_factory=set)
    actions: set[str] = dataclasses.field(default_factory=set)


def kind_of(step: Step) -> tuple[str, t.Any]:
    """Return the verb of a step and its arguments."""
    (verb, arguments), *_others = step.items()
    return str(verb), arguments


def names(steps: t.Iterable[Step]) -> Names:
    """Return the names of the objects that steps make."""
    objects = Names()
    for step in steps:
        verb, arguments = kind_of(step)
        if verb == "make":
            objects.groups.add(arguments["group"])
        elif verb == "together":
            objects.groups |= {request["group"] for request in arguments["make"]}
            objects.samples.add(arguments["as"])
        elif verb in ("sample", "watch"):
            objects.samples.add(arguments["as"])
        elif verb == "change":
            objects.changes.add(arguments["as"])
        elif verb in ("restart", "drain", "uncordon", "alert", "progress"):
            objects.actions.add(arguments["as"])
        elif verb in _LOOPS:
            inner = names(arguments["do"])
            for field in dataclasses.fields(Names):
                inner_names: set[str] = getattr(inner, field.name)
                getattr(objects, field.name).update(_spread(inner_names, arguments) if verb == "each" else inner_names)
    return objects


def _spread(made_names: set[str], arguments: Step) -> set[str]:
    if not isinstance(arguments["in"], list):
        return made_names
    return {made_name.replace("{" + arguments["name"] + "}", str(value)) for made_name in made_names for value in arguments["in"]}


def needs_running_pods(steps: t.Iterable[Step]) -> bool:
    """Return True if pods must still run when one of these steps comes."""
    needed = False
    for step in steps:
        verb, arguments = kind_of(step)
        looks_at_pods = (verb == "sample" and "of" in arguments) or (verb == "watch" and "until_ended" in arguments)
        needed = needed or verb in _OF_RUNNING or looks_at_pods or (verb in _LOOPS and needs_running_pods(arguments["do"]))
    return needed


def does(steps: t.Iterable[Step], verbs: t.Collection[str]) -> bool:
    """Return True if one of the kinds is among the steps, in whatever loop."""
    return any(verb in verbs or (verb in _LOOPS and does(arguments["do"], verbs)) for verb, arguments in map(kind_of, steps))


def parameters(steps: t.Iterable[Step]) -> set[str]:
    """Return the parameters that steps name, without the counters of their loops."""
    return _parameter_names(list(steps), set())


def _parameter_names(value: t.Any, counted: set[str]) -> set[str]:
    if isinstance(value, dict):
        inside = counted | {ROUND}
        if "do" in value and "name" in value:
            inside = inside | {value["name"]}
        return {name for item in value.values() for name in _parameter_names(item, inside)}
    if isinstance(value, list):
        return {name for item in value for name in _parameter_names(item, counted)}
    return {name for name in _NAMED.findall(value) if name not in counted} if isinstance(value, str) else set()


def filled(value: t.Any, bindings: t.Mapping[str, t.Any]) -> t.Any:
    """Return the arguments of a step with parameters and counters filled in. A text that consists of one name takes the value's own type.
    The steps inside of a loop stay as they are until the loop runs."""
    if isinstance(value, dict):
        return {key: item if key == "do" else filled(item, bindings) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, bindings) for item in value]
    if not isinstance(value, str):
        return value
    single = _NAMED.fullmatch(value)
    if single:
        return bindings[single.group(1)]
    return _NAMED.sub(lambda match: str(bindings[match.group(1)]), value)


# {argument of a step: the ability that a system needs for it}.
_OF_SYSTEM = {"core": "core_quota", "memory": "memory_quota", "memory_env": "memory_quota", "oversub": "oversubscription"}


def supported_steps(steps: t.Iterable[Step], has: t.Collection[str]) -> tuple[Step, ...]:
    """Return the steps without the quotas of new pods that the system does not support."""
    supported: list[Step] = []
    for step in steps:
        verb, arguments = kind_of(step)
        if verb == "make":
            arguments = _without_unsupported(arguments, has)
        elif verb == "together":
            arguments = {**arguments, "make": [_without_unsupported(request, has) for request in arguments["make"]]}
        elif verb in _LOOPS:
            arguments = {**arguments, "do": list(supported_steps(arguments["do"], has))}
        supported.append({verb: arguments})
    return tuple(supported)


def _without_unsupported(arguments: Step, has: t.Collection[str]) -> Step:
    return {key: value for key, value in arguments.items() if _OF_SYSTEM.get(key) is None or _OF_SYSTEM[key] in has}


# In words ----------------------------------------------------------------------------------------------------------------


def describe(steps: t.Iterable[Step]) -> tuple[list[str], list[str]]:
    """Return two lists of sentences for a report: what the steps do to the cluster, and what they sample."""
    operation: list[str] = []
    sampling: list[str] = []
    for step in steps:
        verb, arguments = kind_of(step)
        if verb in _LOOPS:
            did, looked = describe(arguments["do"])
            how = _loop(verb, arguments)
            operation += [f"{how}: {'; '.join(did)}"] if did else []
            sampling += [f"{how}: {'; '.join(looked)}"] if looked else []
        elif verb in ("sample", "watch", "alert"):
            sampling.append(_WORDS[verb](arguments))
        else:
            operation.append(_WORDS[verb](arguments))
            if verb in ("together", "change") and (verb == "together" or arguments.get("observe")):
                sampling.append(_ALSO[verb](arguments))
    return operation, sampling


def _loop(verb: str, arguments: Step) -> str:
    if verb == "each":
        values = arguments["in"] if isinstance(arguments["in"], str) else ", ".join(map(str, arguments["in"]))
        return f"for {arguments['name']} of {values}"
    return f"{arguments['rounds']} times" if "rounds" in arguments else f"again and again for {arguments['seconds']} s"


def _make(arguments: Step) -> str:
    pods = arguments.get("pods", 1)
    words = (
        f"make {pods} {'Job' if arguments.get('job') else 'pod'}{'' if pods == 1 else 's'} {arguments['group']} of {arguments['workload']}"
    )
    having = [f"compute quota {arguments['core']} %"] if "core" in arguments else []
    having += [f"memory quota {arguments['memory']}"] if "memory" in arguments else []
    having += [f"memory quota {arguments['memory_env']} by its environment"] if "memory_env" in arguments else []
    having += ["oversubscription on"] if arguments.get("oversub") else []
    if isinstance(arguments.get("n"), dict):
        part = arguments["n"]
        of_memory = f"{part.get('of_memory')} of a GPU's memory"
        having.append(f"matrices for {part['of_quota']} of its quota" if "of_quota" in part else f"matrices for {of_memory}")
    elif "n" in arguments:
        having.append(f"matrices of {arguments['n']}")
    having += [f"a new allocation of {arguments['allocate']} at each probe"] if "allocate" in arguments else []
    having += [f"a probe every {arguments['probe']} s"] if "probe" in arguments else []
    having += ["one on each node"] if arguments.get("each_node") else []
    having += ["on the node with most GPUs"] if arguments.get("gather") else []
    where = {True: "on the named node", "preferred": "on the named node first"}.get(arguments.get("on_node", False))
    having += [where] if where else []
    return f"{words} with {', '.join(having)}" if having else words


_WORDS: dict[str, t.Callable[[Step], str]] = {
    "make": _make,
    "together": lambda step: (
        " and ".join(_make(request) for request in step["make"]) + ", all on the first one's GPU, made again until they are"
    ),
    "wait": lambda step: f"wait until {step['group']} {'runs' if step['until'] == 'running' else 'is over'}",
    "pause": lambda step: f"wait {step['seconds']} s",
    "probes": lambda step: f"wait for {step['count']} {step.get('pattern', 'probe')} lines of {step['group']}",
    "progress": lambda step: f"{step['as']}: wait for {step.get('count', PROGRESS)} more lines about progress of each of {step['group']}",
    "change": lambda step: (
        f"{'remove' if step.get('remove') else 'set'} the {'compute' if 'core' in step else 'memory'} quota of {step['group']}"
        + ("" if step.get("remove") else f" to {step['core']} %" if "core" in step else f" to {step['memory']}")
    ),
    "observe": lambda step: f"wait until the metrics show {step['change']}",
    "delete": lambda step: f"delete {step['group']}",
    "restart": lambda step: f"restart every {step['what']}, one after the other",
    "drain": lambda step: "cordon the named node and evict our pods from it",
    "uncordon": lambda step: "uncordon it",
    "alert": lambda step: f"{step['as']}: a Prometheus, where one is named, until {step['name']} holds for {step['group']}",
    "sample": lambda step: (
        f"{step['as']}: health and metrics of every scheduler"
        + (f" as soon as they know {step['of']}" if "of" in step else "")
        + (", memory and open files of its process" if step.get("processes") else "")
    ),
    "watch": lambda step: (
        f"{step['as']}: metrics of every scheduler every {step['every']} s "
        + (f"until {step['until_ended']} is over" if "until_ended" in step else f"for {step['seconds']} s")
        + (f", and nvidia-smi dmon on the nodes of {step['dmon']}" if "dmon" in step else "")
    ),
}
_ALSO: dict[str, t.Callable[[Step], str]] = {
    "together": lambda step: f"{step['as']}: metrics of every scheduler while they run",
    "change": lambda step: f"metrics of every scheduler until they show {step['as']}",
}
VERBS = (*_WORDS, *_LOOPS)
