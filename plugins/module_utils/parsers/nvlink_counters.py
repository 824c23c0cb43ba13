# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters of NVLinks that `nvidia-smi nvlink -e` prints, of all generations, each with its class.

Pure functions; none raises, whatever the text is.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value

# Classes. A link that was lost and did not come back is a defect. Of packets that were lost or damaged a healthy link has none. Links that
# were trained anew hold all traffic for a moment. What was sent again arrived. A rate is a share of bits. Noise is counted by healthy links
# in any number.
FAILED, LOST, RETRAINED, RESENT, RATE, NOISE = "failed", "lost", "retrained", "resent", "rate", "noise"


class Counter(t.NamedTuple):
    """One counter: the beginning of its name in small letters as a pattern, our name, and its class."""

    pattern: str
    name: str
    kind: str


# The first pattern that matches the whole name counts. Sources: nvml.h, NVML_FI_DEV_NVLINK_COUNT_* (fields 201 to 222), _FEC_HISTORY_0 to
# 15 (235 to 250), _PLR_*, and NVML_NVLINK_ERROR_DL_* of NVLink up to 4; names as users published them of V100 (driver 418: replay,
# recovery, CRC), A100 and H100 (525 to 580: flit CRC, data CRC and ECC too), GB200 (570 to 580) and B300 (595). DCGM calls replays,
# recoveries and CRC errors that are not 0 an error (DCGM_FR_NVLINK_ERROR_CRITICAL, "should be 0").
COUNTERS: tuple[Counter, ...] = (
    Counter(r"(?:link recovery failed|failed link recovery)(?: events| count)?", "link_recovery_failed", FAILED),
    Counter(r"(?:link recovery successful|successful link recovery)(?: events| count)?", "link_recovery_successful", RETRAINED),
    Counter(r"(?:total )?link recovery(?: events| count)?", "link_recovery", RETRAINED),
    Counter(r"recovery(?: errors?)?(?: count)?", "recovery", RETRAINED),
    # A link also goes down when its GPU is reset.
    Counter(r"(?:link )?down(?:ed|s)?(?: errors?| events?)?(?: count)?", "link_downed", RETRAINED),
    Counter(r"replay(?: errors?)?(?: count)?", "replay", RESENT),
    Counter(r"crc flit(?: errors?)?(?: count)?", "crc_flit", RESENT),
    Counter(r"crc data(?: errors?)?(?: count)?", "crc_data", RESENT),
    Counter(r"crc(?: errors?)?(?: count)?", "crc", RESENT),
    Counter(r"ecc(?: data)?(?: errors?)?(?: count)?", "ecc", RESENT),
    Counter(r"malformed packets?(?: errors?)?(?: count)?", "malformed_packet", LOST),
    Counter(r"buffer overrun(?: errors?)?(?: count)?", "buffer_overrun", LOST),
    Counter(r"(?:rx|receive) remote(?: errors?)?(?: count)?", "rx_remote", LOST),
    Counter(r"(?:rx|receive) general(?: errors?)?(?: count)?", "rx_general", LOST),
    Counter(r"(?:data )?(?:rx|receive)(?: errors?)?(?: count)?", "rx", LOST),
    Counter(r"(?:data )?(?:tx|transmit)(?: errors?)(?: count)?", "tx", LOST),
    Counter(r"local link integrity(?: errors?)?(?: count)?", "local_link_integrity", LOST),
    Counter(r"(?:tx|transmit|xmit|rx) discards?(?: count)?", "discards", LOST),
    Counter(r"(?:vl15|rx|tx) dropped", "dropped", LOST),
    Counter(r"effective(?: physical)?(?: errors?)(?: count)?", "effective", LOST),
    Counter(r"symbol(?: errors?)(?: count)?", "symbol", LOST),
    Counter(r"plr (?:rcv|rx) uncorrectable codes?", "plr_uncorrectable", LOST),
    Counter(r"plr (?:xmit|tx) retry.*", "plr_retry", RESENT),
    Counter(r"effective ber", "effective_ber", RATE),
    Counter(r"symbol ber", "symbol_ber", RATE),
    # Before errors are corrected there are some on every link: millions of raw errors, billions of code words with 0 corrected symbols.
    Counter(r"raw (?:ber|errors?).*", "", NOISE),
    Counter(r"fec(?: errors?| history)?(?: - | )?\d*", "", NOISE),
    Counter(r"plr .*", "", NOISE),
    Counter(r"(?:tx|rx|transmit|receive)\d? (?:packets|bytes|data|throughput|utilization).*", "", NOISE),
    # A name that no row knows: taken for lost packets if it speaks of an error, so that a new counter is seen.
    Counter(r".*(?:err|fail|discard|drop|overrun|malform|retr|uncorrect|timeout|poison).*", "", LOST),
    Counter(r".*", "", NOISE),
)
KINDS: dict[str, str] = {counter.name: counter.kind for counter in COUNTERS if counter.name}
# A bit error rate above this one is bad: 1e-12 behind error correction is what links of InfiniBand and Ethernet are built for at worst.
WORST_RATE = 1e-12

_LINE = re.compile(r"^[ \t]*Link \d{1,3}(?:[,:]? Lane \d{1,2})?: ([A-Za-z][^:\n]{0,80}?)[ \t]*: *([^\n]{0,60}?)[ \t]*$", re.MULTILINE)


def kind_of(name: str) -> str:
    """Return the class of a counter that read() returned."""
    return KINDS.get(name, LOST)


def read(text: str) -> dict[str, Value]:
    """Return {counter: sum over all links of one GPU, of a rate the worst}; Absent if it could be read on no link, or was read as 0 on some
    only. Noise is left out."""
    cells: dict[str, list[Value]] = {}
    for words, cell in _LINE.findall(text):
        plain_words = re.sub(r"\b(?:counters?|counts)$", "count", " ".join(words.lower().split()))
        counter = next(counter for counter in COUNTERS if re.fullmatch(counter.pattern, plain_words))
        if counter.kind != NOISE:
            name = counter.name or re.sub(r"[^a-z0-9]+", "_", plain_words).strip("_")
            cells.setdefault(name, []).append(_number(cell, plain_words, counter.kind))
    return {name: _worst(values) if kind_of(name) == RATE else absent.at_least(values) for name, values in cells.items()}


def _number(cell: str, name: str, kind: str) -> Value:
    if kind == RATE:
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?)[eE]([+-]?\d{1,4})", cell)
        return float(cell) if match else absent.number(cell, name)
    value = absent.number(cell, name)
    is_count = isinstance(value, int) and 0 <= value < 1 << 63
    return value if is_count or isinstance(value, Absent) else Absent(f"{name} reads {cell!r}")


def _worst(values: t.Sequence[Value]) -> Value:
    """Return the highest of rates; if some are absent, only if it is bad by itself."""
    numbers = [value for value in values if not isinstance(value, Absent)]
    missing = next((value for value in values if isinstance(value, Absent)), None)
    highest = max(numbers, default=0)
    return highest if missing is None or highest > WORST_RATE else missing
