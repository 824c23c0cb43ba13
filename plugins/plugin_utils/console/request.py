# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request for a run, fully validated, and the only variables of it that reach the run.

A request is hostile until it is read: names end up in host patterns, arguments and file names. What is wrong is said at the field, in the
words of the resource, so that a form and the API server's users find it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t
import zoneinfo

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed, commands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes import plane as kubernetes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry, sweep

# What each kind has besides nodes or a pool.
FIELDS = {
    "rdma": ("device", "port", "operation", "measure", "scope"),
    "collective": ("operation", "gpusPerNode", "sizes", "library"),
    "stages": ("names", "variables"),
}
KINDS = tuple(FIELDS)

RDMA_OPERATIONS = ("read", "write", "send")
MEASURES = {"bandwidth": "bw", "latency": "lat"}
SCOPES = ("all_pairs", "ring", "sample", "loopback")
# Of each library: the stage for one node alone, and for several together.
COLLECTIVES: t.Mapping[str, t.Sequence[str]] = {
    library: [stage.name for stage in sorted(stages, key=lambda stage: stage.between)]
    for library, stages in itertools.groupby(
        sorted((stage for stage in registry.shipped().values() if stage.library), key=lambda stage: stage.place),
        key=lambda stage: stage.library,
    )
}
LIBRARIES = tuple(COLLECTIVES)

# A host or a node, and nothing that means more in a host pattern: no * [ ] : , ! & ~ @ and no template.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?\Z")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z")
SIZES = re.compile(r"[0-9]{1,12}[KMG]?:(auto|[0-9]{1,12}[KMG]?)\Z")
CRON = re.compile(r"[0-9A-Za-z*/,-]+( [0-9A-Za-z*/,-]+){4}\Z")

# More problems than a person reads; and how much of a wrong value is shown.
MOST_PROBLEMS = 20
SHOWN = 80
MOST_TTL = 10 * 365 * 86400
MOST_KEPT = 100


class Problem(t.NamedTuple):
    """An error in a field of a request."""

    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.found}, expected {self.expected}"


class RequestError(Exception):
    """A request that cannot be carried out, with each of its problems."""

    def __init__(self, problems: t.Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of requests on this console."""

    # How the nodes are reached: as hosts of an inventory, or through one cluster's API.
    plane: str = kubernetes.PLANE.name
    # The nodes that there are, with their labels; None where nobody knows yet.
    nodes: t.Mapping[str, t.Mapping[str, str]] | None = None
    # GPUs of the nodes whose number is known.
    gpus: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The RDMA devices that nodes were last seen to have, as far as that is known.
    devices: t.Mapping[str, t.Collection[str]] = dataclasses.field(default_factory=dict)
    # Images that a request may name; without one it gets that of the settings.
    images: t.Sequence[str] = ()
    namespaces: t.Sequence[str] = ()
    most_nodes: int = 5000

    def __post_init__(self) -> None:
        if not planes.shipped()[self.plane].nodes_behind and self.nodes is None:
            raise ValueError("a host pattern means groups too: the hosts of an inventory must be known")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When a request is repeated, and how many of the actions that came of it are kept."""

    cron: str
    zone: str = "UTC"
    accepted: int = 3
    refused: int = 3


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

    def on(self, nodes: t.Iterable[str]) -> Request:
        """The same on these nodes, in place of a pool."""
        return dataclasses.replace(self, nodes=tuple(nodes), pool=None)

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
        values = {"acceptance_stages": list(self._stages()), **self._settings()}
        plane = planes.shipped()[self.plane]
        values.update(plane.chosen(self.nodes))
        if plane.nodes_behind and self.namespace:
            values["acceptance_kube_namespace"] = self.namespace
        return {**values, **({"acceptance_kube_image": self.image} if self.image else {})}

    def argv(self, inventory: str, variables: str, resume: bool = False) -> t.List[str]:
        """The command that measures it, of a file with what `written` returns."""
        playbook = "gpufleet.acceptance.resume" if resume else "gpufleet.acceptance.acceptance"
        return ["ansible-playbook", playbook, "--inventory", inventory, "--extra-vars", f"@{variables}"]

    def command_shown(self) -> t.List[str]:
        """The command that runs on the nodes, as far as it is known before they are asked, for people."""
        stages, settings = self._stages(), self._settings()
        return commands.shown(stages, settings, self.nodes)

    def commands_shown(self) -> t.List[t.List[str]]:
        """Return all commands that run on the nodes, as far as they are known before the nodes are asked, for people."""
        return commands.every(self._stages(), self._settings(), self.nodes)

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


def read(spec: t.Any, limits: Limits, namespace: str = "") -> Request:
    """The request of a spec. RequestError names every field that is wrong."""
    reader = _Reader(limits)
    request = reader.request(spec, namespace)
    if request is None or reader.problems:
        raise RequestError(reader.problems[:MOST_PROBLEMS])
    return request


def _shown(value: t.Any) -> str:
    """A wrong value as one short line of plain letters, whatever is in it."""
    text = ascii(value if not isinstance(value, (list, dict)) else type(value).__name__ if len(value) > 8 else value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


class _Reader:
    """Reads one spec and collects what is wrong with it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.problems: t.List[Problem] = []

    def wrong(self, field: str, found: t.Any, expected: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(field, _shown(found) if found is not None else "nothing", expected))

    def request(self, spec: t.Any, namespace: str) -> Request | None:
        if self.limits.namespaces and namespace not in self.limits.namespaces:
            self.wrong("metadata.namespace", namespace, f"one of {', '.join(self.limits.namespaces)}")
        common = ("image", "suspend", "cancel", "ttlSecondsAfterFinished", "schedule")
        if not self.mapping("spec", spec, (*KINDS, *common)):
            return None
        kinds = [kind for kind in KINDS if spec.get(kind) is not None]
        if len(kinds) != 1:
            self.wrong("spec", sorted(kinds), f"one of {', '.join(KINDS)}")
            return None
        kind = kinds[0]
        body = spec[kind]
        if not self.mapping(kind, body, ("nodes", "pool", *FIELDS[kind])):
            return None
        stages, settings = {"rdma": self.rdma, "collective": self.collective, "stages": self.stages}[kind](body)
        nodes, pool = self.where(kind, body, 1 if kind != "rdma" or body.get("scope") == "loopback" else 2)
        if kind == "collective":
            self.enough_gpus(body.get("gpusPerNode"), nodes if pool is None else matching(self.limits.nodes or {}, pool))
        if kind == "rdma":
            self.known_device(body.get("device"), nodes if pool is None else matching(self.limits.nodes or {}, pool))
        return Request(
            kind=kind,
            plane=self.limits.plane,
            stages=tuple(stages),
            settings=settings,
            nodes=nodes,
            pool=pool,
            image=self.image(spec.get("image")),
            namespace=namespace,
            suspend=self.truth("suspend", spec.get("suspend")),
            cancel=self.truth("cancel", spec.get("cancel")),
            ttl=self.number("ttlSecondsAfterFinished", spec.get("ttlSecondsAfterFinished"), 0, MOST_TTL),
            schedule=self.schedule(spec.get("schedule")),
            library=body.get("library", LIBRARIES[0]) if kind == "collective" else "",
        )

    # The kinds -------------------------------------------------------------------------------------------------------

    def rdma(self, body: PlainData) -> t.Tuple[t.Sequence[str], PlainData]:
        operation = self.choice("rdma.operation", body.get("operation", RDMA_OPERATIONS[0]), RDMA_OPERATIONS)
        measure = self.choice("rdma.measure", body.get("measure", "bandwidth"), MEASURES)
        settings: PlainData = {
            "rdma_tests": [f"{operation}_{MEASURES.get(measure, '')}"],
            "rdma_scope": self.choice("rdma.scope", body.get("scope", SCOPES[0]), SCOPES),
        }
        device = body.get("device")
        if device is not None:
            if not isinstance(device, str) or not DEVICE.match(device):
                self.wrong("rdma.device", device, "the name of an RDMA device, like mlx5_0")
            settings["rdma_ports_devices"] = [device]
        port = self.number("rdma.port", body.get("port"), 1, 255)
        return ["rdma"], {**settings, **({"rdma_ports_port": port} if port is not None else {})}

    def collective(self, body: PlainData) -> t.Tuple[t.Sequence[str], PlainData]:
        library = self.choice("collective.library", body.get("library", LIBRARIES[0]), LIBRARIES)
        settings: PlainData = {"ops": [self.choice("collective.operation", body.get("operation", "all_reduce"), operations(library))]}
        gpus = self.number("collective.gpusPerNode", body.get("gpusPerNode"), 1, 64)
        if gpus is not None:
            settings["gpus"] = [str(gpus)]
        sizes = body.get("sizes")
        if sizes is not None:
            if not isinstance(sizes, list) or not 0 < len(sizes) <= 8:
                self.wrong("collective.sizes", sizes, "1 to 8 of SMALLEST:LARGEST, like 8M:1G")
                sizes = []
            for number, size_range in enumerate(sizes):
                if not isinstance(size_range, str) or not SIZES.match(size_range) or sweep.of_sizes("", [size_range]):
                    self.wrong(f"collective.sizes[{number}]", size_range, "SMALLEST:LARGEST, like 8M:1G or 8M:auto")
            settings["sizes"] = sizes
        return (), settings

    def stages(self, body: PlainData) -> t.Tuple[t.Sequence[str], PlainData]:
        names = body.get("names")
        if not isinstance(names, list) or not 0 < len(names) <= len(allowed.STAGES):
            self.wrong("stages.names", names, f"a list of {', '.join(allowed.STAGES)}")
            names = []
        for number, name in enumerate(names):
            self.choice(f"stages.names[{number}]", name, allowed.STAGES)
            if name in names[:number]:
                self.wrong(f"stages.names[{number}]", name, "each stage once")
        variables = body.get("variables")
        settings: PlainData = {}
        if variables is not None and (not isinstance(variables, dict) or len(variables) > len(allowed.VARIABLES)):
            self.wrong("stages.variables", variables, "a mapping of variables of these stages to their values")
            variables = {}
        brought = [stage for name in names for stage in (*_brought(name), name)]
        for name, value in (variables or {}).items():
            field = f"stages.variables[{_shown(name)[1:-1]}]"
            if name not in allowed.VARIABLES or allowed.stage_of(name) not in brought:
                usable = [variable for variable in allowed.VARIABLES if allowed.stage_of(variable) in brought]
                self.wrong(field, name, f"one of {', '.join(usable)}")
                continue
            try:
                settings[name] = allowed.value(name, value)
            except ValueError as error:
                self.wrong(field, value, str(error))
        return names, settings

    # What all have ---------------------------------------------------------------------------------------------------

    def where(self, kind: str, body: PlainData, minimum: int) -> t.Tuple[t.Tuple[str, ...], t.Mapping[str, str] | None]:
        nodes, pool = body.get("nodes"), body.get("pool")
        if (nodes is None) == (pool is None):
            self.wrong(f"{kind}.nodes", "both" if pool is not None else None, "nodes or pool, one of them")
            return (), None
        if pool is not None:
            return (), self.pool(f"{kind}.pool", pool)
        if not isinstance(nodes, list) or not minimum <= len(nodes) <= self.limits.most_nodes:
            shown = f"{len(nodes)} nodes" if isinstance(nodes, list) else nodes
            self.wrong(f"{kind}.nodes", shown, f"a list of {minimum} to {self.limits.most_nodes} nodes")
            return (), None
        unique: t.Set[str] = set()
        for number, name in enumerate(nodes):
            field = f"{kind}.nodes[{number}]"
            if not isinstance(name, str) or not NAME.match(name):
                self.wrong(field, name, "the name of a node")
            elif self.limits.nodes is not None and name not in self.limits.nodes:
                self.wrong(field, name, "a node that is there")
            elif name in unique:
                self.wrong(field, name, "each node once")
            else:
                unique.add(name)
        return tuple(nodes), None

    def pool(self, field: str, pool: t.Any) -> t.Mapping[str, str] | None:
        if not self.mapping(field, pool, ("matchLabels",)):
            return None
        labels = pool.get("matchLabels", {})
        if not isinstance(labels, dict) or len(labels) > 16:
            self.wrong(f"{field}.matchLabels", labels, "up to 16 labels and their values")
            return None
        for name, value in labels.items():
            if not isinstance(name, str) or not LABEL.match(name):
                self.wrong(f"{field}.matchLabels", name, "the name of a label")
            elif not isinstance(value, str) or not LABEL_VALUE.match(value):
                self.wrong(f"{field}.matchLabels[{name}]", value, "the value of a label")
        labels_of = self.limits.nodes
        if labels_of is not None and not self.problems and not matching(labels_of, labels):
            self.wrong(f"{field}.matchLabels", labels, "labels that some node has")
        return labels

    def enough_gpus(self, gpus: t.Any, nodes: t.Iterable[t.Any]) -> None:
        """Refuse more GPUs per node than a node has, as far as that is known."""
        counts = [(self.limits.gpus[node], node) for node in nodes if isinstance(node, str) and node in self.limits.gpus]
        if isinstance(gpus, int) and counts and gpus > min(counts)[0]:
            fewest, node = min(counts)
            self.wrong("collective.gpusPerNode", gpus, f"at most {fewest}, as many as {node} has")

    def known_device(self, device: t.Any, nodes: t.Iterable[t.Any]) -> None:
        """Refuse a device that a node did not have when its devices were last seen."""
        known = [node for node in nodes if isinstance(node, str) and node in self.limits.devices]
        without = [node for node in known if device not in self.limits.devices[node]]
        if isinstance(device, str) and DEVICE.match(device) and without:
            names = sorted(self.limits.devices[without[0]], key=lambda name: (len(name), name))
            several = f" and {len(without) - 1} more of these nodes" if len(without) > 1 else ""
            expected = f"a device that each node had when it was last measured; {without[0]}{several} had {', '.join(names)[:SHOWN * 2]}"
            self.wrong("rdma.device", device, f"{expected}. After a change of hardware run the stage rdma_ports")

    def image(self, image: t.Any) -> str:
        if image is None:
            return ""
        if image not in self.limits.images:
            expected = f"one of {', '.join(self.limits.images)}" if self.limits.images else "none: no image may be chosen here"
            self.wrong("image", image, expected)
            return ""
        return str(image)

    def schedule(self, body: t.Any) -> Schedule | None:
        if body is None:
            return None
        if not self.mapping("schedule", body, ("cron", "timeZone", "acceptedHistoryLimit", "refusedHistoryLimit")):
            return None
        cron = body.get("cron")
        if not isinstance(cron, str) or len(cron) > 100 or not CRON.match(cron):
            self.wrong("schedule.cron", cron, "minute, hour, day, month and weekday, like 0 3 * * 6")
        zone = body.get("timeZone", "UTC")
        try:
            if not isinstance(zone, str) or len(zone) > 64:
                raise ValueError
            zoneinfo.ZoneInfo(zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            self.wrong("schedule.timeZone", zone, "a time zone of the IANA's, like Asia/Shanghai")
        accepted, refused = (self.number(f"schedule.{name}HistoryLimit", body.get(f"{name}HistoryLimit", 3), 0, MOST_KEPT)
                             for name in ("accepted", "refused"))
        return Schedule(str(cron), str(zone), accepted or 0, refused or 0)

    # Values ----------------------------------------------------------------------------------------------------------

    def mapping(self, field: str, value: t.Any, names: t.Collection[str]) -> bool:
        """Return True if a value is a mapping. Unknown names in it are errors too, since they would have no effect."""
        if not isinstance(value, dict):
            self.wrong(field, value, f"a mapping with any of {', '.join(names)}")
            return False
        for name in value:
            if name not in names:
                where = _shown(name)[1:-1]
                self.wrong(where if field == "spec" else f"{field}.{where}", "an unknown field", f"any of {', '.join(names)}")
        return True

    def choice(self, field: str, value: t.Any, choices: t.Collection[str]) -> str:
        if not isinstance(value, str) or value not in choices:
            self.wrong(field, value, f"one of {', '.join(choices)}")
            return ""
        return value

    def number(self, field: str, value: t.Any, minimum: int, maximum: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            self.wrong(field, value, f"a whole number from {minimum} to {maximum}")
            return None
        return value

    def truth(self, field: str, value: t.Any) -> bool:
        if value is not None and not isinstance(value, bool):
            self.wrong(field, value, "true or false")
        return value is True


def operations(library: str) -> t.Tuple[str, ...]:
    """The collectives of a library, of any where it is not known: those that its stage may be asked for."""
    stages = [COLLECTIVES[name][0] for name in LIBRARIES if library in (name, "")]
    return tuple(dict.fromkeys(op for stage in stages for op in allowed.role(stage)[0][f"{stage}_ops"]["choices"]))


def _brought(stage: t.Any) -> t.Tuple[str, ...]:
    shipped = registry.shipped().get(stage) if isinstance(stage, str) else None
    return (*shipped.before, *shipped.after) if shipped else ()
