# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of perftest for healthy runs: every test and option, fast and slow devices, computed and rounded as the tool does it.

`run(random)` gives a Run: its text, its JSON (of 24.01 on; None where the tool writes none), and what was asked of it.
"""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t

LINE = "-" * 87 + "\n"
LONG_LINE = "-" * 163 + "\n"
TITLES = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send", "atomic": "Atomic"}
GID = " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:10:{}:{:02d}\n"
LATENCIES = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] \n"
)


@dataclasses.dataclass
class Run:
    text: str
    json: str | None
    asked: dict[str, t.Any]
    op: str
    kind: str


@dataclasses.dataclass
class _Chosen:
    """The properties of a run."""

    op: str
    kind: str
    r: random.Random
    connection: str = "RC"
    both: bool = False
    imm: bool = False
    serves: bool = False
    duration: int = 0
    every: bool = False
    report_both: bool = False
    per_port: bool = False
    level: bool = False
    cpu: bool = False
    qps: int = 1
    size: int = 65536
    iterations: int = 5000
    mtu: int = 4096
    unit: str = "Gb/sec"
    peak: bool = True

    @property
    def reads(self) -> bool:
        return self.op in ("read", "atomic")

    @property
    def active_qps(self) -> int:
        return max(self.qps // 2, 1) if self.connection in ("DC", "XRC") and self.both else self.qps

    @property
    def sampled(self) -> int:
        return self.duration - 2 * (self.duration // 4)


def run(r: random.Random, kind: str | None = None) -> Run:
    chosen = _choose(r, kind)
    sizes = [chosen.size]
    if chosen.every:
        sizes = [2**n for n in range(1, (chosen.mtu.bit_length() if chosen.connection == "UD" else 24))]
    # What is printed as 0 was not measured; these two formats have two digits whatever the unit.
    speed = max(_speed(r), 1e7 if chosen.per_port or chosen.level else 0)
    if chosen.kind == "bw":
        rows = [_bandwidth(chosen, size, speed) for size in sizes]
        table, results = _bandwidth_tables(chosen, rows)
    else:
        table, results = _latency_table(chosen, sizes)
    json = None
    if not (chosen.every or chosen.report_both or chosen.level or chosen.per_port or chosen.connection == "RawEth"):
        json = _json(chosen, results)
    asked = {
        "expect_bytes": sizes[-1], "expect_iterations": None if chosen.duration else chosen.iterations,
        "expect_duration": chosen.duration or None,
    }  # fmt: skip
    return Run(_heading(chosen) + table, json, asked, chosen.op, chosen.kind)


def _choose(r: random.Random, kind: str | None) -> _Chosen:
    c = _Chosen(r.choice(["write", "read", "send", "atomic"]), kind or r.choice(["bw", "bw", "lat"]), r)
    c.mtu = r.choice([1024, 2048, 4096, 4096])
    c.unit = r.choice(["Gb/sec", "Gb/sec", "MB/sec", "MiB/sec"])
    c.imm = c.op in ("write", "send") and r.random() < 0.1
    if c.kind == "lat":
        c.size = r.choice([2, 2, 2, 8, 64, 4096, 65536, r.randint(1, 1 << 20)])
        c.iterations = r.choice([1000, 1000, 5, 10, 20, 50, 100, 102, 103, 200, 1002, 1003, 1004, 2000, 5000])
        c.duration = r.choice([0] * 9 + [1, 2, 3, 5, 10, 30, 60])
        c.every = not c.duration and c.op != "atomic" and r.random() < 0.2
        c.iterations = min(c.iterations, 200) if c.every else c.iterations
    else:
        c.both = r.random() < 0.25
        c.serves = r.random() < 0.2 and c.op != "atomic"
        c.connection = r.choice(["RC"] * 6 + ["UC", "UD", "XRC", "DC", "RawEth"])
        if c.connection in ("UD", "RawEth", "XRC"):
            c.op = "send"
        c.imm = c.imm and c.connection == "RC" and c.op in ("write", "send")
        if c.connection == "UC" and c.reads:
            c.connection = "RC"
        c.qps = r.choice([1, 1, 1, 2, 4, 8, 16])
        if c.connection in ("DC", "XRC") and c.both:
            c.qps *= 2
        c.size = r.choice([65536, 65536, 2, 64, 1024, 4096, 1 << 20, 8 << 20, r.randint(1, 1 << 23)])
        c.iterations = r.choice([5000, 1000, 5, 20, 128, 200, 777, 20000, 20001, 100000, r.randint(5, 50000)])
        c.duration = r.choice([0, 0, 0, 1, 3, 5, 10, 30])
        c.every = not c.duration and c.op != "atomic" and c.connection != "RawEth" and r.random() < 0.3 and not c.serves
        c.report_both = c.both and not c.duration and not c.every and c.connection != "RawEth" and r.random() < 0.5
        c.per_port = c.duration > 0 and c.connection == "RC" and r.random() < 0.15
        if c.per_port:
            c.qps *= 2
        c.level = c.connection == "RawEth" and r.random() < 0.2
        c.cpu = c.duration > 0 and not c.level and r.random() < 0.2
        c.peak = not c.duration and c.iterations <= 20000 and r.random() < 0.7 and not (c.op == "send" and c.serves and not c.both)
    if c.op == "atomic":
        c.size = 8
    if c.connection == "UD":
        c.size = min(c.size, c.mtu)
    if c.connection == "RawEth":
        c.mtu = r.choice([1518, 4096, 9000])
        c.size, c.serves = max(64, min(c.size, c.mtu)), False
    return c


def _speed(r: random.Random) -> float:
    """Bytes a second of a device: of 800 Gb/s down to a guest that sends a few messages."""
    return 10 ** r.uniform(5, 11) if r.random() < 0.5 else r.uniform(20, 800) * 1e9 / 8


def _late(r: random.Random, seconds: int) -> float:
    """Return the real duration of a test by duration, on a clock that is known to 2 %."""
    return (seconds + abs(r.gauss(0, 0.03))) * r.uniform(0.985, 1.015)


# Bandwidth -----------------------------------------------------------------------------------------------------------


def _side(c: _Chosen, size: int, speed: float) -> dict[str, t.Any]:
    r = c.r
    seconds = size / min(speed, 200e6 * size) * r.uniform(0.97, 1.03)  # of a message
    if c.duration:
        lasted = _late(r, c.sampled)
        count = max(1, round(lasted / seconds))
        total = lasted
    else:
        count = c.iterations * c.active_qps
        total = count * seconds
    factor = 125e6 if c.unit == "Gb/sec" else 2**20
    average = size * count / total / factor
    peak = average * r.choice([1.0, r.uniform(1, 1.02), r.uniform(1, 1.6)]) if c.peak else 0.0
    first = r.randint(0, count)
    ports = [(size * n / total / factor, n / total / 1e6) for n in (first, count - first)]
    return {"size": size, "count": count, "peak": peak, "average": average, "rate": count / total / 1e6, "ports": ports}


def _bandwidth(c: _Chosen, size: int, speed: float) -> list[dict[str, t.Any]]:
    """The sum that is printed, this side and the other one."""
    mine = _side(c, size, speed)
    if not c.both or (c.connection == "RawEth") or (c.duration and (c.op == "send" or c.imm)):
        return [mine, mine, mine]
    other = _side(c, size, speed)
    whole = {**mine, **{name: mine[name] + other[name] for name in ("peak", "average", "rate")}}
    whole["ports"] = [(a + x, b + y) for (a, b), (x, y) in zip(mine["ports"], other["ports"])]
    return [whole, mine, other]


def _words(c: _Chosen, row: dict[str, t.Any], accurate: bool) -> str:
    digits = 6 if accurate and not (c.level or c.per_port) else 2
    words = [f"{row['size']:<7}", *([str(c.r.randint(0, 7))] if c.level else []), f"{row['count']:<10}"]
    words += [f"{row[name]:<7.{digits}f}" for name in ("peak", "average")]
    tail = [f"{row['rate']:<7.6f}"]
    for bandwidth, rate in row["ports"] if c.per_port else []:
        tail += [f"{bandwidth:<7.2f}", f"{rate:<7.6f}"]
    line = " " + "    ".join(words) + "\t\t   " + "        ".join(tail)
    return line + (f"\t    {c.r.uniform(0, 100):-3.2f}\n" if c.cpu else "\n")


def _bandwidth_tables(c: _Chosen, rows: list[list[dict[str, t.Any]]]) -> tuple[str, str]:
    line = LONG_LINE if c.per_port else LINE
    unit = c.unit
    ports = f"   BW Port1[{unit}]   MsgRate Port1[Mpps]   BW Port2[{unit}]   MsgRate Port2[Mpps]" if c.per_port else ""
    head = f" #bytes    {'#sl      ' if c.level else ''} #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]{ports}"
    head += "    CPU_Util[%]\n" if c.cpu else "\n"
    accurate = [mine["average"] < 0.1 and unit == "Gb/sec" for _whole, mine, _other in rows]
    text = line + head + "".join(_words(c, whole, six) for (whole, _mine, _other), six in zip(rows, accurate)) + line
    if c.report_both:
        _whole, mine, other = rows[0]
        text += f"\n Local results: \n{line}{head}{_words(c, mine, accurate[0])}{line}"
        text += f"\n Remote results: \n{line}{head}{_words(c, other, other['average'] < 0.1 and unit == 'Gb/sec')}{line}"
    whole = rows[-1][0]
    digits = 6 if accurate[-1] else 2
    results = f'"MsgSize": {whole["size"]},\n"n_iterations": {whole["count"]},\n"BW_peak": {whole["peak"]:.{digits}f},\n'
    results += f'"BW_average": {whole["average"]:.{digits}f},\n"MsgRate": {whole["rate"]:.6f}'
    return text, results + (',\n"CPU_util": 30.00\n' if c.cpu else "\n")


# Latency -------------------------------------------------------------------------------------------------------------


def _samples(c: _Chosen, typical: float) -> list[float]:
    r = c.r
    spread, tail = r.choice([0.005, 0.02, 0.3]), r.choice([1.2, 3, 20])
    count = c.iterations - 1
    found = [typical * (1 + abs(r.gauss(0, spread))) * (r.uniform(1, tail) if r.random() < 0.01 else 1) for _n in range(count)]
    mhz = 2500
    return [math.floor(x * mhz) / mhz for x in sorted(found)]


def _latency_table(c: _Chosen, sizes: list[int]) -> tuple[str, str]:
    r = c.r
    base = r.choice([r.uniform(0.6, 12), r.uniform(0.6, 12), r.uniform(12, 900), r.uniform(900, 6000)])
    ways = 1 if c.reads else 2
    if c.duration:
        seconds = _late(r, c.sampled)
        count = max(1, math.floor(seconds * 1e6 / (base * ways)))
        average, rate = seconds / count * 1e6 / ways, count / seconds
        text = f"{LINE} #bytes        #iterations       t_avg[usec]    tps average\n {c.size:<7}       {count}            {average:<7.2f}"
        text += f"        {rate:<7.2f}\n{LINE}"
        return text, f'"MsgSize": {c.size},\n"n_iterations": {count},\n"t_avg": {average:.2f},\n"tps_average": {rate:.2f}\n'
    lines, results = "", ""
    for size in sizes:
        samples = _samples(c, base + size / 25000)
        count = len(samples) - 2
        typical = samples[count // 2] if count % 2 else (samples[count // 2] + samples[count // 2 - 1]) / 2
        average = sum(samples[:count]) / count
        stdev = math.sqrt(sum(int(average - x) ** 2 for x in samples[:count]) / count)
        row = [samples[0], samples[count], typical, average, stdev, samples[math.ceil(count * 0.99)], samples[math.ceil(count * 0.999)]]
        a, b, m, mean, s, p99, p999 = (f"{x:<7.2f}" for x in row)
        lines += f" {size:<7} {c.iterations}          {a}        {b}      {m}  \t       {mean}     \t{s}\t\t{p99} \t\t{p999}\n"
        names = ["t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9"]
        results = f'"MsgSize": {size},\n"n_iterations": {c.iterations},\n'
        results += ",\n".join(f'"{name}": {x:.2f}' for name, x in zip(names, row)) + "\n"
    return LINE + LATENCIES + lines + LINE, results


# Around the table ----------------------------------------------------------------------------------------------------


def _title(c: _Chosen) -> str:
    words = TITLES[c.op] + ("_imm" if c.imm else "")
    words += f" {c.r.choice(['CMP_AND_SWAP', 'FETCH_AND_ADD'])}" if c.op == "atomic" else ""
    if c.kind == "bw":
        return words + (" Bidirectional" if c.both else "") + c.r.choice(["", "", "", " Post List"]) + " BW Test"
    return words + " Latency Test"


def _heading(c: _Chosen) -> str:
    r = c.r
    receives = c.op == "send" or (c.op == "write" and c.imm)
    waits = "\n************************************\n* Waiting for client to connect... *\n************************************\n"
    text = " WARNING: BW peak won't be measured in this run.\n" if c.kind == "bw" and not c.peak and r.random() < 0.7 else ""
    text += waits if c.serves else ""
    text += f"{LINE}                    {_title(c)}\n"
    text += f" Dual-port       : {'ON' if c.per_port else 'OFF'}\t\tDevice         : mlx5_{r.randint(0, 15)}\n"
    text += f" Number of qps   : {c.qps}\t\tTransport type : IB\n Connection type : {c.connection}\t\tUsing SRQ      : OFF\n"
    text += f" PCIe relax order: ON{r.choice(['', '{0}{0}Lock-free      : OFF'.format(chr(9))])}\n ibv_wr* API     : OFF\n"
    if not c.serves or c.both:
        text += " TX depth        : 128\n"
    if receives and c.kind == "bw" and (c.serves or c.both):
        text += " RX depth        : 512\n"
    text += " CQ Moderation   : 100\n" if c.kind == "bw" else ""
    text += f" Mtu             : {c.mtu}[B]\n Link type       : Ethernet\n" + (" GID index       : 3\n" if c.connection != "RawEth" else "")
    text += f" Outstand reads  : {r.choice([1, 16, 128])}\n" if c.reads else " Max inline data : 0[B]\n"
    text += f" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n{LINE}"
    if c.connection == "RawEth":
        return text + "MAC attached  : 00:11:22:33:44:55\n"
    keys = {"read": " OUT 0x10 RKey 0x00025f VAddr 0x0055bbaefd0000", "write": "" if c.imm else " RKey 0x00025f VAddr 0x0055bbaefd0000"}
    host = r.randint(0, 99)
    for side, last in (("local", host), ("remote", host + 1)):
        for _qp in range(c.qps):
            text += f" {side} address: LID 0000 QPN 0x{r.randint(1, 65535):04x} PSN 0x{r.randint(1, 1 << 24):x}{keys.get(c.op, '')}\n"
            text += GID.format(c.qps, last)
    warned = "Conflicting CPU frequency values detected: 2500.000000 != 4900.441000. CPU Frequency is not max.\n"
    return text + (warned if r.random() < 0.05 else "")


def _json(c: _Chosen, results: str) -> str:
    title = _title(c).replace(" ", "_")
    named = '"Outstand_reads": 16,\n' if c.reads else '"Max_inline_data": 0,\n'
    return (
        f'{{\n"test_info": {{\n"test": "{title}",\n"Dual_port": "OFF",\n"Device": "mlx5_0",\n"Number_of_qps": {c.qps},\n'
        f'"Transport_type": "IB",\n"Connection_type": "{c.connection}",\n"Mtu": {c.mtu},\n"Link_type": "Ethernet",\n'
        f'"GID_index": 3,\n{named}'
        f'"Data_ex_method": "Ethernet"\n}},\n"results": {{\n{results}}}\n}}\n'
    )
