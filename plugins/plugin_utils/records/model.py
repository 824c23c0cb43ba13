# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one definition of the records of a run: what stands in its plan, its journal and its verdicts.

The JSON schemas in roles/common/files/schemas/ are generated from these classes (`make schemas`). A node runs Python 3.8 without msgspec,
so module_utils/answer/observation.py lists the fields of an observation by itself; tests/unit/plugin_utils/records/test_model.py compares
the two.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import math
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import reason_codes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.structs import UNSET, Meta, Struct, UnsetType, field, msgspec

HAS_MSGSPEC = msgspec is not None

Kind = t.Literal["node", "gpu", "nic", "pair", "group", "switch", "nvlink_domain"]
# How much a run measures, the least first; each level has the stages of those before it.
Level = t.Literal["quick", "standard", "full"]
Outcome = t.Literal["measured", "error", "timeout", "missing", "not_applicable"]
Word = t.Literal["PASS", "WARN", "FAIL", "UNKNOWN", "SKIPPED", "KNOWN_FAIL"]

# `$` of Python's `re` matches before a last newline too, that of JSON Schema does not; the lookahead makes both the same.
_END = r"$(?!\n)"
RunId = t.Annotated[str, Meta(pattern=r"^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}" + _END)]
Name = t.Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,62}" + _END)]
PlaneName = t.Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,31}" + _END)]
ReasonCode = t.Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*" + _END)]
Time = t.Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z" + _END)]
Sha256 = t.Annotated[str, Meta(pattern=r"^[0-9a-f]{64}" + _END)]
SharedId = t.Annotated[str, Meta(pattern=r"^[0-9a-f]{16}" + _END)]
Filled = t.Annotated[str, Meta(min_length=1)]
Number = int | float  # an int of a tool stays an int, and is written as one

# An object of JSON whose fields are not known here: of a node, of a user, or of a program.
PlainData = dict[str, t.Any]
# Three parts of a measurement whose fields each probe chooses (docs/architecture.md): what selects an expectation, a row for each size of a
# sweep, and what happened on the node meanwhile.
Context = dict[str, t.Any]
SeriesRow = dict[str, t.Any]
MeasuredEvidence = dict[str, t.Any]
# The hardware that an expectation holds for, by keys of contexts: a value, or a list of values of which one must match.
Match = dict[str, t.Any]
# Facts of a node by name.
Facts = dict[str, t.Any]

_LARGEST = sys.float_info.max  # JSON has whole numbers of any length: a node can send one of 400 digits
_LONGEST_ID = 1024


class Record(Struct):
    """A record whose fields can be read by name too, as stages and sinks of a team's own do: `record["stage"]` is `record.stage`."""

    def __getitem__(self, name: str) -> t.Any:
        value = self.get(name, UNSET)
        if value is UNSET:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name, UNSET) is not UNSET

    def get(self, name: str, default: t.Any = None) -> t.Any:
        """Return the value of a field, or `default` if the record has no such field."""
        value = getattr(self, name) if name in self.__struct_fields__ else UNSET
        return default if value is UNSET else value

    def keys(self) -> list[str]:
        """Return the names of the fields that the record has; with `__getitem__` this makes `{**record}` work."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]

    def as_dict(self) -> PlainData:
        """Return the record as plain data, as it is written to JSON. Values that are no records are not copied."""
        return {name: _as_data(self[name]) for name in self.keys()}


def encode(value: t.Any) -> t.Any:
    """Return a record as plain data, for `json.dumps(..., default=encode)`. Raises TypeError for anything else."""
    if isinstance(value, Record):
        return value.as_dict()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _as_data(value: t.Any) -> t.Any:
    if isinstance(value, Record):
        return value.as_dict()
    if isinstance(value, list) and value and isinstance(value[0], Record):
        return [record.as_dict() for record in value]
    return value


class MetricData(t.TypedDict):
    """A Metric as plain data."""

    value: Number | None
    unit: str


class Subject(Record, forbid_unknown_fields=True, gc=False):
    """The thing that a number is about.

    `id` has one of the forms of records/keys.py. `members` are the ids of the parts that were measured, as the GPUs of a node, or the nodes
    of a group. Several records share one object, so nobody may change it.
    """

    kind: Kind
    id: Filled
    members: t.Annotated[list[str], Meta(description="ids of the parts that were measured, e.g. a node's GPUs")]


class Metric(Record, forbid_unknown_fields=True, gc=False):
    """A number with its unit (docs/architecture.md lists the units). `value` is None if the tool printed no number."""

    value: Number | None
    unit: Filled

    def as_data(self) -> MetricData:
        """Return it as plain data, as it is written to JSON."""
        return {"value": self.value, "unit": self.unit}


class Measurement(Record, forbid_unknown_fields=True, gc=False):
    """The result of one check on one subject. It holds no opinion.

    `stage`, `check`, `variant` and the id of the subject are its key (records/keys.py); `attempt` counts from 1. `plane` is how the node
    was reached, `target` the inventory host it was reached through. `reason_code` and `reason` say why `outcome` is not `measured`.

    `metrics` are numbers by name. Three fields are open by design, because each probe fills them in its own way: `series`, one row for each
    size of a sweep (bytes; the units of its other numbers are in `context.series_units`); `context`, which selects an expectation; and
    `evidence`, what happened on the node meanwhile ({"window", "changes", "unreadable"}).

    `started_at` is UTC, `duration_s` in seconds. `raw` is a file below the folder of the run, `raw_sha256` its digest.
    """

    schema: t.Literal["measurement/v1"]
    run_id: RunId
    stage: Name
    check: Name
    variant: t.Annotated[
        str, Meta(max_length=512, description="canonical 'key=value key=value', keys sorted; empty where the check has one form")
    ]
    subject: Subject
    plane: PlaneName
    target: t.Annotated[str, Meta(min_length=1, description="inventory host it was reached through")]
    attempt: t.Annotated[int, Meta(ge=1)]
    outcome: Outcome
    reason_code: ReasonCode | None
    reason: t.Annotated[str, Meta(max_length=2000)] | None
    metrics: dict[str, Metric]
    series: list[SeriesRow]
    context: Context
    evidence: MeasuredEvidence
    command: list[str]
    tool_version: str | None
    started_at: Time
    duration_s: t.Annotated[Number, Meta(description="seconds", extra_json_schema={"minimum": 0})]
    raw: t.Annotated[str | None, Meta(description="file with the tool's output, relative to the run's directory")]
    raw_sha256: Sha256 | None
    simulated: bool

    @property
    def key(self) -> Key:
        """The key of what was measured."""
        return Key(self.stage, self.check, self.variant, self.subject.id)

    def replaced(self, **fields: t.Any) -> Measurement:
        """Return a copy with other values of some fields."""
        return msgspec.structs.replace(self, **fields)

    def as_dict(self) -> PlainData:
        """Return it as plain data, as it is written to JSON."""
        return t.cast(PlainData, msgspec.to_builtins(self, enc_hook=plain))

    def as_text(self) -> str:
        """Return it as JSON with sorted keys: what tells two measurements of one key and attempt apart."""
        return json.dumps(self.as_dict(), sort_keys=True, default=str)

    def raise_if_wrong(self) -> None:
        """Raise ValueError for what types cannot say; MEASUREMENT_RULES says the same to a reader of the schema."""
        if self.outcome == "measured":
            if self.reason_code is not None:
                raise ValueError(f"reason_code: found {self.reason_code!r} of a measured check, expected None")
        elif self.reason_code not in reason_codes.ALL:
            raise ValueError(f"reason_code: {self.reason_code!r} is not in the list")
        elif not self.reason:
            raise ValueError(f"reason: found {self.reason!r}, expected a sentence")
        if len(self.subject.id) > _LONGEST_ID:
            raise ValueError(f"subject.id: it has {len(self.subject.id)} characters, more than {_LONGEST_ID}")
        for name, metric in self.metrics.items():
            value = metric.value
            if value is not None and not -_LARGEST <= value <= _LARGEST:
                raise ValueError(f"metrics.{name}.value: found {str(value)[:40]}, expected a finite number")
        if not 0 <= self.duration_s <= _LARGEST:
            raise ValueError(f"duration_s: found {str(self.duration_s)[:40]}, expected a finite number of seconds, 0 or more")


def plain(value: t.Any) -> t.Any:
    """Return data as Python's own types. Texts and containers that come through Ansible are of subclasses, which msgspec refuses.

    Raises NotImplementedError for anything that is no plain data.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, t.Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    raise NotImplementedError(f"{type(value).__name__} is no plain data")


def measurement_of(record: t.Any) -> Measurement:
    """Return a measurement made of plain data, also of Ansible's subclasses. Raises ValueError if that is no measurement/v1."""
    try:
        measurement = msgspec.convert(record, Measurement)
    except msgspec.ValidationError:
        try:
            measurement = msgspec.convert(plain(record), Measurement)
        except NotImplementedError as error:
            raise ValueError(str(error)) from error
    measurement.raise_if_wrong()
    return measurement


MEASUREMENT_RULES: PlainData = {
    "allOf": [
        {"properties": {"subject": {"properties": {"id": {"maxLength": _LONGEST_ID}}}}},
        {
            "if": {"properties": {"outcome": {"const": "measured"}}},
            "then": {"properties": {"reason_code": {"type": "null"}}},
            "else": {"properties": {"reason_code": {"type": "string"}, "reason": {"type": "string", "minLength": 1}}},
        },
    ]
}
# Fields of a line of the journal besides those of the measurement.
CHAIN: PlainData = {
    "chain": {
        "type": "string",
        "pattern": f"^[0-9a-f]{{64}}{_END}",
        "description": "in a journal only: SHA-256 of the chain of the line before (of plan.json for the first) and of this line without "
        "it",
    }
}
JOURNAL_FIELDS: PlainData = {
    **CHAIN,
    "shared": {
        "type": "object",
        "propertyNames": {"enum": ["command", "identities"]},
        "additionalProperties": {"type": "string", "pattern": f"^[0-9a-f]{{16}}{_END}"},
        "description": "in a journal only: the ids of the lines before (shared/v1) that hold the command and the identities of the "
        "context, which this line lacks then",
    },
}


class JournalLine(Measurement, forbid_unknown_fields=True, gc=False):
    """A measurement as a line of a journal whose `command`, `context.identities` or both are shared values. `shared` has their ids; the
    command is empty then, and the context lacks its identities."""

    shared: dict[t.Literal["command", "identities"], SharedId]


class SharedValue(Record, forbid_unknown_fields=True, gc=False):
    """A value that several lines of a journal have, in a line of its own before them. They name it by its `id`."""

    schema: t.Literal["shared/v1"]
    id: SharedId
    value: list[str] | PlainData


class Verdict(Record, forbid_unknown_fields=True, gc=False):
    """An expectation applied to a measurement, or why there is no verdict.

    `value`, `floor` and `expected` are in `unit`. `layer`, `source`, `confidence`, `date` and `expectation` (its id) say where the floor is
    from. `attempt` and `simulated` are those of the measurement that decided, None and False if there is none. `ticket` and `expires` are
    those of the waiver, and `of` the verdict without it. `findings` are sentences besides `reason`.
    """

    schema: t.Literal["verdict/v1"]
    run_id: str
    stage: str
    check: str
    variant: str
    subject: Subject
    verdict: Word
    reason: t.Annotated[str, Meta(min_length=1, description="one sentence a person can act on")]
    reason_code: ReasonCode | None
    value: Number | None
    unit: str | None
    floor: t.Annotated[Number | None, Meta(description="the least (for a latency the most) value that passes, in the same unit as value")]
    layer: t.Annotated[
        t.Literal["shipped", "group", "host", "run", "fleet", None],
        Meta(description="who set the floor; fleet: the neighbours' median"),
    ]
    source: str | None
    confidence: t.Literal["measured", "vendor", "derived", None]
    attempt: int | None = None
    simulated: bool = False
    metric: str | None = None
    expected: Number | None = None
    date: str | None = None
    expectation: t.Annotated[str | None, Meta(description="id of the expectation applied")] = None
    ticket: str | None = None
    expires: str | None = None
    of: t.Annotated[
        t.Literal["PASS", "WARN", "FAIL", "UNKNOWN", "SKIPPED", "KNOWN_FAIL", None],
        Meta(description="what the verdict would be without the waiver"),
    ] = None
    regressed: t.Annotated[bool, Meta(description="whether it became worse than its own past, whatever the verdict is")] = False
    findings: list[str] = []

    @property
    def key(self) -> Key:
        """The key of what was judged."""
        return Key(self.stage, self.check, self.variant, self.subject.id)

    def as_dict(self) -> PlainData:
        """Return it as plain data, as it is written to JSON."""
        return t.cast(PlainData, msgspec.to_builtins(self, enc_hook=plain))


def verdicts_of(lines: t.Iterable[bytes]) -> list[Verdict]:
    """Return the verdicts in the lines of a verdicts.jsonl. Raises ValueError if a line is no verdict/v1."""
    return list(map(msgspec.json.Decoder(Verdict).decode, lines))


class PlanItem(Record, gc=False):
    """One check that a run intends to measure on one subject, through the inventory host `target`.

    `refused`, if set, is the sentence that says why it cannot be measured.
    """

    stage: str
    check: str
    variant: str
    subject: Subject
    target: str
    refused: str | UnsetType = UNSET

    @property
    def key(self) -> Key:
        """The key of the check."""
        return Key(self.stage, self.check, self.variant, self.subject.id)

    def todo(self, attempt: int) -> TodoItem:
        """Return the item of a todo by which the check is measured as this attempt."""
        subject = SubjectData(kind=self.subject.kind, id=self.subject.id, members=self.subject.members)
        item = TodoItem(check=self.check, variant=self.variant, subject=subject, attempt=attempt)
        if self.refused is not UNSET:
            item["refused"] = self.refused
        return item


def plan_item(stage: str, item: t.Mapping[str, t.Any]) -> PlanItem:
    """Return an item of a plan, made of plain data: {"check", "variant", "subject", "target"} and maybe "refused". Raises ValueError if it
    is none."""
    fields = {"stage": stage, **item}
    unknown = sorted(fields.keys() - set(PlanItem.__struct_fields__))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]}, expected check, variant, subject, target and maybe refused")
    try:
        return msgspec.convert(plain(fields), PlanItem)
    except NotImplementedError as error:
        raise ValueError(str(error)) from error


class PlannedStage(t.TypedDict):
    """A stage as the plan lists it.

    `manifest` is there for a stage made of a manifest, `description` is the path of the description of a team's own stage.
    """

    name: str
    role: str
    manifest: t.NotRequired[t.Any]
    description: t.NotRequired[str]


class Target(t.TypedDict):
    """An inventory host of the plan, with the plane through which it is reached."""

    plane: str


class Sample(t.TypedDict):
    """The chosen nodes of a stage that measures a random sample `of` so many nodes, and the seed that chose them."""

    seed: t.Any
    nodes: list[str]
    of: int


# The variables of one host by name: their names and values are the inventory's.
Variables = dict[str, t.Any]


class HostSettings(Record):
    """The settings of all hosts: the distinct ones in `sets`, and for each host the number `of` its set."""

    sets: list[Variables]
    of: dict[str, int]


class ExpectationData(t.TypedDict):
    """An Expectation (judging/expectations.py) as plain data."""

    id: str
    match: Match
    metric: str
    value: Number
    unit: str
    source: str
    date: str
    confidence: str
    better: t.NotRequired[str]
    missed: t.NotRequired[str]
    passes: t.NotRequired[Number | None]
    warns: t.NotRequired[Number | None]
    gates: t.NotRequired[list[str]]
    note: t.NotRequired[str]
    layer: t.NotRequired[str]
    rank: t.NotRequired[int]
    origin: t.NotRequired[str]


class FactRules(t.TypedDict, total=False):
    """The rules of one target for facts that differ (judging/drift.py): `golden` is {fact: what it must be}, `ignore` are patterns of facts
    that may differ, `drift` is {pattern: severity} as the user wrote it."""

    golden: Facts | None
    ignore: list[str] | None
    drift: PlainData | None


class StatedHardware(t.TypedDict, total=False):
    """The inventory's statements on the GPUs of a target's nodes: how many each has, None if it does not say, and whether MIG may be on.
    `groups` are the groups of a machine that have other machines too, and not all."""

    gpu_count: int | None
    mig: str | None
    groups: list[str]


class JudgingInputs(Record):
    """All that verdicts depend on besides the measurements, as the inventory had it.

    `sets` are the distinct sets of expectations (judging/expectations.py); `of` is the number of the set for each target, and for each node
    of a cluster with settings of its own. `waivers` are as the user wrote them, `references` the declared new references. `warn` is
    acceptance_warn, `regression` acceptance_regression.

    By target: `stack` holds the rules for facts; `stated` the stated hardware; `own_facts` the patterns of facts that belong to a pod or
    its image and not to the machine; `required` the evidence that each stage must have been able to read, {stage: [code]}. `leaf` is the
    leaf switch of each node and `rack` its rack or row, as far as known. `notes` are sentences for the report.
    """

    sets: list[list[ExpectationData]] = []
    of: dict[str, int] = {}
    waivers: list[t.Any] = []
    references: list[t.Any] = []
    warn: str = "accept"
    regression: str = "warn"
    stack: dict[str, FactRules] = {}
    stated: dict[str, StatedHardware] = {}
    own_facts: dict[str, list[str]] = {}
    required: dict[str, dict[str, list[str]]] = {}
    leaf: dict[str, str] = {}
    rack: dict[str, str] = {}
    notes: list[str] = []


class Plan(Record):
    """The plan of a run, plan.json: all that the run intends to measure, written before the first measurement and never changed.

    `created_at` is UTC. `inventory` names the inventory. `chained` is True if the journal has a chain of digests. A `partial` run lacks a
    part of the fleet (`left_out` hosts) or of the stages (`skipped_stages`), or is a quick test; `not_proven` is what that does not show.
    `targets` are the inventory hosts, `sample` the chosen nodes of stages that measure a sample, `check_seconds` the declared seconds of
    one check by stage. `level` is the acceptance_level that chose the stages, empty if acceptance_stages named them. `settings` is None in
    plans of older versions, which did not keep them.
    """

    schema: t.Literal["plan/v1"]
    run_id: str
    created_at: str
    stages: list[PlannedStage]
    targets: dict[str, Target]
    items: list[PlanItem]
    inventory: str = ""
    mode: t.Literal["run", "quick"] = "run"
    level: Level | t.Literal[""] = ""
    chained: bool = False
    collection_version: str = ""
    ansible_version: str = ""
    python_version: str = ""
    partial: bool = False
    not_proven: list[str] = []
    left_out: list[str] = []
    skipped_stages: list[str] = []
    sample: dict[str, Sample] = {}
    check_seconds: dict[str, float] = {}
    settings: HostSettings | None = None
    judging: JudgingInputs = field(default_factory=JudgingInputs)
    notes: list[str] = []


def plan_of(text: bytes) -> Plan:
    """Return the plan in the text of a plan.json. Raises ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # Python writes NaN and lone surrogates, which are not JSON
        return msgspec.convert(json.loads(text), Plan)


class SubjectData(t.TypedDict):
    """A Subject as plain data."""

    kind: str
    id: str
    members: list[str]


class TodoItem(t.TypedDict):
    """A check that is left to measure. `attempt` is the number that its next measurement will have."""

    check: str
    variant: str
    subject: SubjectData
    attempt: int
    refused: t.NotRequired[str]


class Todo(t.TypedDict, total=False):
    """The work of one target as its workers read it: items by stage, its settings, and the names of variables that each worker takes from
    the inventory because no file may hold them. `finished` are the keys of its checkpoints of a stage that was cut off. `announced` is
    {node, target or "*": when somebody said that it was restarted}."""

    stages: dict[str, list[TodoItem]]
    settings: Variables
    secret: list[str]
    finished: list[t.Any]
    announced: dict[str, str]


class PlannedRun(t.TypedDict):
    """The fact `acceptance_run`, by which the tasks of a play know the run. `tasks` is the path of the file of tasks, `questions` are those
    to a person, `sinks` the names of those that get measurements. In check mode `run_id` is empty."""

    run_id: str
    results_dir: str
    tasks: str
    questions: list[str]
    detached: bool
    sinks: t.NotRequired[list[str]]


class Cause(t.TypedDict):
    """The cause of verdicts that are no PASS: a subject with its kind, `said` in one sentence; `own` are the checks of it that say
    so, `explains` those of others that are bad because of it. `convicted`: by its stage, from several tests; `whole`: `said` tells all.
    """

    subject: str
    kind: str
    convicted: bool
    whole: bool
    verdict: str
    said: str
    own: list[Key]
    explains: list[Key]


class NodeVerdict(t.TypedDict):
    """The verdict of a whole node with its parts, of a pair, a switch or a group, and that of each stage that has one of it."""

    name: str
    kind: str
    verdict: str
    stages: dict[str, str]
    simulated: bool


def is_number(value: t.Any) -> t.TypeGuard[float]:
    """Return True if `value` is a finite number; True and False are not numbers."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and value is not True and value is not False and -_LARGEST <= value <= _LARGEST
