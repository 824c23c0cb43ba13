# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a request: each with its type, its bounds and, where the type does not say it, what is expected.

The API's document (`web/openapi.py`) shows the same types. `files/console/crd.yaml` repeats them for a cluster.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.structs import UNSET, Meta, Struct, UnsetType
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# Of each library: the stage for one node alone, and for several together.
COLLECTIVES: t.Mapping[str, t.Sequence[str]] = {
    library: [stage.name for stage in sorted(stages, key=lambda stage: stage.between)]
    for library, stages in itertools.groupby(
        sorted((stage for stage in registry.shipped().values() if stage.library), key=lambda stage: stage.place),
        key=lambda stage: stage.library,
    )
}
LIBRARIES = tuple(COLLECTIVES)


def operations(library: str) -> t.Tuple[str, ...]:
    """The collectives of a library, of any where it is not known: those that its stage may be asked for."""
    stages = [COLLECTIVES[name][0] for name in LIBRARIES if library in (name, "")]
    return tuple(dict.fromkeys(op for stage in stages for op in allowed.role(stage)[0][f"{stage}_ops"]["choices"]))


RdmaOperation = t.Literal["read", "write", "send"]
Measure = t.Literal["bandwidth", "latency"]
Scope = t.Literal["all_pairs", "ring", "sample", "loopback"]
RDMA_OPERATIONS, SCOPES = t.get_args(RdmaOperation), t.get_args(Scope)

# `$` of Python's `re` matches before a last newline too, that of JSON Schema does not; the lookahead makes both the same.
_END = r"$(?!\n)"
# A host or a node, and nothing that means more in a host pattern: no * [ ] : , ! & ~ @ and no template.
NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?" + _END)
DEVICE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}" + _END)
_LABEL = r"^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?" + _END
_LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?" + _END
_SIZES = r"^[0-9]{1,12}[KMG]?:(auto|[0-9]{1,12}[KMG]?)" + _END
_CRON = r"^[0-9A-Za-z*/,-]+( [0-9A-Za-z*/,-]+){4}" + _END
_STAGES = ", ".join(allowed.STAGES)

Node = t.Annotated[str, Meta(pattern=NAME.pattern, description="the name of a node")]
Device = t.Annotated[str, Meta(pattern=DEVICE.pattern, description="the name of an RDMA device, like mlx5_0")]
Label = t.Annotated[str, Meta(pattern=_LABEL, description="the name of a label")]
LabelValue = t.Annotated[str, Meta(pattern=_LABEL_VALUE, description="the value of a label")]
SizeRange = t.Annotated[str, Meta(pattern=_SIZES, description="SMALLEST:LARGEST, like 8M:1G or 8M:auto")]
Cron = t.Annotated[str, Meta(pattern=_CRON, max_length=100, description="minute, hour, day, month and weekday, like 0 3 * * 6")]
Zone = t.Annotated[str, Meta(max_length=64, description="a time zone of the IANA's, like Asia/Shanghai")]
Kept = t.Annotated[int, Meta(ge=0, le=100)]
# No literals: what the collection ships is known only when it runs.
Library = t.Annotated[str, Meta(extra_json_schema={"enum": list(LIBRARIES)})]
Operation = t.Annotated[str, Meta(description=f"one of {', '.join(operations(''))}")]  # which of them depends on the library
StageName = t.Annotated[str, Meta(extra_json_schema={"enum": list(allowed.STAGES)})]
Image = t.Annotated[str, Meta(description="an image that this console allows")]


class Pool(Struct, forbid_unknown_fields=True, frozen=True):
    """All nodes with these labels."""

    matchLabels: t.Annotated[dict[Label, LabelValue], Meta(max_length=16, description="up to 16 labels and their values")] = {}


class Where(Struct, forbid_unknown_fields=True, frozen=True):
    """The nodes of each kind of request: by name or by label."""

    nodes: t.Annotated[list[Node], Meta(description="a list of nodes")] | UnsetType = UNSET
    pool: Pool | UnsetType = UNSET


class RdmaSpec(Where, forbid_unknown_fields=True, frozen=True):
    """RDMA between pairs of nodes."""

    device: Device | UnsetType = UNSET
    port: t.Annotated[int, Meta(ge=1, le=255)] | UnsetType = UNSET
    operation: RdmaOperation = "read"
    measure: Measure = "bandwidth"
    scope: Scope = "all_pairs"


class CollectiveSpec(Where, forbid_unknown_fields=True, frozen=True):
    """A collective over the GPUs of one node or several."""

    operation: Operation = "all_reduce"
    gpusPerNode: t.Annotated[int, Meta(ge=1, le=64)] | UnsetType = UNSET
    sizes: (
        t.Annotated[list[SizeRange], Meta(min_length=1, max_length=8, description="1 to 8 of SMALLEST:LARGEST, like 8M:1G")] | UnsetType
    ) = UNSET
    library: Library = LIBRARIES[0]


class StagesSpec(Where, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Stages of the collection, with variables of theirs."""

    names: t.Annotated[list[StageName], Meta(min_length=1, max_length=len(allowed.STAGES), description=f"a list of {_STAGES}")]
    variables: (
        t.Annotated[
            dict[t.Any, t.Any],
            Meta(max_length=len(allowed.VARIABLES), description="a mapping of variables of these stages to their values"),
        ]
        | UnsetType
    ) = UNSET


class Schedule(Struct, forbid_unknown_fields=True, frozen=True,
               rename={"zone": "timeZone", "accepted": "acceptedHistoryLimit", "refused": "refusedHistoryLimit"}):  # fmt: skip
    """When a request is repeated, and how many of the actions that came of it are kept."""

    cron: Cron
    zone: Zone = "UTC"
    accepted: Kept = 3
    refused: Kept = 3


class Spec(Struct, forbid_unknown_fields=True, frozen=True, rename={"ttl": "ttlSecondsAfterFinished"}):
    """A request: one of the three kinds, and what all have."""

    rdma: RdmaSpec | UnsetType = UNSET
    collective: CollectiveSpec | UnsetType = UNSET
    stages: StagesSpec | UnsetType = UNSET
    image: Image | UnsetType = UNSET
    suspend: bool | UnsetType = UNSET
    cancel: bool | UnsetType = UNSET
    ttl: t.Annotated[int, Meta(ge=0, le=10 * 365 * 86400)] | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
