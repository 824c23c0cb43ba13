# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""hccl_test: what its source prints, whole, cut, wrong and mixed."""

from __future__ import annotations

import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.hccl_test import TYPES, parse
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_tests import parse as parse_nccl
from fuzz import healthy_hccl
from hypothesis import assume, given
from hypothesis import strategies as st

# The documentation's example, which divides by 2^30 and leaves out all rows but the first and the last.
DOCUMENTED = """# mpirun -n 8 ./bin/all_reduce_test -b 8K -e 64M -f 2 -d fp32 -o sum -p 8
the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5
data_size(Bytes): |   avg_time(us): | alg_bandwidth(GB/s): | check_result:
8192              |     764.55    |       0.00998        | success
67108864          |    2630.20    |      23.76245        | success
"""


def output(smallest: int = 8192, largest: int = 64 << 20, sizes: t.Iterable[int] | None = None, check: str = "success") -> str:
    if sizes is None:
        sizes = [smallest << n for n in range(40) if smallest << n <= largest]
    text = f"the minbytes is {smallest}, maxbytes is {largest}, iters is 20, warmup_iters is 5\n"
    text += f"{'data_size(Bytes):':15} | {'aveg_time(us):':12} | {'alg_bandwidth(GB/s):':18} | check_result:\n"
    for size in sizes:
        time = 60 + size / 25000
        text += f"{size:<17} | {time:<14.2f} | {size / time / 1000:<20.5f} | {check}\n"
    return text


def test_a_whole_sweep_is_measured_with_all_of_its_sizes() -> None:
    found = parse(output(), 0, op="all_reduce", ranks=8)
    assert found["outcome"] == "measured" and found["complete"] and found["iterations"] == 20
    assert [row["size"] for row in found["rows"]] == [8192 << n for n in range(14)]
    assert set(found) > set(parse_nccl("")) - {"_"}
    last = found["rows"][-1]
    assert set(last) == {"size", "count", "type", "redop", "root", "out_of_place", "in_place"}
    assert last["out_of_place"]["wrong"] == 0 and last["in_place"] is None
    assert last["out_of_place"]["busbw"] == pytest.approx(last["out_of_place"]["algbw"] * 14 / 8)
    assert found["peak_algbw"] == {"value": last["out_of_place"]["algbw"], "unit": "GB/s", "size": 64 << 20}
    assert found["peak_busbw"]["value"] == pytest.approx(found["peak_algbw"]["value"] * 1.75)
    assert parse(output())["peak_busbw"] is None and parse(output())["rows"][0]["out_of_place"]["busbw"] is None


def with_times(**times: float) -> str:
    """A sweep in which some sizes (`b8192`) took another time, and the bandwidth follows from it."""
    lines = []
    for line in output().splitlines():
        size = line.split()[0]
        if f"b{size}" in times:
            time = times[f"b{size}"]
            line = f"{size:<17} | {time:<14.2f} | {int(size) / time / 1000:<20.5f} | success"
        lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "times",
    [
        {"b67108864": 700.0},  # 2744 us alone; 32 MiB take 1402 us
        {"b33554432": 8000.0},  # 16 MiB take 731 us
        {"b67108864": 6000.0},
        {"b2097152": 5000.0},  # not judged, but far off
    ],
)
def test_a_row_of_another_run_of_the_same_sizes_leaps(times: dict[str, float]) -> None:
    found = parse(with_times(**times))
    assert (found["outcome"], found["reason_code"]) == ("error", "bad_output") and "several runs" in found["reason"]


@pytest.mark.parametrize(
    "times",
    [
        {"b8192": 20000.0},  # the first use of a connection
        {"b16384": 900.0, "b65536": 700.0},  # a stall in 20 iterations of a short time
        {"b33554432": 1900.0},  # scatter
        {"b67108864": 1402.0},  # twice as fast from here on: another algorithm
        {"b4194304": 1100.0, "b8388608": 1500.0},
    ],
)
def test_what_a_noisy_run_does_is_no_other_run(times: dict[str, float]) -> None:
    assert parse(with_times(**times))["outcome"] == "measured", parse(with_times(**times))["reason"]


def test_a_size_is_as_far_off_as_whole_parts_of_the_ranks_are() -> None:
    text = output().replace("67108864 ", "68108864 ").replace("is 67108864", "is 68108864")
    assert "do not grow" in parse(text)["reason"]


def test_the_documented_example_is_in_gibibytes() -> None:
    assert "do not grow by the factor 2" in parse(DOCUMENTED)["reason"]
    found = parse(DOCUMENTED.replace("-f 2", "-f 8192"))
    assert found["outcome"] == "measured", found["reason"]
    assert found["peak_algbw"] == {"value": 23.76245, "unit": "GiB/s", "size": 67108864}
    assert found["warnings"] == ["this version prints 2^30 bytes a second under GB/s"]


@pytest.mark.parametrize(
    "op,factor",
    [
        ("all_gather", 7 / 8),
        ("all_gatherv", 7 / 8),
        ("alltoallvc", 7 / 8),
        ("broadcast", 1),
        ("reduce_scatterv", 7 / 8),
        ("scatter", 7 / 8),
    ],
)
def test_bus_bandwidth_follows_from_the_factor_of_the_operation(op: str, factor: float) -> None:
    found = parse(output(), op=op, ranks=8)
    assert found["peak_busbw"]["value"] == pytest.approx(found["peak_algbw"]["value"] * factor)
    assert parse(output(), op="nothing", ranks=8)["outcome"] == "error"


@pytest.mark.parametrize(
    "prefix", ["", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", "0: ", "2026-11-21T08:00:00.000000Z ", "[1,0][host:123]<stdout>: "]
)
def test_an_output_with_the_prefix_of_a_launcher_has_the_same_rows(prefix: str) -> None:
    text = "".join(prefix + line for line in output().splitlines(True))
    assert parse(text)["rows"] == parse(output())["rows"]
    assert parse(text.replace("\n", "\r\n"))["rows"] == parse(output())["rows"]


def test_steps_and_odd_factors() -> None:
    assert parse(output(1 << 20, 11 << 20, [n << 20 for n in range(1, 12)]))["outcome"] == "measured"
    sizes, size = [], 8192
    while size <= 1 << 20:
        sizes.append(size)
        size = int(size * 1.3)
    assert parse(output(8192, 1 << 20, sizes), factor=1.3)["outcome"] == "measured"
    assert parse(output(8192, 1 << 20, sizes[:-1]), factor=1.3)["reason_code"] == "incomplete_output"
    assert parse(output(64, 64))["outcome"] == "measured"


COMMAND = "+ mpirun -n 8 ./bin/all_reduce_test -p 8 -b 8K -e 64M -f 2 -d fp32 -o sum -n 20 -w 5\n"
ASKED: dict[str, t.Any] = {"op": "all_reduce", "ranks": 8, "iterations": 20, "warmup": 5, "dtype": "fp32", "seconds": 30.0}


def test_the_output_of_this_run_is_measured() -> None:
    for command in ("", COMMAND, COMMAND.replace("mpirun -n 8", "mpirun -np 8"), COMMAND.replace("fp32", "FP32")):
        text = command + output()
        assert parse(text, **ASKED)["outcome"] == "measured", parse(text, **ASKED)["reason"]


@pytest.mark.parametrize(
    ("command", "asked", "words"),
    [
        ("", {"iterations": 100}, "it ran 20 iterations, 100 were asked for"),
        ("", {"warmup": 10}, "it ran 5 iterations of warm-up, 10 were asked for"),
        ("", {"seconds": 0.01}, "its rows took "),
        (COMMAND.replace("-n 20", "-n 100"), {}, "says -n 100, and the run had 20"),
        (COMMAND.replace("-w 5", "-w 7"), {}, "says -w 7"),
        (COMMAND.replace("-d fp32", "-d fp16"), {}, "says -d fp16, and the run had fp32"),
        (COMMAND.replace("-d fp32", "--datatype=int8"), {}, "says -d int8"),
        (COMMAND.replace("-e 64M", "-e 128M"), {}, "says -e 128M"),
        (COMMAND.replace("-b 8K", "-b 64K"), {}, "says -b 64K"),
        (COMMAND.replace("mpirun -n 8", "mpirun -n 16"), {}, "launches 16 ranks, expected 8"),
        (COMMAND.replace("-p 8", "-p 3"), {}, "says -p 3"),
        (COMMAND + COMMAND.replace("all_reduce", "all_gather"), {}, "the text is that of all_gather"),
        ("rank_id: 0, rank_size: 16, HCCL_TEST_USE_DEVS: (null)\n", {}, "16 ranks took part, expected 8"),
    ],
)
def test_the_output_of_another_run_is_no_measurement(command: str, asked: dict[str, t.Any], words: str) -> None:
    text = output(largest=1 << 30) if "seconds" in asked else output()
    found = parse(command + text, **{**ASKED, **asked})
    assert found["outcome"] == "error" and found["reason_code"] in ("bad_output", "rank_mismatch")
    assert words in found["reason"]


@given(
    ranks=st.sampled_from([2, 3, 6, 8, 24]), dtype=st.sampled_from(["fp16", "fp32", "int64"]), other=st.integers(0, 100),
    asked=st.booleans(),
)  # fmt: skip
def test_sizes_hold_whole_elements_of_the_type_for_each_rank(ranks: int, dtype: str, other: int, asked: bool) -> None:
    """Rows with the bytes of another number of ranks, or of another type, are those of another run."""
    part, wrong = TYPES[dtype] * ranks, TYPES[dtype] * ranks * 7 + 1 + other
    lines, sizes = [], (1001, 2002, 4004, 8008)
    # By more than the printed digits hide.
    assume(asked or any(wrong > -size % wrong > 2 * TYPES[dtype] * ranks + 30 for size in sizes))
    for size in sizes:
        moved = -(-size // (part if asked else wrong)) * (part if asked else wrong)
        time = 500 + moved / 100
        lines.append(f"{size} | {time:.2f} | {moved / time / 1e3:.5f} | success")
    text = "the minbytes is 1001, maxbytes is 8008, iters is 20, warmup_iters is 5\n" + output().splitlines()[1] + "\n" + "\n".join(lines)
    found = parse(text, op="all_gather", ranks=ranks, dtype=dtype)
    assert (found["outcome"] == "measured") is asked, found["reason"]


def test_a_sweep_that_lacks_one_row_is_incomplete() -> None:
    sizes = [8192 << n for n in range(14)]
    for gone in range(14):
        found = parse(output(sizes=sizes[:gone] + sizes[gone + 1 :]))
        assert found["reason_code"] == "incomplete_output", gone
    assert parse(output(sizes=sizes[:1]))["reason_code"] == "incomplete_output"
    assert parse(output(sizes=[]))["reason_code"] == "incomplete_output"
    assert parse(output(sizes=[8192] * 3))["outcome"] == "error"
    assert parse(output().split("\n", 1)[1])["reason_code"] == "incomplete_output"


@pytest.mark.parametrize(
    "line",
    [
        "local rank_id 3, check result failed, 8192              | 764.55         | 0.00998              | failed",
        "rank id 5, check result failed",
        "check buf[0] error, exp:8.000000, act:0.000000 ",
        "result buf[12] is not right, exp: 8, act:0 ",
        "total err is 2048",
    ],
)
def test_a_wrong_result_of_another_rank_while_the_table_says_success(line: str) -> None:
    lines = output().split("\n")
    found = parse("\n".join([*lines[:3], line, *lines[3:]]))
    assert found["reason_code"] == "wrong_results" and found["reason_code"] in reasons.FATAL


def test_wrong_and_unchecked_results() -> None:
    found = parse(output(check="failed"))
    assert found["reason_code"] == "wrong_results" and "8192 bytes" in found["reason"]
    found = parse("Warning: The calculation result overflows, No verification is performed.\n" + output(check="NULL"))
    assert (found["outcome"], found["reason_code"]) == ("error", "unchecked") and found["complete"] and len(found["rows"]) == 14
    assert found["rows"][0]["out_of_place"]["wrong"] is None and "unchecked" not in reasons.FATAL


def test_no_part_of_a_table_is_unchecked() -> None:
    whole, last = output(), output(check="NULL").splitlines()[-1]
    assert parse(whole.replace(whole.splitlines()[-1], last))["reason_code"] == "unchecked"
    assert parse("./bin/all_reduce_test -b 8K -e 64M -f 2 -c 0\n" + whole)["reason_code"] == "unchecked"
    assert parse("Warning: The calculation result overflows, No verification is performed.\n" + whole)["reason_code"] == "unchecked"
    assert parse("./bin/all_reduce_test -b 8K -e 64M -f 2 --check=2\n" + whole)["outcome"] == "measured"


@pytest.mark.parametrize("begin,by", [(0, 2), (1, 2), (0, 3)])
def test_a_sweep_that_lacks_every_other_row_is_incomplete(begin: int, by: int) -> None:
    """The rest looks like a sweep by 4, or by twice the step: nobody has said that it is one."""
    doubled, stepped = [8192 << n for n in range(14)], [n << 20 for n in range(1, 12)]
    assert parse(output(sizes=doubled[begin::by]))["reason_code"] == "incomplete_output"
    assert parse(output(1 << 20, 11 << 20, stepped[begin::by]))["reason_code"] == "incomplete_output"


def test_a_sweep_that_the_caller_or_the_text_describes() -> None:
    by_four = output(8192, 32 << 20, [8192 << n for n in range(0, 14, 2)])
    assert "say with which factor" in parse(by_four)["reason"]
    assert parse(by_four, factor=4)["outcome"] == "measured" and parse(by_four, factor=2)["reason_code"] == "incomplete_output"
    line = "+ mpirun -f hosts -n 8 ./bin/all_reduce_test -p 8 -b 8K -e 32M -f 4 -d fp32 -o sum\n"
    assert parse(line + by_four)["outcome"] == "measured" and "-f 4" in parse(line + by_four, factor=2)["reason"]
    stepped = output(1 << 20, 9 << 20, [n << 20 for n in range(1, 10, 2)])
    assert parse(stepped)["outcome"] == "error" and parse(stepped, step=2 << 20)["outcome"] == "measured"
    assert parse("all_reduce_test -b 1M -e 9M --stepbytes 2097152\n" + stepped)["outcome"] == "measured"
    assert parse(output(64 << 20, 100 << 20, [64 << 20]))["outcome"] == "error"
    assert parse(output(64 << 20, 100 << 20, [64 << 20]), factor=2)["outcome"] == "measured"


def test_another_operation_or_other_ranks_than_the_caller_says() -> None:
    text = "./bin/all_gather_test -b 8K -e 64M -f 2\n" + output()
    assert parse(text, op="all_gather")["outcome"] == "measured"
    assert "text is that of all_gather" in parse(text, op="all_reduce")["reason"]
    text = "".join(f"rank_id: {n}, rank_size: 8, HCCL_TEST_USE_DEVS: (null)\r\n" for n in range(8)) + output()
    assert parse(text, op="all_reduce")["peak_busbw"]["value"] == parse(text, op="all_reduce", ranks=8)["peak_busbw"]["value"]
    assert parse(text, op="all_reduce", ranks=16)["reason_code"] == "rank_mismatch"


def test_a_bandwidth_of_a_small_size_follows_too() -> None:
    """The rounding to whole parts is the same in every row, not a slack for each."""
    text = output()
    number = text.splitlines()[2].split("|")[2].strip()
    assert parse(text.replace(number, f"{float(number) * 1.9:.5f}"))["reason_code"] == "bad_output"
    assert parse(text.replace(number, f"{float(number) * 2:.5f}"), ranks=8)["reason_code"] == "bad_output"
    padded = [(size, -(-size // 12288) * 12288) for size in (8192, 16384, 32768)]  # 768 ranks, 16 bytes each
    lines = "".join(f"{size} | 100.00 | {moved / 1e5:.5f} | success\n" for size, moved in padded)
    assert parse("\n".join(output(8192, 32768).splitlines()[:2]) + "\n" + lines)["outcome"] == "measured"


def test_time_and_bandwidth_in_each_others_columns() -> None:
    """Their product is the size whichever is which; their digits tell."""
    lines = output().splitlines(True)
    size, time, bandwidth, check = lines[5].split("|")
    assert parse(output().replace(lines[5], "|".join([size, bandwidth, time, check])))["reason_code"] == "bad_output"


def test_healthy_runs_of_every_kind_are_measured() -> None:
    source = random.Random(30)
    for _number in range(400):
        run = healthy_hccl.run(source)
        found = parse(run.text, **run.asked)
        assert found["outcome"] == "measured", (found["reason"], run.text)


@pytest.mark.parametrize(
    "line",
    [
        "hccl interface return err ./common/src/hccl_test_common.cc:539, retcode: 4 ",
        "acl interface return err ./common/src/hccl_test_common.cc:300, retcode: 507033.",
        "hccl_op_base execute failed, Detailed logs are stored at the default path: /root/ascend/log/",
        "Process 0 HcclGetRootInfo failed, notify other process to exit",
        "Process 3 received invalid data from root process 0",
        "This is an error in check_cmd_line.",
        "EI0006: Getting socket times out. Reason: the remote end does not initiate the socket request",
        "[prepare_zero_copy][1058] aclrtMallocPhysical failed.",
        "Alloc memory size is larger than free memory, allocSize: 1, freeMem: 0, totalMem: 2",
        "some day something else failed too",
        "./bin/all_reduce_test: error while loading shared libraries: libhccl.so: cannot open shared object file",
    ],
)
def test_an_error_line_of_hccl_is_a_failure_whatever_the_status(line: str) -> None:
    for text in (line + "\n", output() + line + "\n", line + "\n" + output()):
        found = parse(text)
        assert found["reason_code"] == "tool_failed" and found["reason"].split()[-1] in line, found["reason"]


def test_status_usage_and_runs_that_are_mixed() -> None:
    assert parse(output(), 1)["reason_code"] == "tool_failed" and parse(output(), 137)["reason_code"] == "timeout"
    assert parse("USAGE: ./test \n\t[-b,--minbytes <min size in bytes>] \n\t")["reason_code"] == "usage"
    assert (
        parse("invalid option \nTry [-h --help] for more information.\nThis is an error in parse_cmd_line.\n")["reason_code"]
        == "tool_failed"
    )
    assert parse(output() + output())["reason_code"] == "not_mpi"


def test_numbers_that_contradict_each_other() -> None:
    text = output()
    number = text.splitlines()[-1].split("|")[2].strip()
    assert parse(text.replace(number, "94.00000"))["reason_code"] == "bad_output"
    for word in ("0.00", "nan", "inf", "-1.00", "1e9"):
        assert parse(text.replace(number, word))["outcome"] == "error"


@pytest.mark.parametrize("text", [None, b"", 3, [], "", "x", "<html>", "{}", "\0" * 9, "a | b | c | d\n"])
def test_what_is_no_output_at_all(text: t.Any) -> None:
    assert parse(text)["outcome"] == "error" and parse(text)["reason_code"] in reasons.ALL


@given(st.integers(min_value=0, max_value=len(output()) - 8))
def test_a_cut_text_is_never_measured(at: int) -> None:
    assert parse(output()[:at])["outcome"] == "error"


@given(st.text(max_size=300))
def test_any_other_text_is_an_error(text: str) -> None:
    assert parse(text)["outcome"] == "error"
