# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of what nodes say of a fabric. A node may say anything; what has another form than the probe's is not read, so that no reader
meets it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.form import (
    is_count,
    is_text,
    list_of,
    object_of,
    perhaps,
    row,
    with_keys,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, is_number

_COUNTERS = list_of(row(is_text, is_count, object_of(is_count)))
_PORT = with_keys(
    device=is_text, port=is_count, state=perhaps(is_text), physical=perhaps(is_text), link_layer=perhaps(is_text),
    netdev=perhaps(is_text), model=perhaps(is_text), guid=perhaps(is_text), sm_lid=perhaps(is_number), rate_gbps=perhaps(is_number),
    width=perhaps(is_count), speed=perhaps(is_text), heard=perhaps(list_of(list_of(perhaps(is_text)))),
)  # fmt: skip
_FABRIC = with_keys(
    through=perhaps(is_text), firmware=perhaps(object_of(perhaps(is_text))),
    devices=list_of(row(is_text, is_text, is_text, is_count, is_text, is_text, list_of(row(is_count, is_text)))),
    links=list_of(row(is_text, is_count, is_text, is_count, is_count, is_text, is_count, is_text)),
    down=list_of(row(is_text, is_count, perhaps(is_text), perhaps(is_text))), errors=_COUNTERS, rose=_COUNTERS,
    could=list_of(row(is_text, is_count, is_number)), wider=list_of(row(is_text, is_count, is_count)),
    manager_lid=perhaps(is_count), manager_state=perhaps(is_text),
    not_looked_for=perhaps(object_of(is_text)), unread=perhaps(object_of(is_text)),
)  # fmt: skip
_MODULE = with_keys(
    port=is_text, link=perhaps(object_of(lambda _value: True)),
    unused=with_keys(words=list_of(is_text), width=is_count, wired=perhaps(is_count)),
)  # fmt: skip
_CONTEXT = with_keys(
    ports=list_of(_PORT), fabrics=list_of(_FABRIC), modules=list_of(_MODULE), not_looked_for=perhaps(object_of(is_text))
)


def is_of_probe(record: Measurement) -> bool:
    """Return True if the context of a measurement has the form that the probe gives it."""
    return _CONTEXT(record.context)


def ports_of(record: Measurement | None) -> list[PlainData]:
    """Return the ports that a node tells; none if they have another form."""
    return list(record.context.get("ports") or ()) if record is not None and is_of_probe(record) else []
