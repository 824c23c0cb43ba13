# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nccl-tests of every version: recordings of real runs, and texts built from the formats that each version prints."""

from __future__ import annotations

import itertools
import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_checks import FACTORS, ROUNDED
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_tests import parse
from hypothesis import given
from hypothesis import strategies as st

HERE = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "h200-x4"
PAIR = HERE.with_name("h200-x2")
BROKEN = {
    "badopt.txt": "usage",
    "minbw-fail.txt": "min_bw",
    "mpi-badhost.txt": "tool_failed",
    "nccl-fail-oom.txt": "reduced_size",
    "nccl-fail-toomanygpus.txt": "tool_failed",
    "nccl-truncated-killed.txt": "incomplete_output",
    "nccl-v2.13.11-hypercube-g4.txt": "wrong_results",
    "nccl-v2.19.6-hypercube-g4.txt": "wrong_results",
    "nccl-v2.19.6-hypercube-g4.json": "wrong_results",
    "nccl-v2.19.6-nocheck.txt": "unchecked",
}
RECORDINGS = sorted(
    p.name for pattern in ("nccl-*.txt", "nccl-*.json", "mpi-*.txt", "g4-*.txt", "badopt.txt", "minbw-fail.txt") for p in HERE.glob(pattern)
)


def recording(name: str, folder: pathlib.Path = HERE) -> tuple[str, int]:
    status = folder / f"{name}.rc"
    return (folder / name).read_text(), int(status.read_text().split()[-1].split("=")[-1]) if status.exists() else 0


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_recording_is_measured_or_has_its_reason_code(name: str) -> None:
    text, rc = recording(name)
    found = parse(text, rc=rc)
    if name in BROKEN:
        assert (found["outcome"], found["reason_code"]) == ("error", BROKEN[name]), found["reason"]
    else:
        assert found["outcome"] == "measured", found["reason"]
        assert found["complete"] and found["rows"] and found["peak_busbw"]["unit"] == "GB/s"


PAIR_BROKEN = {
    # CUDA 13 ends the kernels of 2.0 in the middle of a row, and those of 2.9 compute nonsense.
    "nccl-v2.0.0-all_reduce-g2.txt": "tool_failed",
    "nccl-v2.9.0-reduce_scatter-g2.txt": "wrong_results",
    # Not defined in place, counted all the same until 2.13.3; its last lines say 0 OK.
    "nccl-v2.13.0-alltoall-g2.txt": "wrong_results",
    "nccl-v2.19.6-x-c0.txt": "unchecked",
    "nccl-x-Jc0.json": "unchecked",
    "nccl-v2.19.6-x-minbw.txt": "min_bw",
    "nccl-v2.19.6-x-badtype.txt": "usage",
    "nccl-v2.19.6-x-badop.txt": "usage",
    "nccl-v2.19.6-x-blocking.txt": "tool_failed",
    "nccl-v2.19.6-x-envbad.txt": "tool_failed",
    "nccl-v2.19.6-x-cut.txt": "timeout",
    "nccl-v2.19.6-x-minmax.txt": "tool_failed",
    "nccl-v2.19.6-x-hang.txt": "tool_failed",
    "nccl-v2.19.6-x-oom2.txt": "tool_failed",
    "nccl-v2.19.6-x-bigop.txt": "tool_failed",
    "mpi-nompi.txt": "not_mpi",
    "mpi-nompig2.txt": "not_mpi",
}
# Where nothing proves which test it is: tables that look alike.
UNNAMED = ("-v1.", "-scatter", "-gather", "2.13.0-all_", "2.10.1-all_reduce", "2.10.1-hypercube", "2.10.1-sendrecv", "2.0.0-all_gather")


@pytest.mark.parametrize("name", sorted(p.name for p in PAIR.iterdir() if p.suffix != ".rc"))
def test_recordings_of_every_version_and_option(name: str) -> None:
    text, rc = recording(name, PAIR)
    found = parse(text, rc)
    if name in PAIR_BROKEN:
        assert (found["outcome"], found["reason_code"]) == ("error", PAIR_BROKEN[name]), found["reason"]
        return
    assert found["outcome"] == "measured", found["reason"]
    assert found["complete"] and len(found["rows"]) >= 4 and found["out_of_bounds"]["ok"]
    named = name.split("-")[2].removesuffix(".txt") if name.startswith("nccl-v") and "-x-" not in name else None
    if named and not any(part in name for part in UNNAMED):
        assert found["op"] == named
    elif named:
        assert found["op"] in (named, None)
    assert parse(text.replace("\n", "\r\n"), rc)["rows"] == found["rows"]
    assert parse(text, 1)["outcome"] == "error"
    if not name.endswith(".json"):
        assert [rank["device"] for rank in found["ranks"]] == [0, 1]
        assert parse(text[: text.rindex("Avg bus")], rc)["reason_code"] == "incomplete_output"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mpirun_err_unreachable.txt", "No route to host"), ("mpirun_err_unresolvable.txt", "Could not resolve hostname"),
        ("mpirun_err_missing_binary.txt", "unable to launch"), ("mpirun_err_rank_exit.txt", "non-zero status"),
        ("mpirun_no_root_flag.txt", "attempt to run as root"), ("mpirun_not_enough_slots.txt", "not enough slots"),
        ("mpi5_mpijob_no_hostfile.txt", "not enough slots"),
    ],
)  # fmt: skip
def test_launchers_that_fail(name: str, words: str) -> None:
    text = (HERE.with_name("openmpi") / name).read_text()
    for rc in (0, 1):
        found = parse(text, rc)
        assert found["reason_code"] == "tool_failed" and words in found["reason"], found["reason"]
    assert "already filled" in parse(*recording("mpi-badhost.txt"))["reason"]
    assert parse("ssh: Could not resolve hostname worker-0: Name or service not known\n" + table())["outcome"] == "measured"


def test_a_message_in_a_row_is_the_reason() -> None:
    assert "illegal memory access" in parse(*recording("nccl-v2.0.0-all_reduce-g2.txt", PAIR))["reason"]
    assert parse(recording("nccl-v2.0.0-all_reduce-g2.txt", PAIR)[0])["reason_code"] == "tool_failed"
    lines = table().splitlines()
    lines = [line[:-3] if line.startswith("     16777216") or line.startswith("  16777216") else line for line in lines]
    assert parse("\n".join(lines))["reason_code"] == "incomplete_output"


def test_values_of_a_recording() -> None:
    found = parse(*recording("nccl-v2.19.6-all_reduce-g4.txt"))
    assert (found["op"], found["nccl_version"], found["tool_version"]) == ("all_reduce", "2.28.9", "2.19.6")
    assert found["peak_busbw"] == {"value": 354.06, "unit": "GB/s", "size": 1 << 30}
    assert found["avg_busbw"] == {"value": 304.208, "unit": "GB/s"} and found["out_of_bounds"] == {"count": 0, "ok": True}
    assert found["ranks"][3] == {
        "rank": 3, "group": 0, "pid": 3230, "host": "vm", "device": 3, "bdf": "0000:00:09", "name": "NVIDIA H200",
    }  # fmt: skip
    assert found["rows"][0] == {
        "size": 8388608, "count": 2097152, "type": "float", "redop": "sum", "root": -1,
        "out_of_place": {"time_us": 61.91, "algbw": 135.49, "busbw": 203.24, "wrong": 0},
        "in_place": {"time_us": 61.39, "algbw": 136.65, "busbw": 204.97, "wrong": 0},
    }  # fmt: skip


@pytest.mark.parametrize("op", [p.name.split("-")[2] for p in HERE.glob("nccl-v2.19.6-*-g4.json") if "hypercube" not in p.name])
def test_json_and_text_of_one_run_agree(op: str) -> None:
    text, told = parse(*recording(f"nccl-v2.19.6-{op}-g4.txt")), parse(*recording(f"nccl-v2.19.6-{op}-g4.json"))
    assert [r["size"] for r in text["rows"]] == [r["size"] for r in told["rows"]]
    assert text["peak_busbw"]["value"] == pytest.approx(told["peak_busbw"]["value"], abs=0.01)


# Texts as each version prints them (header and column history of nccl-tests 1.0 to 2.20) ----------------------------

SIZES = [8 << 20, 16 << 20, 32 << 20]


def table(
    version: str = "2.19.6", op: str = "all_reduce", n: int = 4, sizes: t.Sequence[int] = SIZES, hosts: int = 1, **changes: t.Any
) -> str:
    new = tuple(int(x) for x in version.split("."))
    factor = FACTORS[op](n)
    lines = []
    if new >= (2, 17, 4):
        git = " (b4d5bee)" if new >= (2, 20) else ""
        lines.append(f"# nccl-tests version {version}{git} nccl-headers=22809 nccl-library=22809")
    if new >= (2, 16, 7):
        lines.append(f"# Collective test starting: {op}_perf")
    start = f"nThread 1 nGpus {n // hosts} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) "
    if new < (2, 0):
        lines += [start + "warmup iters: 5 iters: 20 validation: 1", "# NCCL Tests compiled with NCCL 2.4"]
    elif new < (2, 13):
        lines.append(f"# {start}warmup iters: 5 iters: 20 validation: 1 ")
    elif new < (2, 18, 2):
        lines.append(f"# {start}warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0")
    else:
        lines.append(f"# {start}warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0")
    lines += ["#", "# Using devices"]
    for rank in range(n):
        bdf = f"[0000:{rank + 16:02x}:00]" if new >= (2, 15) else f"[0x{rank + 16:02x}]"
        group = " Group  0" if new >= (2, 13, 4) else ""
        pid = f" Pid {3000 + rank * hosts // n:6d}" if new >= (2, 0) else ""
        lines.append(f"#  Rank {rank:2d}{group}{pid} on {f'gpu-{rank * hosts // n:02d}':>10} device {rank:2d} {bdf} NVIDIA H200")
    rooted, reduces = op in ("broadcast", "reduce", "gather", "scatter"), "reduce" in op or (op == "sendrecv" and new >= (2, 13))
    if new < (2, 0):
        names = ["bytes", "N", "type", "op"]
    elif new < (2, 13):
        names = ["size", "count", "type"] + ["redop"] * (reduces or op == "alltoall") + ["root"] * rooted
    else:
        names = ["size", "count", "type", "redop", "root"]
    wrong = "#wrong" if new >= (2, 13) else "error" if new >= (2, 0) else "res"
    half = ["time", "algbw", "busbw", wrong]
    one_half = new < (2, 0) and op == "broadcast"
    lines += ["#", "#        out-of-place" + "   in-place" * (not one_half), "# " + " ".join(names + half * (1 if one_half else 2))]
    lines.append("#        (B)    (elements)")
    parts = n if op in ROUNDED else 1
    means = []
    for number, size in enumerate(sizes):
        alg = 100.0 + 10 * number
        means.append(alg * factor)
        count = size // 4 // parts
        values = {"size": size, "bytes": size, "count": count, "N": count, "type": "float", "op": "sum"}
        values.update(redop="sum" if reduces else "none" if new >= (2, 13, 4) else "", root=0 if rooted else -1)
        cell = "0" if new >= (2, 13) else "1e-07"
        in_place = "N/A" if new >= (2, 13, 4) and op in ("alltoall", "sendrecv") else cell
        time = size / alg / (1e3 if new >= (2, 0) else 1e6)
        numbers = [f"{time:.{2 if new >= (2, 0) else 3}f}", f"{alg:.2f}", f"{alg * factor:.2f}"]
        row = [str(values[name]) for name in names] + [*numbers, cell] + [*numbers, in_place] * (not one_half)
        lines.append("  " + "  ".join(row))
    lines.append((" " if new < (2, 0) else "# ") + "Out of bounds values : 0 OK")
    lines.append((" " if new < (2, 0) else "# ") + f"Avg bus bandwidth    : {sum(means) / len(means):g} ")
    lines.append("#")
    text = "\n".join(lines) + "\n"
    for old, replacement in changes.get("replace", ()):
        assert old in text
        text = text.replace(old, replacement)
    return text


VERSIONS = [
    "1.0.0", "2.0.0", "2.9.0", "2.10.0", "2.13.0", "2.13.11", "2.14.0", "2.15.0", "2.16.6", "2.16.7", "2.17.3", "2.17.4", "2.18.2",
    "2.19.6", "2.20.0",
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "alltoall", "sendrecv"])
def test_each_operation_of_every_version_is_measured(version: str, op: str) -> None:
    found = parse(table(version, op))
    assert found["outcome"] == "measured", found["reason"]
    assert [r["size"] for r in found["rows"]] == SIZES and len(found["ranks"]) == 4
    assert found["op"] in (op, None) and found["peak_busbw"]["size"] == SIZES[-1]
    assert found["rows"][0]["out_of_place"]["time_us"] == pytest.approx(SIZES[0] / 100.0 / 1e3, rel=0.2)


PREFIXES = ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[job,0][gpu-01:77]<stdout>: ", "0: ", "[0] ", "2026-11-21T04:30:14.123456789Z "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_output_with_the_prefix_of_a_launcher_is_measured(prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in table().splitlines())
    assert parse(text)["outcome"] == "measured", parse(text)["reason"]


def test_an_output_of_rccl_tests_is_measured() -> None:
    old = table(
        "2.15.0", replace=[("#\n# Using", "rccl-tests: Version develop:83d38d9\n#\n# Using"), ("NVIDIA H200", "AMD Instinct MI300X")]
    )
    old = old.replace(":00] ", ":00.0] ").replace(
        "#        (B)", "RCCL version : 2.21.5-HEAD:1d36ee9+\nHIP version  : 6.3.42133\n#        (B)"
    )
    old += "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    found = parse(old)
    assert (found["outcome"], found["tool_version"], found["nccl_version"]) == ("measured", "develop:83d38d9", "2.21.5")
    assert found["ranks"][0]["bdf"] == "0000:10:00.0" and found["ranks"][0]["name"] == "AMD Instinct MI300X"
    assert parse(old.replace("develop:83d38d9", ":+"))["outcome"] == "measured"


@pytest.mark.parametrize(
    ("version", "start", "more"),
    [
        ("2.10.0", "nThread: 1 nGpus: 4", ""),
        ("2.10.0", "nThreads: 1 nGpus: 4 nRanks: 1", ""),
        ("2.13.0", "nThreads: 1 nGpus: 2 nRanks: 2", " agg iters: 1"),
    ],
)
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "alltoall", "broadcast", "reduce", "sendrecv"])
def test_headers_of_rccl_tests_until_2024(version: str, start: str, more: str, op: str) -> None:
    text = table(version, op, replace=[("nThread 1 nGpus 4 minBytes 8388608 maxBytes", f"{start} minBytes: 8388608 maxBytes:")])
    text = text.replace("warmup iters: 5 iters: 20", f"warmupIters: 5 iters: 20{more}").replace(":00] ", ":00.0] ")
    text = text.replace("# Out of", "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n# Out of")
    found = parse(text)
    assert found["outcome"] == "measured", found["reason"]
    assert found["op"] in (op, None) and len(found["rows"]) == 3 and len(found["ranks"]) == 4
    tagged = parse("".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()))
    assert tagged["outcome"] == "measured", tagged["reason"]
    assert parse(text.replace("Rank  3", "Rank  2"))["reason_code"] == "rank_mismatch"
    assert parse("\n".join(line for line in text.splitlines() if "16777216  " not in line))["reason_code"] == "incomplete_output"
    wrong = text.replace("1e-07", "1e+00*", 1).replace(": 0 OK", ": 1 FAILED")
    assert parse(wrong)["reason_code"] == "wrong_results"


def with_columns(text: str, half: str = "", at: int = 0, value: str = "", end: str = "", values: str = "") -> str:
    """A table with one more column in each half, and more at the end, as rccl-tests prints them."""
    lines = []
    for line in text.splitlines():
        if "algbw" in line:
            line = line.replace(" time", f" time {half}") + f" {end}"
        elif line.startswith("  "):
            words = line.split()
            if half:
                words[6:6], words[11:11] = [value], [value]
            line = "  " + "  ".join(words) + f"  {values}"
        lines.append(line)
    return "\n".join(lines)


def test_columns_of_rccl_tests() -> None:
    plain = parse(table())["rows"]
    assert parse(with_columns(table(), end="algo      proto      nchannels", values="RING  SIMPLE  24"))["rows"] == plain
    both = "algo      proto      nchannels           timestamp"  # -A and -S: the time comes first, without in-place none at all
    assert parse(with_columns(table(), end=both, values="2026-11-21 04:30:14 RING  SIMPLE  24"))["rows"] == plain
    assert parse(with_columns(table(), end="timestamp"))["rows"] == plain
    for value in ("35.10", "N/A"):
        found = parse(with_columns(table(), half="hipevt", value=value))
        assert found["outcome"] == "measured", found["reason"]
        assert found["rows"][0]["in_place"]["hipevt"] == (None if value == "N/A" else 35.1)
        assert found["rows"][0]["in_place"]["busbw"] == plain[0]["in_place"]["busbw"]
    for caption, name in (("in-place", "in_place"), ("out-of-place", "out_of_place")):  # -O
        lines = []
        for line in table().splitlines():
            if "out-of-place" in line:
                line = f"#      {caption}      "
            elif "algbw" in line:
                line = "# size count type redop root time algbw busbw #wrong"
            elif line.startswith("  "):
                line = "  " + "  ".join(line.split()[:9])
            lines.append(line)
        found = parse("\n".join(lines))
        assert found["outcome"] == "measured", found["reason"]
        other = "out_of_place" if name == "in_place" else "in_place"
        assert found["rows"][0][name] == plain[0]["out_of_place"] and found["rows"][0][other] is None


def test_json_of_rccl_tests() -> None:
    whole = json.loads(recording("nccl-v2.19.6-all_reduce-g4.json")[0])
    whole["rccl_version"] = whole.pop("nccl_version")
    for row in whole["results"]:
        for half in ("out_of_place", "in_place"):
            row[half]["nwrong"] = 0.0
            row[half]["hip_event_time"] = -1.0
    found = parse(json.dumps(whole))
    assert (found["outcome"], found["nccl_version"], found["rows"][0]["in_place"]["wrong"]) == ("measured", "2.28.9", 0)


def test_log_lines_of_nccl_inside_a_row() -> None:
    lines = table().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  "))
    words = lines[at].split()
    log = "gpu-00:3000:3042 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    lines[at : at + 1] = ["  " + "  ".join(words[:5]) + log, "  " + "  ".join(words[5:])]
    found = parse("\n".join(lines))
    assert found["outcome"] == "measured", found["reason"]
    assert found["rows"] == parse(table())["rows"]


@pytest.mark.parametrize("stamp", ["", "[2026-11-21 04:30:14] ", "[2026-11-21 04:30:14.123] "])
@pytest.mark.parametrize("host", ["gpu-00", "gpu-99"])
@pytest.mark.parametrize("cuts", [(), (5,), (9,), (5, 9)])
def test_warnings_of_nccl(stamp: str, host: str, cuts: tuple[int, ...]) -> None:
    """A warning begins with a new line, and since 2.26 with the time. It may come between two rows, or within one."""
    lines = table().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  "))
    words = lines[at].split()
    said = f"\n{stamp}{host}:3000:3042 [0] transport/net_ib/p2p.cc:213 NCCL WARN NET/IB : Got async event : client reregister\n"
    ends = [0, *cuts, len(words)]
    row = said.join("  " + "  ".join(words[a:b]) for a, b in itertools.pairwise(ends))
    found = parse("\n".join([*lines[:at], row, said + lines[at + 1], *lines[at + 2 :]]))
    assert found["outcome"] == "measured", found["reason"]
    assert found["rows"] == parse(table())["rows"]


def test_what_nccl_said_last_is_a_warning_of_a_whole_test() -> None:
    """nccl-tests prints the last warning of the library as an error after a test that went well."""
    said = '# error: Missing "iommu=pt" from kernel command line\n#\n'
    found = parse(table() + said)
    assert found["outcome"] == "measured" and found["warnings"] == ['the last that NCCL said: Missing "iommu=pt" from kernel command line']
    cut = parse(table().split("# Out of")[0] + said)
    assert cut["reason_code"] == "incomplete_output" and "iommu=pt" in cut["reason"]
    whole = json.loads(recording("nccl-v2.19.6-all_reduce-g4.json")[0])
    whole["errors"] = ["NET/IB : Got async event"]
    assert parse(json.dumps(whole))["warnings"] == ["the last that NCCL said: NET/IB : Got async event"]


@pytest.mark.parametrize(
    "said",
    [
        "[launcher:00001] 3 more processes have sent help message help-mpi-btl-openib.txt / no device params found",
        "2026-11-21 04:30:14,123 a logger", "NCCL version 2.28.9+cuda13.0", "NCCL version 2.28.9 compiled with CUDA 13.0",
    ],
)  # fmt: skip
def test_lines_of_others_between_rows(said: str) -> None:
    lines = table().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  "))
    for tag in ("", "[1,0]<stdout>:"):
        tagged = [tag + line for line in lines]
        found = parse("\n".join([*tagged[: at + 1], said, *tagged[at + 1 :]]))
        assert found["outcome"] == "measured", found["reason"]
        assert found["rows"] == parse(table())["rows"]


def test_options_that_change_the_table() -> None:
    assert parse(table(replace=[("time", "cputime")]))["outcome"] == "measured"
    before, after = table().split("# Out of")
    cycle = "\n".join(x for x in table().splitlines() if x.startswith("  "))
    again = cycle.replace("100.00", "100.01").replace("150.00", "150.01")
    assert len(parse(before + again + "\n# Out of" + after)["rows"]) == 6
    assert parse(table(replace=[("2(factor)", "8388608(bytes)")], sizes=[8 << 20, 16 << 20, 24 << 20]))["outcome"] == "measured"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda s: s.replace("  0\n", "  7\n", 1), "wrong_results"),
        (lambda s: s.replace(": 0 OK", ": 3 FAILED"), "wrong_results"),
        (lambda s: s.split("# Out of")[0], "incomplete_output"),
        (lambda s: s.split("# Avg")[0], "incomplete_output"),
        (lambda s: "\n".join(x for i, x in enumerate(s.splitlines()) if "16777216  " not in x), "incomplete_output"),
        (lambda s: "\n".join(x for x in s.splitlines() if "Rank  2" not in x), "rank_mismatch"),
        (lambda s: s.replace("Rank  2", "Rank  1"), "rank_mismatch"),
        (lambda s: "\n".join(x for x in s.splitlines() if "Rank" not in x), "rank_mismatch"),
        (lambda s: s.replace("nGpus 4", "nGpus 0"), "rank_mismatch"),
        (lambda s: s.replace("nThread 1", "nThread 0"), "rank_mismatch"),
        (lambda s: s + s, "not_mpi"),
        (lambda s: s.replace("150.00", "450.00", 1), "rank_mismatch"),
        (lambda s: s.replace("150.00", "nan", 1), "bad_output"),
        (lambda s: s.replace("150.00", "inf", 1), "bad_output"),
        (lambda s: s.replace("100.00", "-100.00").replace("150.00", "-150.00"), "bad_output"),
        (lambda s: s.replace(" : 165 ", " : 165 FAILED"), "min_bw"),
        (lambda s: s.replace("#\n# Using", "# Reducing maxBytes to 16777216 due to memory limitation\n#\n# Using"), "incomplete_output"),
        (lambda s: s.replace("minBytes", "minimum"), "incomplete_output"),
        (lambda s: s + "# Collective test concluded: broadcast_perf\n", "bad_output"),
    ],
)
def test_broken(change: t.Callable[[str], str], code: str) -> None:
    found = parse(change(table()))
    assert (found["outcome"], found["reason_code"]) == ("error", code), found["reason"]


@pytest.mark.parametrize("name", ["mpi-v2.14.1-N2.txt", "mpi-v2.14.1-tag.txt", "mpi-v2.14.1-ts.txt"])
def test_the_columns_of_an_unnamed_test_bind_its_ranks(name: str) -> None:
    """Two ranks, of which one is missing in the list: one rank alone would have no bus bandwidth."""
    lines = recording(name, PAIR)[0].splitlines()
    assert parse("\n".join(lines))["outcome"] == "measured"
    found = parse("\n".join(line for line in lines if "Rank  1" not in line))
    assert found["outcome"] == "error" and "1 ranks" in found["reason"]


def rows_of(text: str, change: t.Callable[[int, list[str]], list[str]]) -> str:
    """The text with the words of each row changed; the first argument is the row's number."""
    lines, number = [], 0
    for line in text.splitlines():
        if line.startswith("  "):
            line, number = "  " + "  ".join(change(number, line.split())), number + 1
        lines.append(line)
    return "\n".join(lines) + "\n"


def put(**cells: t.Any) -> t.Callable[[int, list[str]], list[str]]:
    """Cells by name: c5 is the sixth of each row, c5_1 that of the second row; a number multiplies."""

    def change(number: int, words: list[str]) -> list[str]:
        for name, value in cells.items():
            at, _of, row = name[1:].partition("_")
            if not row or int(row) == number:
                words[int(at)] = value if isinstance(value, str) else f"{float(words[int(at)]) * value:.2f}"
        return words

    return change


@pytest.mark.parametrize(
    ("cells", "code", "words"),
    [
        ({"c8": "N/A", "c12": "N/A"}, "unchecked", "3 of 3 rows say N/A"),
        ({"c8_1": "N/A"}, "unchecked", "1 of 3 rows say N/A where the number of wrong values out of place belongs; remove -c 0"),
        ({"c12": "N/A"}, "unchecked", "in place"),
        ({"c8_2": "0.5"}, "bad_output", "no number"),
        ({"c12_0": "-1"}, "bad_output", "no number"),
        ({"c8_2": "1e+06"}, "wrong_results", "1000000 wrong values"),
        ({"c6": 2, "c7": 2, "c10": 2, "c11": 2}, "bad_output", "200.0 GB/s do not follow from 83.89 us"),
        ({"c5_1": 0.9}, "bad_output", "do not follow from 137.27 us"),
        ({"c5": 0.5, "c6": 2, "c7": 2, "c9": 0.5, "c10": 2, "c11": 2}, "bad_output", "an average of 330 GB/s, the last line says 165"),
        ({"c5_0": 1.05, "c6_0": 1 / 1.05, "c7_0": 1 / 1.05}, "bad_output", "rows or last lines of another output"),
        ({"c2": "double"}, "bad_output", "2097152 elements of double are not 8388608 bytes"),
        ({"c3": "none"}, "bad_output", "not of all_reduce"),
        ({"c4": "0"}, "bad_output", "not of all_reduce"),
    ],
)
def test_a_row_whose_cells_contradict_each_other_is_an_error(cells: dict[str, t.Any], code: str, words: str) -> None:
    found = parse(rows_of(table(), put(**cells)))
    assert (found["outcome"], found["reason_code"]) == ("error", code), found["reason"]
    assert words in found["reason"], found["reason"]
    assert len(found["rows"]) == 3 or "no number" in words  # kept to be shown


def test_a_result_that_was_not_checked() -> None:
    """-c 0 stands in the header of every version, and in the cells; tests that are never checked in place are what they are."""
    for version in VERSIONS:
        found = parse(table(version, replace=[("validation: 1", "validation: 0")]))
        assert found["reason_code"] == "unchecked" and "remove" in found["reason"] and found["rows"], found["reason"]
    for old in ("1.0.0", "2.9.0"):
        assert parse(table(old, replace=[("1e-07", "N/A")]))["reason_code"] == "unchecked"
    for op in ("alltoall", "alltoallv", "sendrecv"):
        assert parse(table(op=op))["outcome"] == "measured"
        assert parse(rows_of(table(op=op), put(c8_1="N/A")))["reason_code"] == "unchecked"
        assert parse(rows_of(table(op=op), put(c8="N/A")))["reason_code"] == "unchecked"
    assert parse(recording("nccl-x-Jc0.json", PAIR)[0])["reason_code"] == "unchecked"
    whole = json.loads(recording("nccl-v2.19.6-all_reduce-g4.json")[0])
    whole["results"][2]["in_place"]["nwrong"] = None
    assert parse(json.dumps(whole))["reason_code"] == "unchecked"
    whole["results"][2]["in_place"]["nwrong"] = 0.5
    assert parse(json.dumps(whole))["reason_code"] == "bad_output"


def test_the_last_lines_stand_once_and_last() -> None:
    lines = table().splitlines()
    last = [line for line in lines if "Out of bounds" in line or "Avg bus" in line]
    rest = [line for line in lines if line not in last]
    first = next(i for i, line in enumerate(rest) if line.startswith("  "))
    for at in (0, first, first + 1):
        assert "mixed" in parse("\n".join([*rest[:at], *last, *rest[at:]]))["reason"]
    assert "stand twice" in parse("\n".join([*lines, *last]))["reason"]


def test_cycles_are_measured_each_by_itself() -> None:
    """-N 2 prints the table twice, and never the same one; two cycles of one row may be alike by chance."""
    before, after = table().split("# Out of")
    cycle = "\n".join(line for line in table().splitlines() if line.startswith("  "))
    found = parse(f"{before}{cycle}\n# Out of{after}")
    assert found["reason_code"] == "bad_output" and "cycle 2 of the sweep repeats cycle 1" in found["reason"]
    row = cycle.splitlines()[-1]
    one = table().replace("minBytes 8388608", "minBytes 33554432").replace(cycle, f"{row}\n{row}").replace(" : 165 ", " : 180 ")
    assert parse(one)["outcome"] == "measured", parse(one)["reason"]
    doubles = rows_of(table(), lambda _number, words: [words[0], str(int(words[1]) // 2), "double", *words[3:]])
    more = "\n".join(line for line in doubles.splitlines() if line.startswith("  ")) + "\n"
    text = f"{before}{more}# Out of{after}"
    assert parse(text)["outcome"] == "measured", parse(text)["reason"]
    assert "2 cycles of the sweep for one type" in parse(f"{before}{more}{more.replace('.00', '.01')}# Out of{after}")["reason"]
    assert "stand in two places" in parse(f"{before}{more}{cycle}\n# Out of{after}")["reason"]


def test_with_cputime_only_the_average_binds_the_bandwidths() -> None:
    """-C prints the time that the CPU took to launch, beside bandwidths of the whole time."""
    text = rows_of(table(replace=[("time", "cputime")]), put(c5=0.01, c9=0.02))
    assert parse(text)["outcome"] == "measured"
    assert "an average of" in parse(rows_of(text, put(c6=2, c7=2)))["reason"]


def test_threads_of_old_versions_have_averages_of_their_own() -> None:
    """Until 2.11 the last line's average is over threads that each took their own time; only that of the first is in the rows."""
    for version, outcome in (("2.9.0", "measured"), ("2.19.6", "error")):
        text = table(version, replace=[("nThread 1 nGpus 4", "nThread 4 nGpus 1"), (" : 165 ", " : 164.2 ")])
        assert parse(text)["outcome"] == outcome, parse(text)["reason"]


def test_processes_have_the_ranks_that_the_header_says() -> None:
    found = parse(table(replace=[("Rank  2 Group  0 Pid   3000", "Rank  2 Group  0 Pid   4711")]))
    assert found["reason_code"] == "rank_mismatch" and "the header says 4" in found["reason"]


def test_an_output_of_other_ranks_or_sizes_than_asked_for_is_an_error() -> None:
    assert parse(table(), expect_ranks=8)["reason_code"] == "rank_mismatch"
    assert parse(table(), expect_max_bytes=1 << 30)["reason_code"] == "reduced_size"
    assert parse(table(), rc=3)["reason_code"] == "tool_failed"
    assert parse(table(), rc=124)["reason_code"] == "timeout"
    assert parse(table(), expect_ranks=4, expect_max_bytes=SIZES[-1])["outcome"] == "measured"


NOTHING = [None, b"x", 7, [], {}, "", " ", "\0" * 100, "<html>", "{}", "[1]", '{"results": []}', "/etc/passwd", True]


@pytest.mark.parametrize("text", NOTHING)
def test_a_text_without_an_output_is_an_error_with_a_reason(text: t.Any) -> None:
    assert parse(text)["outcome"] == "error" and parse(text)["reason"]


def test_the_oddities_of_the_json_are_read() -> None:
    whole = json.loads(recording("nccl-v2.19.6-all_reduce-g4.json")[0])
    misspelt = dict(whole)
    misspelt["average_bus_bandwidith"] = {"bandwidith": 304.207658, "okay": "unchecked"}
    del misspelt["average_bus_bandwidth"]
    assert parse(json.dumps(misspelt))["avg_busbw"]["value"] == 304.207658
    cut = json.dumps(whole)[:-30]
    assert parse(cut)["reason_code"] == "incomplete_output"
    for rows in (whole["results"][:1], whole["results"]):
        less = json.loads(json.dumps(whole))
        for number, row in enumerate(less["results"]):
            if whole["results"][number] in rows:
                row["in_placf"], row["out_of_placf"] = row.pop("in_place"), row.pop("out_of_place")
        assert parse(json.dumps(less))["reason_code"] == "incomplete_output"
    wrong = json.loads(json.dumps(whole))
    wrong["results"][0]["in_place"]["nwrong"] = 3
    assert parse(json.dumps(wrong))["reason_code"] == "wrong_results"


@given(st.integers(min_value=1, max_value=3000))
def test_a_cut_text_is_never_measured(at: int) -> None:
    text = table()
    last = text.rindex("Avg bus bandwidth    : 165")
    if at < last + len("Avg bus bandwidth    : "):
        assert parse(text[:at])["outcome"] == "error"


@given(st.text(max_size=400))
def test_any_other_text_is_an_error(text: str) -> None:
    assert parse(text)["outcome"] == "error"


def test_ranks_that_ran_as_several_groups_are_not_those_that_were_asked_for(fixtures: t.Any) -> None:
    """NCCL_TESTS_SPLIT in the environment of a node: each node by itself, by NVLink, where the network was to be measured."""
    text = (fixtures / "h200-x4/nccl-v2.19.6-all_reduce-g4.txt").read_text()
    lines, values = [], []
    for line in text.splitlines():
        words = line.split()
        if line.startswith(("#  Rank  2", "#  Rank  3")):
            line = line.replace("Group  0", "Group  1")
        elif words and words[0].isdigit():  # of two ranks the bus bandwidth is the algorithm's
            words[7], words[11] = words[6], words[10]
            values += [float(words[6]), float(words[10])]
            line = "  ".join(words)
        elif "Avg bus bandwidth" in line:
            line = f"# Avg bus bandwidth    : {sum(values) / len(values):.6g}"
        lines.append(line)
    split = "\n".join(lines) + "\n"
    assert parse(split)["outcome"] == "measured", "a reading that nobody asked anything of"
    found = parse(split, expect_ranks=4)
    assert (found["outcome"], found["reason_code"]) == ("error", "rank_mismatch") and "2 groups of 2" in found["reason"]
