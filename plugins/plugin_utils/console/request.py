# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request for a run, fully validated, and the only variables of it that reach the run.

A request is hostile until it is read: names end up in host patterns, arguments and file names. What is wrong is said at the field, in the
words of the resource, so that a form and the API server's users find it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t
import zoneinfo

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed, calendar, commands, no_expectation, typed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import (
    COLLECTIVES,
    CollectiveSpec,
    Pool,
    RdmaSpec,
    Schedule,
    Spec,
    StagesSpec,
    Where,
    Zone,
    operations,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.structs import UNSET, UnsetType
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry, sweep

KINDS = ("rdma", "collective", "stages")

MEASURES = {"bandwidth": "bw", "latency": "lat"}
# More problems than a person reads: of all fields, and of one of them, so that a long list hides no other field. Then how much of a wrong
# value is shown.
MOST_PROBLEMS, MOST_OF_FIELD = 40, 10
# What is found where there is no value.
NOTHING = "nothing"
SHOWN = 80


class Problem(t.NamedTuple):
    """An error in a field of a request."""

    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.found}, expected {self.expected}"


class RequestError(AcceptanceError):
    """A request that cannot be carried out, with each of its problems."""

    def __init__(self, problems: t.Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of requests on this console."""

    # The plane of the nodes, a shipped one.
    plane: str
    # The nodes that there are, with their labels; None where nobody knows yet.
    nodes: t.Mapping[str, t.Mapping[str, str]] | None = None
    # GPUs of the nodes whose number is known.
    gpus: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The RDMA devices that nodes were last seen to have, as far as that is known.
    devices: t.Mapping[str, t.Collection[str]] = dataclasses.field(default_factory=dict)
    # The expectations of nodes for which the inventory has some.
    expectations: t.Mapping[str, Expectations] = dataclasses.field(default_factory=dict)
    # Images that a request may name; without one it gets that of the settings.
    images: t.Sequence[str] = ()
    namespaces: t.Sequence[str] = ()
    most_nodes: int = 5000

    def __post_init__(self) -> None:
        if not planes.shipped()[self.plane].nodes_behind and self.nodes is None:
            raise ValueError("a host pattern means groups too: the hosts of an inventory must be known")


class _Data(str):
    """A text that Ansible is told never to take for a template."""


class _Text(str):
    """A text that holds no template, and stays one though it looks like a number."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Data, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))
_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"'))


@dataclasses.dataclass(frozen=True)
class Request:
    """A run to be measured. `settings` are variables of the stages, already of their types."""

    kind: str
    plane: str
    stages: t.Tuple[str, ...]
    settings: t.Mapping[str, t.Any]
    nodes: t.Tuple[str, ...] = ()
    # Nodes that the console knows and the request does not choose: its run is a part.
    left_out: t.Tuple[str, ...] = ()
    pool: t.Mapping[str, str] | None = None
    image: str = ""
    # Of a cluster, where its pods run: where the request is.
    namespace: str = ""
    suspend: bool = False
    cancel: bool = False
    ttl: int | None = None
    schedule: Schedule | None = None
    # Of collectives: how they are named and sized, whatever stage measures them.
    library: str = ""

    @property
    def device(self) -> str:
        """Return the RDMA device that the request names, or an empty text."""
        return str(next(iter(self.settings.get("rdma_ports_devices", ())), ""))

    @property
    def devices(self) -> bool:
        """Return True if the request needs the GPUs of its nodes."""
        return any(registry.shipped()[stage].devices for stage in self._stages())

    def on(self, nodes: t.Iterable[str], known: t.Iterable[str] = ()) -> Request:
        """The same on these nodes of those that are known, in place of a pool."""
        chosen = tuple(nodes)
        return dataclasses.replace(self, nodes=chosen, left_out=tuple(sorted(set(known) - set(chosen))), pool=None)

    def chosen(self, labels: t.Mapping[str, t.Mapping[str, str]]) -> t.Tuple[str, ...]:
        """The nodes of a request: those that it names, or those of its pool among the known, sorted."""
        if self.pool is None:
            return self.nodes
        return matching(labels, self.pool)

    def _stages(self) -> t.Tuple[str, ...]:
        if self.kind != "collective":
            return self.stages
        single, together = COLLECTIVES[self.library]
        stage = single if len(self.nodes) == 1 else together
        return (*registry.shipped()[stage].requested_before, stage)

    def _settings(self) -> PlainData:
        if self.kind != "collective":
            return dict(self.settings)
        stage = self._stages()[-1]
        return {f"{stage}_{name}": value for name, value in self.settings.items()}

    def variables(self) -> PlainData:
        """All that a run is told of this request; its pool must have become nodes (`on`)."""
        if not self.nodes:
            raise ValueError("a pool has no variables before its nodes are known")
        plane = planes.shipped()[self.plane]
        return {
            "acceptance_stages": list(self._stages()),
            **self._settings(),
            **plane.chosen(self.nodes),
            **plane.placed(self.namespace, self.image),
            **({"acceptance_left_out": list(self.left_out)} if self.left_out else {}),
        }

    def argv(self, inventory: str, variables: str, resume: bool = False) -> t.List[str]:
        """The command that measures it, of a file with what `written` returns."""
        playbook = "gpufleet.acceptance.resume" if resume else "gpufleet.acceptance.acceptance"
        return ["ansible-playbook", playbook, "--inventory", inventory, "--extra-vars", f"@{variables}"]

    def command_shown(self) -> t.List[str]:
        """The command that runs on the nodes, as far as it is known before they are asked, for people."""
        stages, settings = self._stages(), self._settings()
        return commands.shown(stages, settings, self.nodes)

    def commands_shown(self) -> commands.Shown:
        """Return all commands that run on the nodes, as far as they are known before the nodes are asked, for people."""
        return commands.every(self._stages(), self._settings(), self.nodes)

    def without_expectation(self, limits: Limits, models: t.Mapping[str, str]) -> t.List[str]:
        """Return the numbers for which no expectation is known (no_expectation.missing())."""
        stages = self._stages()
        settings = commands.settings_of(stages, self._settings())
        return no_expectation.missing(stages, settings, self.nodes, limits.gpus, models, limits.expectations)

    def estimate(self) -> float:
        """About how many seconds it takes where nothing hangs."""
        return commands.seconds(self._stages(), self._settings(), len(self.nodes))


def matching(nodes: t.Mapping[str, t.Mapping[str, str]], labels: t.Mapping[str, str]) -> t.Tuple[str, ...]:
    """The nodes with all these labels, sorted."""
    pairs = labels.items()
    return tuple(sorted(name for name, of in nodes.items() if all(of.get(key) == value for key, value in pairs)))


def written(variables: t.Mapping[str, t.Any]) -> str:
    """Variables as a file for --extra-vars, every text in it marked as data: a template in one is never evaluated."""

    def data(value: t.Any) -> t.Any:
        if isinstance(value, str):  # what Ansible takes for data it also takes for a number or for null where it looks like one
            return _Data(value) if "{" in value else _Text(value)
        if isinstance(value, t.Mapping):
            return {name: data(entry) for name, entry in value.items()}
        return [data(entry) for entry in value] if isinstance(value, (list, tuple)) else value

    text = yaml.dump({name: data(value) for name, value in variables.items()}, Dumper=_Dumper, allow_unicode=False, width=10**6)
    return str(text)


def read(given: t.Any, limits: Limits, namespace: str = "") -> Request:
    """Return the request of a spec. RequestError names every field that is wrong."""
    reader = _Reader(limits)
    request = reader.request(given, namespace)
    if request is None or reader.problems:
        raise RequestError(reader.problems)
    return request


def shown(value: t.Any) -> str:
    """Return a wrong value as one short line: letters of every language as they were typed, what cannot be printed as its escape."""
    text = repr(value if not isinstance(value, (list, dict)) else type(value).__name__ if len(value) > 8 else value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


class _Reader:
    """Reads one spec and collects what is wrong with it: its types first, then what they do not say."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.problems: t.List[Problem] = []
        # Of each field, unknown ones together, how many problems there are.
        self._counts: t.Counter[str] = collections.Counter()

    def wrong(self, field: str, found: t.Any, expected: str) -> None:
        whole = "" if found is UNSET else field.partition("[")[0]
        self._counts[whole] += 1
        if len(self.problems) < MOST_PROBLEMS and self._counts[whole] <= MOST_OF_FIELD:
            text = NOTHING if found in (None, "", [], {}) else "an unknown field" if found is UNSET else shown(found)
            self.problems.append(Problem(field if len(field) < SHOWN else shown(field)[1:-1], text, expected))

    def request(self, given: t.Any, namespace: str) -> Request | None:
        if self.limits.namespaces and namespace not in self.limits.namespaces:
            self.wrong("metadata.namespace", namespace, f"one of {', '.join(self.limits.namespaces)}")
        kinds = [kind for kind in KINDS if given.get(kind) is not None] if isinstance(given, dict) else []
        spec = typed.read("", given, Spec, self.wrong)
        if isinstance(spec, UnsetType):
            return None
        image, schedule = self.image(spec.image), self.schedule(spec.schedule)
        if len(kinds) != 1:
            self.wrong("spec", sorted(kinds), f"one of {', '.join(KINDS)}")
            return None
        asked = spec.rdma or spec.collective or spec.stages
        if not asked:
            return None
        if isinstance(asked, RdmaSpec):
            stages, settings = self.rdma(asked)
        elif isinstance(asked, CollectiveSpec):
            stages, settings = self.collective(asked)
        else:
            stages, settings = self.stages(asked)
        nodes, pool = self.where(kinds[0], asked, given[kinds[0]])
        chosen = [node for node in nodes if node] if pool is None else matching(self.limits.nodes or {}, pool)
        if isinstance(asked, CollectiveSpec) and asked.gpusPerNode:
            self.enough_gpus(asked.gpusPerNode, chosen)
        if isinstance(asked, RdmaSpec) and asked.device:
            self.known_device(asked.device, chosen)
        return Request(
            kind=kinds[0],
            plane=self.limits.plane,
            stages=tuple(stages),
            settings=settings,
            nodes=nodes,
            pool=pool,
            image=image,
            namespace=namespace,
            suspend=spec.suspend is True,
            cancel=spec.cancel is True,
            ttl=None if spec.ttl is UNSET else spec.ttl,
            schedule=schedule,
            library=asked.library if isinstance(asked, CollectiveSpec) else "",
        )

    # The kinds -------------------------------------------------------------------------------------------------------

    def rdma(self, asked: RdmaSpec) -> t.Tuple[t.Sequence[str], PlainData]:
        settings: PlainData = {"rdma_tests": [f"{asked.operation}_{MEASURES[asked.measure]}"], "rdma_scope": asked.scope}
        if asked.device:
            settings["rdma_ports_devices"] = [asked.device]
        if asked.port:
            settings["rdma_ports_port"] = asked.port
        return ["rdma"], settings

    def collective(self, asked: CollectiveSpec) -> t.Tuple[t.Sequence[str], PlainData]:
        if asked.operation not in operations(asked.library):
            self.wrong("collective.operation", asked.operation, f"one of {', '.join(operations(asked.library))}")
        settings: PlainData = {"ops": [asked.operation]}
        if asked.gpusPerNode:
            settings["gpus"] = [str(asked.gpusPerNode)]
        if asked.sizes:
            for number, size_range in enumerate(asked.sizes):
                if size_range and sweep.of_sizes("", [size_range]):
                    self.wrong(f"collective.sizes[{number}]", size_range, "SMALLEST:LARGEST, like 8M:1G or 8M:auto")
            settings["sizes"] = asked.sizes
        return (), settings

    def stages(self, asked: StagesSpec) -> t.Tuple[t.Sequence[str], PlainData]:
        names = asked.names or []
        for number, name in enumerate(names):
            if name and name in names[:number]:
                self.wrong(f"stages.names[{number}]", name, "each stage once")
        settings: PlainData = {}
        brought = [stage for name in names for stage in (*_brought(name), name)]
        for name, value in (asked.variables or {}).items():
            field = f"stages.variables[{shown(name)[1:-1]}]"
            if name not in allowed.VARIABLES or allowed.stage_of(name) not in brought:
                usable = [variable for variable in allowed.VARIABLES if allowed.stage_of(variable) in brought]
                expected = f"one of {', '.join(usable)}" if usable else "none: no chosen stage has variables"
                if name in allowed.VARIABLES:
                    expected = f"the stage {allowed.stage_of(name)} among the chosen ones"
                self.wrong(field, name, expected)
                continue
            try:
                settings[name] = allowed.value(name, value)
            except ValueError as error:
                self.wrong(field, value, str(error))
        for variable in (f"{name}_{must}" for name in names if name in allowed.NAMES for must in registry.shipped()[name].must_request):
            if variable not in (asked.variables or {}):
                self.wrong(f"stages.variables[{variable}]", None, allowed.HOURS)
        return names, settings

    # What all have ---------------------------------------------------------------------------------------------------

    def where(self, kind: str, asked: Where, given: PlainData) -> t.Tuple[t.Tuple[str, ...], t.Mapping[str, str] | None]:
        """Return the nodes or the labels of a request. `given` says which of them it has, also where that one is wrong."""
        if (given.get("nodes") is None) == (given.get("pool") is None):
            self.wrong(f"{kind}.nodes", "both" if given.get("pool") is not None else None, "nodes or pool, one of them")
            return (), None
        if isinstance(asked.nodes, UnsetType):
            return (), self.pool(f"{kind}.pool.matchLabels", asked.pool) if asked.pool else None
        minimum = 2 if isinstance(asked, RdmaSpec) and asked.scope != "loopback" else 1
        if not minimum <= len(asked.nodes) <= self.limits.most_nodes:
            self.wrong(f"{kind}.nodes", len(asked.nodes) or None, f"a list of {minimum} to {self.limits.most_nodes} nodes")
        unique: t.Set[str] = set()
        for number, name in enumerate(asked.nodes):
            if not name:  # it has been refused by its type
                continue
            if self.limits.nodes is not None and name not in self.limits.nodes:
                self.wrong(f"{kind}.nodes[{number}]", name, "a node that is there")
            elif name in unique:
                self.wrong(f"{kind}.nodes[{number}]", name, "each node once")
            unique.add(name)
        return tuple(asked.nodes), None

    def pool(self, field: str, pool: Pool) -> t.Mapping[str, str]:
        nodes = self.limits.nodes
        if nodes is not None and not self._counts[field] and not matching(nodes, pool.matchLabels):
            self.wrong(field, pool.matchLabels, "labels that some node has")
        return pool.matchLabels

    def enough_gpus(self, gpus: int, nodes: t.Iterable[str]) -> None:
        """Refuse more GPUs per node than a node has, as far as that is known."""
        counts = [(self.limits.gpus[node], node) for node in nodes if node in self.limits.gpus]
        if counts and gpus > min(counts)[0]:
            fewest, node = min(counts)
            self.wrong("collective.gpusPerNode", gpus, f"at most {fewest}, as many as {node} has")

    def known_device(self, device: str, nodes: t.Iterable[str]) -> None:
        """Refuse a device that a node did not have when its devices were last seen."""
        without = [node for node in nodes if node in self.limits.devices and device not in self.limits.devices[node]]
        if without:
            names = sorted(self.limits.devices[without[0]], key=lambda name: (len(name), name))
            several = f" and {len(without) - 1} more of these nodes" if len(without) > 1 else ""
            expected = f"a device that each node had when it was last measured; {without[0]}{several} had {', '.join(names)[: SHOWN * 2]}"
            self.wrong("rdma.device", device, f"{expected}. After a change of hardware run the stage rdma_ports")

    def image(self, image: str | UnsetType) -> str:
        if isinstance(image, UnsetType):
            return ""
        if image not in self.limits.images:
            expected = f"one of {', '.join(self.limits.images)}" if self.limits.images else "none: no image may be chosen here"
            self.wrong("image", image, expected)
        return image

    def schedule(self, asked: Schedule | UnsetType) -> Schedule | None:
        if isinstance(asked, UnsetType):
            return None
        try:
            zoneinfo.ZoneInfo(asked.zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            self.wrong("schedule.timeZone", asked.zone, typed.expected(Zone))
            return None
        if asked.cron and (expected := calendar.problem(asked)):
            self.wrong("schedule.cron", asked.cron, expected)
        return asked


def _brought(stage: t.Any) -> t.Tuple[str, ...]:
    shipped = registry.shipped().get(stage) if isinstance(stage, str) else None
    return (*shipped.before, *shipped.after) if shipped else ()
