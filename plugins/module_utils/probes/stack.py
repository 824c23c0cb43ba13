# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Software stack, firmware and health of a node.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import platform
import re
import resource
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

# Asks the node's Python what it is and has, in one start: packages, torch, CUDA, NCCL.
ASK_PYTHON = """
import json, platform, sys
try:
    from importlib.metadata import distributions
    have = sorted({(d.metadata["Name"] or "").lower().replace("_", "-") + "==" + (d.version or "?") for d in distributions()})
except Exception as error:
    have = ["unreadable: %s" % error]
print(json.dumps({"python": platform.python_version(), "packages": have, "executable": sys.executable}))
"""

# Initialises CUDA for real, through the driver, and through torch where it is installed. In a child: it may hang or crash.
ASK_CUDA = """
import ctypes, json
said = {}
try:
    driver = ctypes.CDLL("libcuda.so.1")
    said["init"] = driver.cuInit(0)
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    said["driver_cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    said["count_status"] = driver.cuDeviceGetCount(ctypes.byref(number))
    said["count"] = number.value
except OSError as error:
    said["library"] = str(error)
try:
    import torch
    said["torch"] = torch.__version__
    said["torch_cuda"] = torch.version.cuda
    said["torch_available"] = bool(torch.cuda.is_available())
    said["torch_count"] = torch.cuda.device_count() if said["torch_available"] else 0
    said["torch_nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if said["torch_available"] else None
except ImportError:
    pass
except Exception as error:
    said["torch_error"] = "%s: %s" % (type(error).__name__, error)
print("CUDA " + json.dumps(said))
"""

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
SECRETS = re.compile(r"(?i)(token|secret|password|passwd|key|credential)")


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": name, "variant": ""} for name in ("facts", "gpu_health", "cuda")]


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    """Observations of `facts`, `gpu_health` and `cuda`, whichever `params["checks"]` names."""
    wanted = {c["check"]: c["variant"] for c in params["checks"]}
    seen = gpu.snapshot(node.run, params["nvidia_smi"])
    identity = {
        "machine_id": node.read("/etc/machine-id"),
        "gpu": gpu.model(seen) if seen["gpus"] else None,
        "gpus": len(seen["gpus"]),
        "gpu_uuids": [g["uuid"] for g in seen["gpus"]],
    }
    simulated = bool(seen.get("simulated"))
    if "facts" in wanted:
        facts = Facts(params, node, seen).collect()
        yield observation.measured(
            "facts", variant=wanted["facts"], context={**identity, "facts": facts}, simulated=simulated
        )
    if "gpu_health" in wanted:
        yield from _health(wanted["gpu_health"], seen, identity, params, simulated)
    if "cuda" in wanted:
        yield _cuda(wanted["cuda"], seen, identity, params, node, simulated)


def _health(
    variant: str, seen: dict[str, t.Any], identity: dict[str, t.Any], params: dict[str, t.Any], simulated: bool
) -> t.Iterator[dict[str, t.Any]]:
    common: dict[str, t.Any] = {"variant": variant, "simulated": simulated}
    expected = params["expected_gpus"]
    if seen["outcome"] != "measured":
        none_wanted = expected == 0 and seen["reason_code"] in ("no_gpu", "tool_missing")
        if none_wanted:
            reason = "the inventory says this machine has no GPU"
            yield observation.failed("gpu_health", "no_gpu_expected", reason, "not_applicable", context=identity, **common)
        else:
            yield observation.failed("gpu_health", seen["reason_code"], seen["reason"], context=identity, **common)
        return
    findings = [{"code": code, "text": text} for g in seen["gpus"] for code, text in gpu.health(g)]
    if expected is not None and expected != len(seen["gpus"]):
        text = f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
        findings.insert(0, {"code": "gpu_count", "text": text})
    findings += [{"code": "foreign_process", "text": text} for text in gpu.foreign_processes(seen)]
    fatal = next((f for f in findings if f["code"] in ("ecc", "gpu_lost")), None)
    context = {**identity, "findings": findings, "gpu_table": [_row(g) for g in seen["gpus"]]}
    if fatal:
        yield observation.failed("gpu_health", fatal["code"], fatal["text"], context=context, **common)
    else:
        yield observation.measured("gpu_health", context=context, **common)


def _row(g: dict[str, t.Any]) -> dict[str, t.Any]:
    return {k: g[k] for k in ("index", "uuid", "serial", "name", "bdf", "vbios", "pcie", "ecc", "remapped_rows", "power", "fabric")}


def _cuda(
    variant: str, seen: dict[str, t.Any], identity: dict[str, t.Any], params: dict[str, t.Any], node: Node, simulated: bool
) -> dict[str, t.Any]:
    common: dict[str, t.Any] = {"variant": variant, "simulated": simulated, "context": identity}
    refusal = gpu.refusal(dict(seen, gpus=[dict(g, processes=[], memory_used_mib=0, utilization=0, mig=None) for g in seen["gpus"]]), params["expected_gpus"], "CUDA")
    if refusal and refusal[1] != "gpu_count":
        outcome, code, reason = refusal
        return observation.failed("cuda", code, reason, outcome, **common)
    argv = [node.python(params["python"]), "-c", ASK_CUDA]
    result = node.run(argv, timeout=90, contained=True)
    common["command"] = [argv[0], "-c", "(initialise CUDA)"]
    common["duration_s"] = result.duration_s
    common["simulated"] = simulated or observation.SIMULATED_MARK in result.out
    if result.missing:
        return observation.failed("cuda", "tool_missing", f"{argv[0]}: {result.missing}; set stack_python", **common)
    if result.timed_out:
        return observation.failed("cuda", "cuda_failed", "initialising CUDA did not end within 90 s", "timeout", **common)
    line = next((x for x in result.out.splitlines() if x.startswith("CUDA {")), None)
    try:
        said = json.loads((line or "")[5:])
    except ValueError:
        text = " ".join((result.err or result.out).split())[-200:]
        return observation.failed("cuda", "cuda_failed", f"initialising CUDA ended with status {result.rc}: {text}", **common)
    common["context"] = {**identity, **said}
    problem = cuda_problem(said, len(seen["gpus"]))
    if problem:
        return observation.failed("cuda", "cuda_failed", problem, **common)
    return observation.measured("cuda", **common)


def cuda_problem(said: dict[str, t.Any], gpus: int) -> str | None:
    """What is wrong with CUDA by what the child said of it, or None."""
    if "library" in said:
        return f"the CUDA driver library cannot be loaded: {said['library']}"
    if said.get("init") != 0:
        return f"cuInit failed with status {said.get('init')}"
    if said.get("count_status") != 0 or said.get("count") != gpus:
        return f"CUDA sees {said.get('count')} GPUs, nvidia-smi {gpus}"
    if said.get("torch_error"):
        return f"torch cannot be used: {said['torch_error']}"
    if "torch" in said and not said.get("torch_available"):
        built, driver = said.get("torch_cuda"), said.get("driver_cuda")
        if built is None:
            return f"torch {said['torch']} is built without CUDA"
        if _version(built) > _version(driver or "0"):
            return f"torch {said['torch']} is built for CUDA {built}, newer than the driver's {driver}: update the driver or install an older torch"
        return f"torch {said['torch']} (CUDA {built}) says that CUDA is not available, driver CUDA {driver}"
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,6}", text)[:3])


class Facts:
    """Collects a node's facts; what cannot be read says why and costs nothing else."""

    def __init__(self, params: dict[str, t.Any], node: Node, seen: dict[str, t.Any]) -> None:
        self.params = params
        self.node = node
        self.seen = seen
        self.facts: dict[str, t.Any] = {}

    def collect(self) -> dict[str, t.Any]:
        for part in (
            self.system, self.gpus, self.software, self.python, self.environment, self.kernel, self.firmware, self.limits,
            self.proxies,
        ):  # fmt: skip
            try:
                part()
            except Exception as error:  # one bad item must not lose the others
                self.facts[f"unreadable_{part.__name__}"] = f"{type(error).__name__}: {error}"[:200]
        return {k: v for k, v in self.facts.items() if v is not None}

    def output(self, *argv: str, timeout: float = 15) -> str | None:
        """First words of a tool, None where it is not installed."""
        if not self.node.which(argv[0]):
            return None
        result = self.node.run(list(argv), timeout=timeout)
        if result.timed_out:
            return "unreadable: no answer"
        return (result.out if result.rc == 0 else "") or None

    def system(self) -> None:
        release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', self.node.read("/etc/os-release") or ""))
        self.facts.update(
            hostname=platform.node(),
            os=release.get("PRETTY_NAME"),
            kernel=platform.release(),
            architecture=platform.machine(),
            cpu=next(iter(re.findall(r"(?m)^model name\s*: (.*)$", self._read("/proc/cpuinfo"))), None),
            cpus=os.cpu_count(),
            memory_gib=self._memory(),
        )

    def _memory(self) -> int | None:
        found = re.search(r"MemTotal:\s+(\d+)", self._read("/proc/meminfo"))
        return round(int(found.group(1)) / (1 << 20)) if found else None

    def _read(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8", errors="replace") as source:
                return source.read(1 << 20)
        except OSError:
            return ""

    def gpus(self) -> None:
        gpus = self.seen["gpus"]
        self.facts.update(
            driver=self.seen["driver"],
            cuda_driver=self.seen["cuda"],
            gpu=gpu.model(self.seen) if gpus else None,
            gpu_count=len(gpus),
            gpu_memory_mib=sorted({g["memory_total_mib"] for g in gpus if g["memory_total_mib"]}),
            vbios=sorted({g["vbios"] for g in gpus if g["vbios"]}),
            gpu_persistence=sorted({g["persistence"] for g in gpus if g["persistence"]}),
            gpu_ecc_mode=sorted({g["ecc_mode"] for g in gpus if g["ecc_mode"]}),
            gpu_mig=sorted({g["mig"] for g in gpus if g["mig"]}),
            gpu_compute_mode=sorted({g["compute_mode"] for g in gpus if g["compute_mode"]}),
            gpu_power_limit_w=sorted({g["power"]["limit_w"] for g in gpus if g["power"]["limit_w"]}),
            gpu_max_sm_clock_mhz=sorted({g["clocks"]["max_sm"] for g in gpus if g["clocks"]["max_sm"]}),
            gpu_pcie=sorted({f"gen{g['pcie']['gen_max']} x{g['pcie']['width']}" for g in gpus}),
            gpu_fabric=sorted({str(g["fabric"]["state"]) for g in gpus}),
            gpu_serials=[g["serial"] for g in gpus],
            gpu_processes=gpu.foreign_processes(self.seen) if gpus else [],
        )

    def software(self) -> None:
        ofed = self.output("ofed_info", "-s")
        self.facts["ofed"] = (ofed or "").strip().rstrip(":") or None
        manager = self.output("nv-fabricmanager", "--version")
        self.facts["fabric_manager"] = (manager or "").strip().rsplit(" ", 1)[-1] or None
        if self.node.which("systemctl") and manager:
            state = self.node.run(["systemctl", "is-active", "nvidia-fabricmanager"], timeout=10)
            self.facts["fabric_manager_state"] = state.out.strip() or None
        for name in ("docker", "containerd", "podman", "nvidia-ctk", "enroot", "apptainer"):
            said = self.output(name, "--version")
            found = re.search(r"\d+\.\d+[\w.+~-]*", said or "")
            self.facts[f"container_{name}"] = found.group(0) if found else None
        libraries = sorted(
            {os.path.basename(os.path.realpath(p)) for pattern in ("/usr/lib*/libnccl.so*", "/usr/lib/*/libnccl.so*", "/usr/local/lib/libnccl.so*") for p in glob.glob(self.node.path(pattern))}
        )
        self.facts["nccl_libraries"] = libraries or None
        verbs = sorted({os.path.basename(os.path.realpath(p)) for p in glob.glob(self.node.path("/usr/lib/*/libibverbs.so*"))})
        self.facts["rdma_core"] = verbs or None

    def python(self) -> None:
        argv = [self.node.python(self.params["python"]), "-c", ASK_PYTHON]
        result = self.node.run(argv, timeout=60, contained=True)
        try:
            said = json.loads(result.out.strip().splitlines()[-1])
        except (ValueError, IndexError):
            self.facts["python"] = f"unreadable: {result.missing or ' '.join(result.err.split())[-100:]}"
            return
        packages = dict(p.split("==", 1) for p in said["packages"] if "==" in p)
        for name in self.params["packages"]:
            key = name.lower().replace("_", "-")
            self.facts["python" if key == "python" else f"package_{key}"] = (
                said["python"] if key == "python" else packages.get(key, "absent")
            )
        self.facts["pip_freeze"] = said["packages"]

    def environment(self) -> None:
        login = _login_environment(self.node)
        for pattern in self.params["environment"]:
            for name in sorted(fnmatch.filter(login, pattern)):
                self.facts[f"env_{name}"] = mask(name, login[name])
        self._login = login

    def kernel(self) -> None:
        self.facts["kernel_command_line"] = re.sub(r"\b(root|BOOT_IMAGE|initrd)=\S+ ?", "", self._read("/proc/cmdline")).strip() or None
        for name in self.params["sysctls"]:
            path = "/proc/sys/" + name.replace(".", "/")
            self.facts[f"sysctl_{name}"] = self._read(path).split() and " ".join(self._read(path).split()) or None
        hugepages = re.search(r"HugePages_Total:\s+(\d+)", self._read("/proc/meminfo"))
        self.facts["hugepages"] = int(hugepages.group(1)) if hugepages else None
        thp = re.search(r"\[(\w+)\]", self._read("/sys/kernel/mm/transparent_hugepage/enabled"))
        self.facts["transparent_hugepages"] = thp.group(1) if thp else None
        loaded = {line.split()[0] for line in self._read("/proc/modules").splitlines() if line}
        self.facts["kernel_modules_rdma"] = sorted(loaded & {"nvidia_peermem", "nv_peer_mem", "mlx5_ib", "rdma_rxe", "ib_uverbs", "gdrdrv"})

    def firmware(self) -> None:
        for name in ("bios_vendor", "bios_version", "bios_date", "product_name", "board_name"):
            value = self._read(f"/sys/class/dmi/id/{name}").strip()
            self.facts[f"bios_{name.replace('bios_', '')}"] = value or None
        found: dict[str, set[str]] = {}
        for path in sorted(glob.glob("/sys/class/infiniband/*")):
            board, version = self._read(path + "/board_id").strip(), self._read(path + "/fw_ver").strip()
            found.setdefault(board or "unknown board", set()).add(version)
        for board, versions in found.items():
            self.facts[f"nic_firmware_{board}"] = sorted(versions)

    def limits(self) -> None:
        for name in ("memlock", "nofile", "nproc", "stack"):
            soft, _hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
            self.facts[f"ulimit_{name}"] = "unlimited" if soft == resource.RLIM_INFINITY else soft
        for mount in self.params["disks"]:
            try:
                disk = os.statvfs(self.node.path(mount))
                self.facts[f"free_disk_gib_{mount}"] = round(disk.f_bavail * disk.f_frsize / (1 << 30), 1)
            except OSError as error:
                self.facts[f"free_disk_gib_{mount}"] = f"unreadable: {error.strerror}"
        tracking = self.output("chronyc", "-c", "tracking")
        if tracking and tracking.count(",") >= 4:
            self.facts["clock_offset_s"] = abs(float(tracking.split(",")[4]))
            self.facts["clock_source"] = "chrony"

    def proxies(self) -> None:
        login = getattr(self, "_login", {})
        for name in PROXIES:
            if name in login:
                self.facts[f"proxy_login_{name}"] = mask(name, login[name])
        for unit in ("docker", "containerd"):
            texts = [self.node.read(p.replace(self.node.root.rstrip("/"), "", 1)) or "" for pattern in (f"/etc/systemd/system/{unit}.service.d/*.conf", f"/etc/systemd/system/{unit}.service", f"/usr/lib/systemd/system/{unit}.service") for p in sorted(glob.glob(self.node.path(pattern)))]
            for name, value in re.findall(r"(?im)^\s*Environment=.*?\"?((?:HTTPS?|NO|ALL)_PROXY)=([^\"\n ]*)", "\n".join(texts)):
                self.facts[f"proxy_{unit}_{name.upper()}"] = mask(name, value)


def _login_environment(node: Node) -> dict[str, str]:
    """Variables of a login shell: what a user's job would see."""
    result = node.run(["sh", "-lc", "env -0"], timeout=15)
    text = result.out if result.rc == 0 else ""
    pairs = [item.partition("=") for item in text.split("\0") if "=" in item]
    return {name: value for name, _equals, value in pairs}


def mask(name: str, value: str) -> str:
    """A value that may be shown: no passwords of URLs, no secrets."""
    if SECRETS.search(name):
        return "(masked)"
    return re.sub(r"(://)[^/@\s]*@", r"\1(masked)@", value)[:500]
