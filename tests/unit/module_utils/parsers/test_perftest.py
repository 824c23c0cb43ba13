# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""perftest: recordings of real runs over soft-RoCE, and what other versions print."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.perftest import parse
from hypothesis import given
from hypothesis import strategies as st

HERE = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "perftest-rxe"
RUNS = sorted(p.name for p in HERE.glob("ib_*.txt") if "help" not in p.name) + sorted(p.name for p in HERE.glob("err_*.txt"))
# Healthy-looking names of runs that the recording shows to have failed.
FAILED = ("ib_send_lat_a_n50", "ib_write_bw_rdmacm_R", "ib_atomic")


def recording(name: str) -> tuple[str, int]:
    text = (HERE / name).read_text()
    status = re.findall(r"(?m)^# rc=(\d+)", text)
    return "\n".join(x for x in text.splitlines() if not x.startswith("# ")), int(status[-1]) if status else 0


@pytest.mark.parametrize("name", RUNS)
def test_recordings(name: str) -> None:
    found = parse(*recording(name))
    if name.startswith(("err_", *FAILED)) or not re.search(r"(?m)^ \d", recording(name)[0]):
        assert found["outcome"] == "error" and found["reason"], name
    else:
        assert found["outcome"] == "measured", found["reason"]
        assert found["tool"] == "_".join(name.split("_")[:3]) or name.startswith("ibv")


def test_a_bandwidth_row() -> None:
    found = parse(*recording("ib_write_bw_basic.client.txt"))
    assert found["test"] == {
        "op": "write", "kind": "bw", "bidirectional": False, "connection": "RC", "device": "rxe0", "link": "Ethernet", "mtu": 1024,
        "qps": 1, "gid_index": 1, "local_gid": "::ffff:10.214.0.102", "remote_gid": "::ffff:10.214.0.101",
    } or found["test"]["local_gid"] == "::ffff:ad6:66"  # fmt: skip
    assert found["rows"] == [
        {
            "bytes": 65536, "iterations": 1000, "bw_peak": {"value": 0.05235, "unit": "Gb/s"},
            "bw_average": {"value": 0.049782, "unit": "Gb/s"}, "message_rate": {"value": 0.000095, "unit": "Mpps"},
        }
    ]  # fmt: skip


def test_an_unmeasured_peak_is_nothing_and_units_come_from_the_header() -> None:
    found = parse(*recording("ib_write_bw_D3.client.txt"))
    assert found["rows"][0]["bw_peak"] is None and found["rows"][0]["bw_average"]["value"] == 0.09498
    text, rc = recording("ib_write_bw_basic.client.txt")
    for word in ("MB/sec", "MiB/sec"):
        assert parse(text.replace("Gb/sec", word), rc)["rows"][0]["bw_average"]["unit"] == "MiB/s"
    assert parse(text.replace("[Gb/sec]", ""), rc)["reason_code"] == "bad_output"


def test_latency_in_microseconds_with_percentiles() -> None:
    row = parse(*recording("ib_send_lat_n200.client.txt"))["rows"][0]
    assert (row["bytes"], row["t_typical"], row["percentiles"]) == (2, 4099.75, {"99": 29910.94, "99.9": 30025.0})


def test_all_sizes() -> None:
    rows = parse(*recording("ib_write_bw_a_n20.client.txt"))["rows"]
    assert [r["bytes"] for r in rows] == [2**n for n in range(1, 24)]


@pytest.mark.parametrize("text", [None, b"", 3, [], "", "x", "<html>", "{}", "\0" * 9])
def test_what_is_no_output_at_all(text: t.Any) -> None:
    assert parse(text)["outcome"] == "error"


def test_a_server_without_a_row_and_a_stall() -> None:
    text, _rc = recording("ib_write_bw_basic.server.txt")
    assert parse(text.replace(" 65536      1000           0.052350            0.049782            0.000095\n", ""))["outcome"] == "error"
    assert parse(text + "\n Did not get Message for 120 Seconds, exiting..\n")["reason_code"] == "tool_failed"
    assert parse(text, rc=1)["outcome"] == "error"


@given(st.integers(min_value=0, max_value=1260))
def test_a_cut_text_is_never_measured(at: int) -> None:
    text, _rc = recording("ib_write_bw_basic.client.txt")
    if at < text.rindex("-" * 80):
        assert parse(text[:at])["outcome"] == "error"


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    assert parse(text)["outcome"] == "error"
