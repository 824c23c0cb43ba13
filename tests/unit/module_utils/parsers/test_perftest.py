# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""perftest: recordings of real runs over soft-RoCE, and what other versions and options print."""

from __future__ import annotations

import pathlib
import random
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.perftest import parse
from fuzz import healthy_perftest
from hypothesis import given
from hypothesis import strategies as st

HERE = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "perftest-rxe"
RUNS = sorted(p.name for p in HERE.glob("ib_*.txt") if "help" not in p.name) + sorted(p.name for p in HERE.glob("err_*.txt"))
# Healthy-looking names of runs that the recording shows to have failed.
FAILED = ("ib_send_lat_a_n50", "ib_write_bw_rdmacm_R")
LINE = "-" * 87 + "\n"
LONG_LINE = "-" * 163 + "\n"


def recording(name: str) -> tuple[str, int]:
    text = (HERE / name).read_text()
    status = re.findall(r"(?m)^# rc=(\d+)", text)
    return "\n".join(x for x in text.splitlines() if not x.startswith("# ")), int(status[-1]) if status else 0


def heading(name: str, connection: str = "RC", qps: int = 1, link: str = "Ethernet") -> str:
    return (
        f"{LINE}                    {name} Test\n Dual-port       : OFF\t\tDevice         : mlx5_1\n"
        f" Number of qps   : {qps}\t\tTransport type : IB\n"
        f" Connection type : {connection}\t\tUsing SRQ      : OFF\n PCIe relax order: ON\t\tLock-free      : OFF\n"
        " WARNING: CPU is not PCIe relaxed ordering compliant.\n ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF\n"
        " TX depth        : 128\n" + (" RX depth        : 512\n" if name.startswith("Send") and "Bidirectional" in name else "")
        + " CQ Moderation   : 100\n CQE Poll Batch  : Dynamic\n Mtu             : 4096[B]\n"
        f" Link type       : {link}\n" + (" GID index       : 3\n" if link == "Ethernet" else "")
        + (" Outstand reads  : 16\n" if name.startswith(("RDMA_Read", "Atomic")) else " Max inline data : 0[B]\n")
        + f" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n NUMA node       : 0\n{LINE}"
    )  # fmt: skip


def bandwidth(
    unit: str = "Gb/sec", cpu: str = "", rows: str = " 65536      5000             97.62              97.61\t\t     0.186178\n"
) -> str:
    return f"{LINE} #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]{cpu}\n{rows}{LINE}"


@pytest.mark.parametrize("name", RUNS)
def test_each_recording_is_measured_or_has_its_reason_code(name: str) -> None:
    text, rc = recording(name)
    found = parse(text, rc)
    if name.startswith(("err_", *FAILED)):
        assert found["outcome"] == "error" and found["reason"] and found["reason_code"] in reasons.ALL, name
        return
    assert found["outcome"] == "measured", found["reason"]
    assert found["tool"] == "_".join(name.split("_")[:3])
    assert found["test"]["device"] == "rxe0" and found["test"]["link"] == "Ethernet"
    assert {found["test"]["local_gid"], found["test"]["remote_gid"]} == {"::ffff:10.214.0.101", "::ffff:10.214.0.102"}
    assert parse(text.replace("\n", "\r\n"), rc) == found
    assert parse(text.expandtabs(), rc) == found  # copied from a terminal


OPTIONS = sorted(path.name for path in (HERE / "options").glob("*.txt"))
# Options that the recorded version or soft-RoCE refuses: -T and dual port without their hardware, -e of a write, XRC, -R of a read latency.
REFUSED = ("ib_send_bw_xrc", "ib_write_bw_T", "ib_write_bw_e", "ib_write_bw_dual", "ib_read_lat_R")


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_change_the_heading_are_read(name: str) -> None:
    """Real runs of both sides: -R and -z (rdma_cm: addresses without keys), -q, -b, -I, -l, -T, UC, UD, SRQ, a link-local GID."""
    text, rc = recording(f"options/{name}")
    found = parse(text, rc)
    if name.startswith(tuple(f"{stem}." for stem in REFUSED)):
        assert found["outcome"] == "error" and found["reason_code"] in reasons.ALL
        return
    assert (found["outcome"], found["reason"]) == ("measured", None)
    assert found["tool"] == "_".join(name.split(".", maxsplit=1)[0].split("_")[:3]) and len(found["rows"]) == 1


@pytest.mark.parametrize(
    "change", [("rdma_cm QPs\t : ON", "rdma_cm QPs\t : OFF"), (" local address: LID 0000 QPN", " local address: LID 0000 OUT 0x10 QPN")]
)
def test_bare_addresses_are_those_of_rdma_cm_and_all_of_one_form(change: tuple[str, str]) -> None:
    text, rc = recording("options/ib_write_bw_R.client.txt")
    text = text.replace("Data ex. method : rdma_cm", "Data ex. method : Ethernet") if "OFF" in change[1] else text
    changed = text.replace(*change)
    assert changed != text and "the addresses are not those of a RDMA_Write BW Test" in str(parse(changed, rc)["reason"])


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("ib_*.json") if p.stat().st_size))
def test_json_has_the_numbers_of_the_text(name: str) -> None:
    """Recordings of before 24.01, when it was no JSON yet. The unit is proved by the message rate."""
    found = parse((HERE / name).read_text())
    assert found["outcome"] == "measured", found["reason"]
    text = parse(*recording(name.replace(".json", ".txt")))
    if text["outcome"] == "measured":
        assert found["rows"] == text["rows"][-1:]
        assert {k: v for k, v in found["test"].items() if "_gid" not in k} == {k: v for k, v in text["test"].items() if "_gid" not in k}


def test_a_bandwidth_row() -> None:
    found = parse(*recording("ib_write_bw_basic.client.txt"), expect_bytes=65536, expect_iterations=1000)
    assert found["test"] == {
        "op": "write", "kind": "bw", "bidirectional": False, "connection": "RC", "device": "rxe0", "link": "Ethernet", "mtu": 1024,
        "qps": 1, "gid_index": 1, "local_gid": "::ffff:10.214.0.102", "remote_gid": "::ffff:10.214.0.101",
    }  # fmt: skip
    assert found["rows"] == [
        {
            "bytes": 65536, "iterations": 1000, "bw_peak": {"value": 0.05235, "unit": "Gb/s"},
            "bw_average": {"value": 0.049782, "unit": "Gb/s"}, "message_rate": 0.000095,
        }
    ]  # fmt: skip


def test_link_local_gids_and_the_old_unit() -> None:
    found = parse(*recording("gid_index_0_linklocal.client.txt"))
    assert found["test"]["local_gid"] == "fe80::5054:ff:fe02:2" and found["test"]["remote_gid"] == "fe80::5054:ff:fe02:1"
    assert found["rows"][0]["bw_average"] == {"value": 17.57, "unit": "MiB/s"}
    text, rc = recording("gid_index_0_linklocal.client.txt")
    assert parse(text.replace("MB/sec", "MiB/sec"), rc)["rows"] == found["rows"]
    assert parse(text.replace("[MB/sec]", ""), rc)["reason_code"] == "bad_output"


def test_an_unmeasured_peak_is_nothing() -> None:
    assert parse(*recording("ib_write_bw_D3.client.txt"))["rows"][0]["bw_peak"] is None
    seed = bandwidth(rows=" 65536      4000000        0.00               97.61 \t\t   0.186178\n")
    text = " WARNING: BW peak won't be measured in this run.\n" + heading("RDMA_Read BW", qps=8) + seed
    found = parse(text, 0, expect_bytes=65536, expect_iterations=500000)
    assert found["rows"][0]["bw_peak"] is None and found["rows"][0]["iterations"] == 4_000_000
    assert found["warnings"] == ["the peak was not measured"]
    assert parse(text, 0, expect_iterations=1000)["reason_code"] == "bad_output"
    assert parse(text, 0, expect_bytes=8)["reason_code"] == "reduced_size"


def test_a_measured_peak_has_iterations_of_every_qp() -> None:
    assert parse(heading("RDMA_Read BW", qps=8) + bandwidth())["outcome"] == "measured"
    assert "no multiple of 7 QPs" in parse(heading("RDMA_Read BW", qps=7) + bandwidth())["reason"]
    assert parse(heading("RDMA_Read Bidirectional BW", "DC", qps=16) + bandwidth())["outcome"] == "measured"


@pytest.mark.parametrize("unit,average,peak", [("MB/sec", "11636.12", "11650.01"), ("MiB/sec", "11636.12", "0.00")])
def test_the_unit_of_a_row_follows_from_its_numbers(unit: str, average: str, peak: str) -> None:
    """A server prints its client's numbers under a heading of its own: wrong where only one side has --report_gbits."""
    row = f" 65536      5000             {peak}              {average}\t\t     0.186178\n"
    found = parse(heading("Send BW") + bandwidth(unit, rows=row))
    assert found["rows"][0]["bw_average"] == {"value": 11636.12, "unit": "MiB/s"}
    wrong = parse(heading("Send BW") + bandwidth("Gb/sec", rows=row))
    assert wrong["outcome"] == "error" and "MiB/s would" in wrong["reason"] and "report_gbits" in wrong["reason"]
    both = row.replace(average, "11733.73").replace("0.186178", "0.372356")
    assert "does not follow" in parse(heading("Send Bidirectional BW") + bandwidth(unit, rows=both))["reason"]


@pytest.mark.parametrize(
    "title,tool,bidirectional",
    [
        ("Send BW", "ib_send_bw", False), ("Send_imm Bidirectional BW", "ib_send_bw", True),
        ("RDMA_Write_imm BW", "ib_write_bw", False), ("RDMA_Write Bidirectional Post List BW", "ib_write_bw", True),
        ("Atomic FETCH_AND_ADD BW", "ib_atomic_bw", False), ("Atomic CMP_AND_SWAP Bidirectional BW", "ib_atomic_bw", True),
        ("Send BW Multicast", "ib_send_bw", False), ("RDMA_Read Post List BW", "ib_read_bw", False),
    ],
)  # fmt: skip
def test_each_title_names_its_tool_and_its_directions(title: str, tool: str, bidirectional: bool) -> None:
    atomic = bandwidth(rows=" 8          5000             0.26               0.26\t\t     4.062500\n")
    found = parse(heading(title) + (atomic if title.startswith("Atomic") else bandwidth()))
    assert (found["outcome"], found["tool"], found["test"]["bidirectional"]) == ("measured", tool, bidirectional)


def test_raw_ethernet_and_infiniband() -> None:
    frames = bandwidth(rows=" 1500       5000             97.62              97.61\t\t     8.134167\n")
    assert parse(heading("Send BW forwarding", "RawEth") + frames)["tool"] == "raw_ethernet_bw"
    text = heading("Send BW", link="IB") + " local address: LID 0x04 QPN 0x0108 PSN 0x63ad7d\n remote address: LID 0x07 QPN 0x0108 PSN 0\n"
    test = parse(text + bandwidth())["test"]
    assert (test["link"], test["gid_index"], test["local_gid"], test["mtu"]) == ("IB", None, None, 4096)


def test_cpu_utilisation_and_service_level() -> None:
    row = " 65536      5000             0.00              97.61\t\t     0.186178\t    12.50\n"
    assert parse(heading("Send BW") + bandwidth(cpu="    CPU_Util[%]", rows=row))["rows"][0]["cpu_util"] == 12.5
    table = bandwidth(rows=" 65536      3           5000           0.00            97.61                  0.186178\n")
    found = parse(heading("Send BW") + table.replace("#bytes     #it", "#bytes    #sl      #it"))
    assert found["rows"][0]["sl"] == 3 and found["rows"][0]["iterations"] == 5000


def test_columns_of_each_port_are_read() -> None:
    text = heading("RDMA_Write BW", qps=2) + (
        f"{LONG_LINE} #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
        "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]    CPU_Util[%]\n"
        " 65536      1523107      0.00               195.22"
        f" \t\t   0.372346        97.60              0.186150              97.62              0.186196\t    30.00\n{LONG_LINE}"
    )
    row = parse(text)["rows"][0]
    assert row["cpu_util"] == 30.0
    assert row["ports"] == [
        {"bw_average": {"value": 97.6, "unit": "Gb/s"}, "message_rate": 0.18615},
        {"bw_average": {"value": 97.62, "unit": "Gb/s"}, "message_rate": 0.186196},
    ]


def test_the_sum_of_both_directions_is_read_with_its_parts() -> None:
    rows = [" 65536      5000             0.00              195.22\t\t     0.372352\n"]
    rows += [
        f" 65536      5000             0.00              {bw}\t\t     {rate}\n"
        for bw, rate in (("98.00", "0.186920"), ("97.22", "0.185432"))
    ]
    local = f"\n Local results: \n{bandwidth(rows=rows[1])}"
    text = heading("RDMA_Write Bidirectional BW") + bandwidth(rows=rows[0]) + local + f"\n Remote results: \n{bandwidth(rows=rows[2])}"
    found = parse(text)
    assert [(row.get("side"), row["bw_average"]["value"]) for row in found["rows"]] == [(None, 195.22), ("local", 98.0), ("remote", 97.22)]
    assert parse(text[: text.index("\n Remote")])["reason_code"] == "incomplete_output"
    assert "sum" in parse(text.replace("98.00", "88.00").replace("0.186920", "0.167847"))["reason"]


def test_latency_in_microseconds_with_percentiles() -> None:
    found = parse(*recording("ib_send_lat_n200.client.txt"))
    assert found["rows"] == [
        {
            "bytes": 2, "iterations": 200, "t_min": 211.35, "t_max": 30025.0, "t_typical": 4099.75, "t_avg": 4265.62,
            "t_stdev": 3862.36, "percentiles": {"99": 29910.94, "99.9": 30025.0},
        }
    ]  # fmt: skip
    text, rc = recording("ib_send_lat_n200.client.txt")
    assert "contradict" in parse(text.replace("4265.62", "44265.62"), rc)["reason"]
    listed = text.replace(" #bytes", "#, usec\n1, 211.35\n2, 30025\n" + LINE + " #bytes", 1)
    assert parse(listed, rc)["rows"] == found["rows"]
    assert "cycles" in parse(listed.replace("usec\n", "cycles\n"), rc)["reason"]


def test_latency_of_a_duration() -> None:
    text, rc = recording("ib_send_lat_D3.client.txt")
    row = parse(text, rc)["rows"][0]
    assert (row["t_avg"], row["tps_average"], row["t_min"], row["percentiles"]) == (1313.83, 380.57, None, {})
    assert "does not follow" in parse(text.replace("1313.83", "313.83"), rc)["reason"]


def test_a_sweep_over_all_sizes_lacks_no_row() -> None:
    text, rc = recording("ib_write_bw_a_n20.client.txt")
    assert [r["bytes"] for r in parse(text, rc)["rows"]] == [2**n for n in range(1, 24)]
    lines = text.split("\n")
    rows = [i for i, line in enumerate(lines) if re.match(r" \d", line)]
    for gone in (rows[0], rows[5], rows[-1]):
        found = parse("\n".join(lines[:gone] + lines[gone + 1 :]), rc)
        assert found["reason_code"] == "incomplete_output" and "is missing" in found["reason"]


def test_all_sizes_of_datagrams_end_at_the_mtu() -> None:
    rows = [f" {2**n:<7}    1000             0.19              0.18\t\t     {0.18 / 8e-3 / 2**n:.6f}\n" for n in range(1, 13)]
    assert parse(heading("Send BW", "UD") + bandwidth(rows="".join(rows)))["outcome"] == "measured"
    assert "4096 bytes is missing" in parse(heading("Send BW", "UD") + bandwidth(rows="".join(rows[:-1])))["reason"]


def test_a_peak_is_not_below_the_average() -> None:
    found = parse(heading("RDMA_Read BW") + bandwidth(rows=" 65536      5000             7.62              97.61\t\t     0.186178\n"))
    assert found["outcome"] == "error" and "peak" in found["reason"]


def test_few_small_messages_are_no_zero() -> None:
    """`-a` on a slow device, in MB/sec: two bytes 900 times a second are printed as 0.00."""
    text = heading("RDMA_Write BW") + bandwidth("MB/sec", rows=" 2          20             0.00              0.00\t\t   0.000900\n")
    assert parse(text)["rows"][0]["bw_average"] == {"value": 0.001716614, "unit": "MiB/s"}
    assert "nothing was measured" in parse(text.replace("0.000900", "0.000000"))["reason"]
    assert "does not follow" in parse(text.replace("0.000900", "0.900000"))["reason"]


def test_the_end_says_more_than_a_cut_row() -> None:
    text = (heading("RDMA_Read BW") + bandwidth()).split("97.61")[0]
    assert parse(text)["reason_code"] == "incomplete_output" and parse(text, 137)["reason_code"] == "timeout"
    lost = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
    assert "no longer answers" in parse(lost + text, 1)["reason"]


JSON = """{
"test_info": {
"test": "RDMA_Write_Bidirectional_BW_Test",
"Dual_port": "OFF",
"Device": "mlx5_1",
"Number_of_qps": 8,
"Connection_type": "RC",
"Using_SRQ": "OFF",
 "PCIe_relax_order": "Unsupported",
"Mtu": 4096,
"Link_type": "Ethernet",
"GID_index": 3,
"Data_ex_method": "Ethernet"
},
"results": {
"MsgSize": 65536,
"n_iterations": 4000000,
"BW_peak": 0.00,
"BW_average": %s,
"MsgRate": %s%s
}
}
"""


@pytest.mark.parametrize(
    "average,rate,unit", [("97.61", "0.186178", "Gb/s"), ("23272.25", "0.372356", "MiB/s"), ("0.099047", "0.000189", "Gb/s")]
)
def test_json_since_24_01(average: str, rate: str, unit: str) -> None:
    found = parse(JSON % (average, rate, ',\n"CPU_util": 30.00'))
    assert found["rows"][0]["bw_average"] == {"value": float(average), "unit": unit} and found["rows"][0]["bw_peak"] is None
    assert found["rows"][0]["cpu_util"] == 30.0 and found["test"]["qps"] == 8 and found["test"]["gid_index"] == 3
    assert "one number" in parse((JSON % (average, rate, "")).replace('"MsgRate"', '"Rate"'))["reason"]
    quoted = (JSON % (average, rate, "")).replace('"n_iter', 'sl: 2,\n"n_iter')  # service levels: never valid JSON
    assert parse(quoted)["rows"][0]["sl"] == 2


@pytest.mark.parametrize("average,rate", [("0.00", "0.000000"), ("97.61", "0.000186"), ("inf", "0.186178"), ("nan", "nan")])
def test_json_without_a_unit_that_is_certain(average: str, rate: str) -> None:
    assert parse(JSON % (average, rate, ""))["outcome"] == "error"
    large = (JSON % ("0.030000", "0.000000", "")).replace("65536", "8388608")
    assert "too small to tell" in parse(large)["reason"]
    assert parse(large, unit="Gb/s")["rows"][0]["bw_average"] == {"value": 0.03, "unit": "Gb/s"}
    assert "does not follow" in parse(JSON % ("97.61", "0.186178", ""), unit="MiB/s")["reason"]


def test_a_cut_json_is_never_measured() -> None:
    for text in (JSON % ("97.61", "0.186178", ""), (HERE / "ib_write_bw_basic.client.json").read_text()):
        whole = text.rstrip()
        for at in range(len(whole)):
            assert parse(whole[:at])["outcome"] == "error", whole[:at]
    assert parse(JSON % ("97.61", "0.186178", ""), rc=137)["reason_code"] == "timeout"


@pytest.mark.parametrize(
    "said,words",
    [
        ("Couldn't connect to 10.0.0.1:18515\nUnable to open file descriptor for socket connection\n", "not listening"),
        ("Couldn't listen to port 18515\n Unable to init the socket connection\n", "port is in use"),
        (" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", "the port is down"),
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", "mlx5_9 not found"),
        ("Failed to modify QP 291 to RTR\n Unable to Connect the HCA's through the link\n", "GID index"),
        (" Unable to set up socket connection\n", "GID index cannot be read"),
        ("\n Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n\n", "GIDs of different kinds"),
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n", "no longer answers"),
        (" Completion with error at client\n Failed status 12: qp_num 5 wr_id 0 syndrom 0x81\n", "no longer answers"),
        (" Completion with error at server\n Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81\n", "no longer"),
        (" Completion with error at server\n Failed status-local length error (1): wr_id 0 syndrom 0x81\n", "different sizes"),
        (" Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88\n", "different sizes"),
        ("Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources\n", "memlock"),
        ("ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n", "the other side died"),
        ("Current implementation is not compatible with versions older than 5.70\n", "different versions"),
        (" report_fmt mismatch: local=GBS, remote=MBS\n Failed to negotiate parameters\n", "different options"),
        (" Did not get Message for 120 Seconds, exiting..\n Total Received=3, Total Iters Required=1000\n", "stalled"),
        ("Error: BW result is below bw limit\n", "limit that perftest was given"),
        ("Unexpected CM event bl blka 8\n Unable to perform rdma_client function\n", "rdma_cm"),
    ],
)
def test_each_complaint_of_perftest_is_a_failure_with_its_words(said: str, words: str) -> None:
    for text in (said, said + heading("RDMA_Write BW") + bandwidth(), heading("RDMA_Write BW") + LINE + said):
        for rc in (0, 1):
            found = parse(text, rc)
            assert found["reason_code"] == "tool_failed" and words in found["reason"], found["reason"]


def test_wrong_data_is_a_defect() -> None:
    said = "VALIDATION: FAILED (CLIENT) - 3 error(s), first at QP 0, Chunk 1, Offset 8 (expected 0x01, got 0x00)\n"
    assert parse(heading("RDMA_Write BW") + bandwidth() + said, 1)["reason_code"] == "wrong_results"


def test_a_refused_option_and_a_help_text_are_usage_errors() -> None:
    assert parse((HERE / "ib_write_bw_help.txt").read_text(), 1)["reason_code"] == "usage"
    found = parse(
        "ib_write_bw: unrecognized option '--use_cuda=0'\n Invalid Command or flag.\n Please check command line and run again.\n", 1
    )
    assert found["reason_code"] == "usage" and "--use_cuda" in found["reason"]
    assert "Version: 6.06" in parse("Version: 6.06\n", 1)["reason"]


@pytest.mark.parametrize("text", [None, b"", 3, [], "", "x", "<html>", "{}", "\0" * 9, '{"test_info": []}', "97.614000\n"])
def test_what_is_no_output_at_all(text: t.Any) -> None:
    assert parse(text)["outcome"] == "error"


def test_a_server_without_a_row_says_so() -> None:
    text, _rc = recording("ib_write_bw_basic.server.txt")
    bare = re.sub(r"(?m)^ 65536 .*\n", "", text)
    found = parse(bare)
    assert found["reason_code"] == "incomplete_output" and "server ended without a result" in found["reason"]
    assert parse(text, rc=1)["outcome"] == "error" and parse(text, rc="0")["outcome"] == "error"
    assert "2 tests" in parse(text + text)["reason"]


def test_a_notice_between_header_and_row() -> None:
    notice = "Conflicting CPU frequency values detected: 2500.000000 != 4900.441000. CPU Frequency is not max.\n"
    text = heading("Send BW") + bandwidth().replace(" 65536", notice + " 65536")
    assert parse(text)["outcome"] == "measured" and "governor" in parse(text)["warnings"][0]
    assert parse(text.replace("max.\n", "max."))["outcome"] == "error"  # glued to the row: never read


@given(st.integers(min_value=0, max_value=1260))
def test_a_cut_text_is_never_measured(at: int) -> None:
    text, _rc = recording("ib_write_bw_basic.client.txt")
    if at < text.rindex("-" * 80):
        assert parse(text[:at])["outcome"] == "error"


@given(st.text(max_size=300))
def test_any_other_text_is_an_error(text: str) -> None:
    assert parse(text)["outcome"] == "error"


# What perftest prints twice must agree ------------------------------------------------------------------------------


def test_healthy_runs_of_every_kind_are_measured_with_and_without_what_was_asked_for() -> None:
    source = random.Random(20)
    for _number in range(400):
        run = healthy_perftest.run(source)
        for text in filter(None, (run.text, run.json)):
            for asked in ({}, run.asked):
                found = parse(text, **asked)
                assert found["outcome"] == "measured" or "too small to tell" in found["reason"], (found["reason"], text)


def test_a_size_that_is_printed_twice_is_an_error_unless_it_runs_infinitely() -> None:
    """Only --run_infinitely repeats it, and says who stopped it."""
    row = " 65536      5000             0.00              97.61\t\t     0.186178\n"
    assert "one run prints one" in parse(heading("Send BW") + bandwidth(rows=row + row))["reason"]
    endless = heading("Send BW") + bandwidth(rows=row + row + "\n User stopped traffic\n")
    assert len(parse(endless)["rows"]) == 2
    assert "several tables" in parse(heading("Send BW") + bandwidth() + bandwidth())["reason"]


def test_rows_of_a_sweep_are_of_one_run_and_in_order() -> None:
    text, rc = recording("ib_write_bw_a_n20.client.txt")
    assert "several runs" in parse(text.replace(" 64         20 ", " 64         40 "), rc)["reason"]
    row = next(line for line in text.splitlines(True) if line.startswith(" 8192 "))
    assert parse(text.replace(row, row + row), rc)["reason_code"] == "incomplete_output"
    assert parse(text.replace(row, "").replace(" 16 ", row + " 16 "), rc)["outcome"] == "error"


def test_sizes_that_a_test_cannot_have() -> None:
    text = heading("Atomic FETCH_AND_ADD BW") + bandwidth(rows=" 8          5000             0.26               0.26\t\t     4.062500\n")
    assert parse(text)["outcome"] == "measured"
    assert "no message of a test" in parse(text.replace(" 8  ", " 16 ").replace("4.062500", "2.031250"))["reason"]
    assert "MTU of 4096" in parse(heading("Send BW", "UD") + bandwidth())["reason"]
    assert parse(heading("Send BW", "RawEth") + bandwidth())["outcome"] == "error"


@pytest.mark.parametrize(
    "name,old,new",
    [
        ("ib_read_bw_n200.client.txt", "RDMA_Read BW", "RDMA_Write BW"), ("ib_read_bw_n200.server.txt", "RDMA_Read BW", "Send BW"),
        ("ib_write_bw_basic.client.txt", "RDMA_Write BW", "RDMA_Read BW"), ("ib_write_bw_basic.client.txt", "RDMA_Write BW", "Send BW"),
        ("ib_send_bw_n200.client.txt", "Send BW", "RDMA_Write BW"), ("ib_send_lat_n200.client.txt", "Send Latency", "RDMA_Read Latency"),
        ("ib_send_bw_n200.server.txt", "Send BW", "Send Bidirectional BW"),
        ("ib_send_bw_n200.client.txt", "Send BW", "Send Bidirectional BW"),
        ("ib_write_bw_bidir.server.txt", "Bidirectional ", ""), ("ib_write_bw_basic.client.txt", "qps   : 1", "qps   : 2"),
    ],
)  # fmt: skip
def test_a_title_over_the_lines_of_another_test(name: str, old: str, new: str) -> None:
    text, rc = recording(name)
    assert parse(text, rc)["outcome"] == "measured" and old in text
    assert parse(text.replace(old, new), rc)["reason_code"] == "bad_output"


def test_a_unit_has_its_digits() -> None:
    """A device so slow that its rate is 0.000000 still shows by its digits that the unit is another."""
    slow = " 8388608    20           0.010000            0.010000            0.000000\n"
    assert parse(heading("RDMA_Write BW") + bandwidth(rows=slow))["outcome"] == "measured"
    assert "digits" in parse(heading("RDMA_Write BW") + bandwidth("MiB/sec", rows=slow))["reason"]
    slow = slow.replace("0.010000 ", "0.01     ")
    assert "digits" in parse(heading("RDMA_Write BW") + bandwidth(rows=slow))["reason"]


def test_a_peak_is_not_measured_of_very_many_iterations() -> None:
    text = heading("RDMA_Read BW") + bandwidth(rows=" 65536      50000            97.62              97.61\t\t     0.186178\n")
    assert "no peak" in parse(text)["reason"]


def test_time_and_rate_of_a_latency_by_duration_in_the_wrong_columns() -> None:
    text, rc = recording("ib_send_lat_D3.client.txt")
    assert parse(text.replace("1313.83        380.57", "380.57        1313.83"), rc)["outcome"] == "error"
    row = " 2             750000            2.00           250000.00\n"
    fast = f"{LINE} #bytes        #iterations       t_avg[usec]    tps average\n{row}{LINE}"
    assert parse(heading("Send Latency") + fast)["rows"][0]["t_avg"] == 2.0
    swapped = fast.replace("2.00           250000.00", "250000.00        2.00")
    assert "whole seconds" in parse(heading("Send Latency") + swapped)["reason"]


@pytest.mark.parametrize(
    "old,new", [("4265.62", "14265.62"), ("4265.62", "1211.35"), ("3862.36", "39.99"), ("3862.36", "29000.00"), ("200   ", "1000  ")]
)
def test_latencies_that_no_samples_have(old: str, new: str) -> None:
    """Mean and deviation must follow from the quantiles; of 1,000 iterations 99.9 % is the largest."""
    text, rc = recording("ib_send_lat_n200.client.txt")
    row = next(line for line in text.splitlines() if line.startswith(" 2  "))
    assert parse(text.replace(row, row.replace(old, new)).replace("30025.00     ", "30026.00     "), rc)["reason_code"] == "bad_output"


def test_peaks_rates_and_iterations_of_both_sides_add_up() -> None:
    def table(average: str, peak: str, rate: str, count: int = 5000) -> str:
        return bandwidth(rows=f" 65536      {count}             {peak}              {average}\t\t     {rate}\n")

    whole, local, remote = table("195.22", "196.10", "0.372352"), table("98.00", "98.60", "0.186920"), table("97.22", "97.50", "0.185432")
    head = heading("RDMA_Write Bidirectional BW")
    assert parse(f"{head}{whole}\n Local results: \n{local}\n Remote results: \n{remote}")["outcome"] == "measured"
    for wrong in (table("98.00", "99.60", "0.186920"), table("98.00", "98.60", "0.186928"), table("98.00", "98.60", "0.186920", 50)):
        assert parse(f"{head}{whole}\n Local results: \n{wrong}\n Remote results: \n{remote}")["reason_code"] == "bad_output"


def test_the_bandwidths_of_two_ports_make_their_sum() -> None:
    table = bandwidth("Gb/sec", "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]", "ROW")
    row = " 65536      1523107      0.00               195.22 \t\t   0.372346        97.60              0.186150         97.62  0.186196\n"
    assert parse(heading("RDMA_Write BW") + table.replace("ROW", row))["outcome"] == "measured"
    for old, new in (("97.60", "90.60"), ("0.186196", "0.190000"), ("0.186150", "0.186170")):
        assert parse(heading("RDMA_Write BW") + table.replace("ROW", row.replace(old, new)))["reason_code"] == "bad_output"


def test_a_json_says_each_thing_once() -> None:
    text = JSON % ("97.61", "0.186178", "")
    assert parse(text)["outcome"] == "measured"
    assert "twice" in parse(text.replace('"MsgSize"', '"BW_average": 197.61,\n"MsgSize"'))["reason"]
    assert parse(text.replace('"Data_ex', '"Outstand_reads": 16,\n"Data_ex'))["reason_code"] == "bad_output"


def test_a_duration_that_was_asked_for() -> None:
    text, rc = recording("ib_write_bw_D3.client.txt")
    assert parse(text, rc, expect_duration=3)["outcome"] == "measured"
    assert "expected 6 s" in parse(text, rc, expect_duration=10)["reason"]
    assert "last" in parse(text.replace(" 546 ", " 1546 "), rc, expect_duration=3)["reason"]
    text, rc = recording("ib_send_lat_D3.client.txt")
    assert parse(text, rc, expect_duration=3)["outcome"] == "measured" and parse(text, rc, expect_duration=1)["outcome"] == "error"
    assert "no run by duration" in parse(*recording("ib_send_lat_n200.client.txt"), expect_duration=3)["reason"]


def test_iterations_of_queue_pairs_of_which_half_receive() -> None:
    text = heading("RDMA_Write Bidirectional BW", "DC", qps=16) + bandwidth()
    assert parse(text, expect_iterations=625)["outcome"] == "measured"
    assert "(8 QPs)" in parse(text, expect_iterations=5000)["reason"]
