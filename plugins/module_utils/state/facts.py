# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a node, which must be the same on every node of a cluster: one flat dict, name of the fact -> text, number or list.

What is not installed is not there; what cannot be read is `unreadable: why`. Files are read rather than tools started:
each process here is started on every node of a fleet.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import platform
import pwd
import re
import resource
import shlex
import shutil
import tempfile
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import clock, settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, hypervisor, installed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

Facts = t.Dict[str, t.Any]

# Asks the node's Python what it is and has: one start, nothing imported that could take long. What each kind of accelerators
# asks comes last and on a line of its own, since loading a broken library can end the process.
ASK_PYTHON = """
import json, platform, sys
found, urls = set(), {}
try:
    from importlib.metadata import distributions
    for d in distributions():
        name = (d.metadata["Name"] or "").lower().replace("_", "-")
        found.add(name + "==" + (d.version or "?"))
        origin = d.read_text("direct_url.json")
        if origin:
            urls[name] = json.loads(origin).get("url", "")
except Exception as error:
    found.add("unreadable: %s" % error)
print(json.dumps({"python": platform.python_version(), "packages": sorted(found), "urls": urls}), flush=True)
"""

LOGIN_SHELLS = ("bash", "sh", "dash", "ksh", "zsh")
PROXY = re.compile(r"(?i)^(?:https?|ftp|no|all)_proxy$")
SECRET = re.compile(r"(?i)token|secret|passw|credential|api_?key|access_?key|private_?key")
# Words of the kernel's command line that name this machine's disk or image.
OWN_WORDS = re.compile(r"^(?:BOOT_IMAGE|root|resume|initrd|ip|rd\.(?:luks|lvm|md)[.\w]*|hostname|systemd\.machine_id)=")
RDMA_MODULES = (
    *(module for kind in registry.KINDS.values() for module in kind.modules),
    "mlx5_ib",
    "rdma_rxe",
    "ib_uverbs",
    "irdma",
    "bnxt_re",
    "efa",
)


def collect(
    params: dict[str, t.Any], node: Node, snapshot: dict[str, t.Any], links: base.Links | None, domain: base.LinkDomain | None = None
) -> Facts:
    """Return the facts of a node. `snapshot` is gpu.snapshot's dict, `links` and `domain` its accelerator's."""
    login: dict[str, str] = {}

    def environment() -> Facts:
        login.update(login_environment(node))
        return _environment(login, params["environment"])

    parts: dict[str, t.Callable[[], Facts]] = {
        "system": lambda: _system(node),
        "firmware": lambda: _firmware(node),
        "gpu": lambda: _gpus(node, snapshot, links, params["gpu_count"]),
        "software": lambda: _software(node),
        "python": lambda: _python(node, params),
        "environment": environment,
        "configuration": lambda: _configuration(node, login),
        "proxies": lambda: _proxies(node, login),
        "kernel": lambda: _kernel(node, params["sysctls"]),
        "limits": lambda: _limits(node, params["disks"]),
        "clock": lambda: _clock(node),
        "machine": lambda: settings.facts(node),
        "link_domain": lambda: domain.facts if domain else {},
    }
    facts: Facts = {}
    for name, part in parts.items():
        try:
            facts.update(part())
        except Exception as error:  # one bad item must not lose the others
            facts[name] = f"unreadable: {type(error).__name__}: {error}"[:200]
    return {name: facts[name] for name in sorted(facts) if facts[name] is not None}


def mask(name: str, value: str) -> str:
    """Return a value that may be shown: without credentials of URLs, and hidden if the name is that of a secret."""
    if SECRET.search(name):
        return "(masked)"
    if PROXY.match(name):
        return re.sub(r"^(\w+://)?[^\s,]*@", r"\1(masked)@", value)[:500]
    return re.sub(r"://[^/@\s]*@", "://(masked)@", value)[:500]


# The machine -----------------------------------------------------------------------------------------------------


def _system(node: Node) -> Facts:
    release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', node.read("/etc/os-release") or ""))
    cpu = re.search(r"(?m)^(?:model name|CPU part)\s*: (.*)$", installed.read(node, "/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s+(\d+)", installed.read(node, "/proc/meminfo"))
    governors = {installed.read(node, p) for p in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    return {
        "hostname": _hostname(node),
        "os": release.get("PRETTY_NAME"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": cpu.group(1) if cpu else None,
        "cpus": os.cpu_count(),
        "cpu_governor": " ".join(sorted(governors)) or None,
        "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")) or None,
        "memory_gib": round(int(memory.group(1)) / (1 << 20)) if memory else None,
    }


def _hostname(node: Node) -> str | None:
    """Return the name of the machine. A container has a name of its own, another one in each run."""
    if not container.is_inside():
        return platform.node()
    return (node.root != "/" and node.read("/etc/hostname")) or os.environ.get("GPUFLEET_NODE") or None


def _firmware(node: Node) -> Facts:
    facts: Facts = {
        name: installed.read(node, f"/sys/class/dmi/id/{file}") or None
        for name, file in (
            ("machine_vendor", "sys_vendor"),
            ("machine_product", "product_name"),
            ("machine_board", "board_name"),
            ("bios_vendor", "bios_vendor"),
            ("bios_version", "bios_version"),
            ("bios_date", "bios_date"),
        )
    }
    of_dmi = hypervisor.by_dmi(str(facts["machine_vendor"] or ""), str(facts["machine_product"] or ""))
    facts["machine_virtual"] = "yes" if of_dmi or hypervisor.by_cpuinfo(installed.read(node, "/proc/cpuinfo")) else None
    versions: dict[str, list[str]] = {}
    for path in sorted(glob.glob("/sys/class/infiniband/*")):
        board = installed.read(node, path + "/board_id") or installed.read(node, path + "/hca_type") or "unknown"
        versions.setdefault(board, []).append(installed.read(node, path + "/fw_ver"))
    for board, firmware in versions.items():
        facts[f"nic_count_{board}"] = len(firmware)
        facts[f"nic_firmware_{board}"] = sorted(set(firmware))
    return facts


def _gpus(node: Node, snapshot: dict[str, t.Any], links: base.Links | None, expected: int | None) -> Facts:
    gpus = snapshot["gpus"]
    if not gpus:
        none = snapshot["reason_code"] == "no_gpu" or expected == 0
        return {"driver": snapshot["driver"], "gpu_count": 0 if none else f"unreadable: {snapshot['reason']}"}

    return {
        **gpu.accelerator(node, snapshot).facts(snapshot, links),
        "gpu": gpu.model(snapshot),
        "gpu_count": len(gpus),
        "gpu_serials": [g["serial"] for g in gpus],
        "gpu_processes": gpu.foreign_processes(snapshot),
    }


# Software --------------------------------------------------------------------------------------------------------


def _software(node: Node) -> Facts:
    facts: Facts = {
        "ofed": (installed.output(node, "ofed_info", "-s") or "").rstrip(":") or None,
        "libibverbs": installed.libraries(node, "libibverbs.so.1.*"),  # 1.14.44.0 is that of rdma-core 44
    }
    programs = {f"container_{name}": name for name in ("docker", "containerd", "podman", "crio", "enroot", "apptainer")}
    for kind in registry.KINDS.values():
        facts.update(kind.software(node))
        programs.update(kind.programs)
    return {**facts, **_versions(node, programs)}


def _versions(node: Node, programs: dict[str, str]) -> Facts:
    """Return what programs say of their versions, {fact: version}."""
    env, folder = {}, None
    if os.geteuid() != 0 and node.which("podman"):
        # Without root podman makes folders for its work in /tmp even to print its version, and leaves them there.
        folder = tempfile.mkdtemp(prefix="gpufleet-")
        env = {"XDG_RUNTIME_DIR": folder}
    try:
        return {fact: installed.version(installed.output(node, program, "--version", env=env)) for fact, program in programs.items()}
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _python(node: Node, params: dict[str, t.Any]) -> Facts:
    argv = [node.python(params["python"]), "-c", ASK_PYTHON + "".join(kind.python_script for kind in registry.KINDS.values())]
    result = node.run(argv, timeout=60, contained=True)
    lines = result.out.splitlines()
    try:
        answer = json.loads(next(line for line in lines if line.startswith("{")))
        python, packages, urls = answer["python"], answer["packages"], answer.get("urls") or {}
        have = dict(str(entry).split("==", 1) for entry in packages if "==" in str(entry))
    except (ValueError, StopIteration, KeyError, TypeError):
        why = f"no answer in {result.ended_after(60)}" if result.timed_out else result.missing or " ".join(result.err.split())[-100:]
        return {"python": f"unreadable: {argv[0]}: {why}"}
    facts: Facts = {}
    for name in params["packages"]:
        key = name.lower().replace("_", "-")
        if key == "python":
            facts["python"] = python
        else:
            facts[f"package_{key}"] = have.get(key, "absent")
    for kind in registry.KINDS.values():
        facts.update(kind.python_facts(have, lines))
    facts["pip_freeze"] = [
        f"{entry} @ {mask('', urls[entry.split('==')[0]])}" if entry.split("==")[0] in urls else entry
        for entry in packages
    ]
    return facts


# Environment -----------------------------------------------------------------------------------------------------


def login_environment(node: Node) -> dict[str, str]:
    """Return the variables that a login of our user gets. If the host's file system is only mounted, nobody can log in: then return those
    that its files set plainly."""
    variables: dict[str, str] = {}
    files = ["/etc/environment"]
    if node.root == "/":
        try:
            shell = pwd.getpwuid(os.geteuid()).pw_shell
        except KeyError:  # a container may run as any number
            shell = ""
        shell = shell if os.path.basename(shell) in LOGIN_SHELLS and node.which(shell) else "/bin/sh"
        # The output of a profile comes before the mark.
        result = node.run([shell, "-l", "-c", r"printf '\000login\000'; exec env -0"], timeout=20)
        pairs = result.out.partition("\0login\0")[2].split("\0")
        variables = {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}
        if not variables:
            raise OSError(f"{shell} -l gave no environment: {' '.join(result.err.split())[:100] or result.rc}")
    else:
        files += _host_files(node, "/etc/profile.d/*.sh")
    for path in files:
        for name, value in _assignments(node.read(path) or ""):
            variables.setdefault(name, value)
    return variables


def _host_files(node: Node, pattern: str) -> list[str]:
    """Paths on the host that match."""
    root = "" if node.root == "/" else node.root.rstrip("/")
    return [path[len(root) :] for path in sorted(glob.glob(node.path(pattern)))]


def _assignments(text: str) -> t.Iterator[tuple[str, str]]:
    """`NAME=value` and `export NAME="value"` lines."""
    for line in text.splitlines():
        match = re.match(r"\s*(?:export\s+)?(\w+)=(.*)$", line)
        if match:
            yield match.group(1), match.group(2).strip().strip("\"'")


def _environment(login: dict[str, str], patterns: list[str]) -> Facts:
    names = {name for pattern in patterns for name in login if fnmatch.fnmatchcase(name, pattern)}
    return {f"env_{name}": mask(name, login[name]) for name in names}


def _configuration(node: Node, login: dict[str, str]) -> Facts:
    """Return the settings in configuration files of collective libraries, each as a fact of its own like those of the environment."""
    settings = [kind.configuration(node, login) for kind in registry.KINDS.values()]
    return {f"conf_{name}": mask(name, value) for pairs in settings for name, value in pairs.items()}


def _proxies(node: Node, login: dict[str, str]) -> Facts:
    """Proxy settings of a login and of the container engines' units, and the state of the units of each kind of
    accelerators, which the same question to systemd answers."""
    facts: Facts = {f"proxy_login_{name}": mask(name, value) for name, value in login.items() if PROXY.match(name)}
    engines = ("docker.service", "containerd.service")
    kind_units = {fact: unit for kind in registry.KINDS.values() for fact, unit in kind.units.items()}
    states = _units(node, (*engines, *kind_units.values()))
    for unit in engines:
        for name, value in states[unit]["environment"].items():
            if PROXY.match(name):
                facts[f"proxy_{unit.partition('.')[0]}_{name.upper()}"] = mask(name, value)
    try:
        daemon = json.loads(node.read("/etc/docker/daemon.json") or "{}").get("proxies") or {}
        for name, value in daemon.items():
            name = name.replace("-", "_")
            if PROXY.match(name):
                facts[f"proxy_docker_{name.upper()}"] = mask(name, str(value))
    except (ValueError, AttributeError) as error:
        facts["proxy_docker"] = f"unreadable: /etc/docker/daemon.json: {error}"
    return {**facts, **{fact: states[unit]["state"] for fact, unit in kind_units.items()}}


def _units(node: Node, units: tuple[str, ...]) -> dict[str, dict[str, t.Any]]:
    """{unit: {"state", "environment"}} as systemd has it, else as the unit's files say."""
    states: dict[str, dict[str, t.Any]] = {unit: {"state": None, "environment": {}} for unit in units}
    if node.root == "/" and os.path.isdir("/run/systemd/system") and node.which("systemctl"):
        names = ["Id", "LoadState", "ActiveState", "Environment", "EnvironmentFiles"]
        result = node.run(["systemctl", "show", "-p", ",".join(names), *units], timeout=15)
        for block in result.out.split("\n\n") if result.ok else []:
            properties = dict(line.partition("=")[::2] for line in block.splitlines())
            if properties.get("Id") in states and properties.get("LoadState") == "loaded":
                files = re.findall(r"(/\S+) \(ignore_errors", properties.get("EnvironmentFiles", ""))
                states[properties["Id"]] = {
                    "state": properties.get("ActiveState"),
                    "environment": _unit_environment(node, [properties.get("Environment", "")], files),
                }
        if result.ok:
            return states
    for unit in units:
        texts = []
        for folder in ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"):
            for path in [f"{folder}/{unit}", *_host_files(node, f"{folder}/{unit}.d/*.conf")]:
                texts.append(node.read(path) or "")
        words = re.findall(r"(?m)^\s*Environment=(.*)$", "\n".join(texts))
        files = re.findall(r"(?m)^\s*EnvironmentFile=-?(\S+)", "\n".join(texts))
        states[unit]["environment"] = _unit_environment(node, words, files)
    return states


def _unit_environment(node: Node, settings: list[str], files: list[str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for setting in settings:
        try:
            words = shlex.split(setting)
        except ValueError:
            words = setting.split()
        environment.update(word.partition("=")[::2] for word in words if "=" in word)
    for path in files:
        environment.update(_assignments(node.read(path) or ""))
    return environment


# Kernel, limits, clock -------------------------------------------------------------------------------------------


def _kernel(node: Node, sysctls: list[str]) -> Facts:
    words = [word for word in installed.read(node, "/proc/cmdline").split() if not OWN_WORDS.match(word)]
    facts: Facts = {
        "kernel_command_line": " ".join(map(_masked_word, words)) or None,
        "kernel_modules_rdma": [name for name in RDMA_MODULES if os.path.isdir(f"/sys/module/{name}")],
    }
    for name in sysctls:
        path = "/proc/sys/" + name.replace(".", "/")
        missing = "unreadable: no permission" if os.path.exists(path) else "absent"
        facts[f"sysctl_{name}"] = " ".join(installed.read(node, path).split()) or missing
    meminfo = dict(re.findall(r"(?m)^(\w+):\s+(\d+)", installed.read(node, "/proc/meminfo")))
    facts["hugepages"] = int(meminfo["HugePages_Total"]) if "HugePages_Total" in meminfo else None
    facts["hugepage_size_kib"] = int(meminfo["Hugepagesize"]) if "Hugepagesize" in meminfo else None
    chosen = re.search(r"\[(\w+)\]", installed.read(node, "/sys/kernel/mm/transparent_hugepage/enabled"))
    facts["transparent_hugepages"] = chosen.group(1) if chosen else None
    return facts


def _masked_word(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name}{equals}{mask(name, value)}" if equals else word


def _limits(node: Node, disks: list[str]) -> Facts:
    facts: Facts = {}
    for name in ("memlock", "nofile", "nproc", "stack", "core"):
        soft, _hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        facts[f"ulimit_{name}"] = "unlimited" if soft == resource.RLIM_INFINITY else soft
    for mount in disks:
        try:
            disk = os.statvfs(node.path(mount))
            facts[f"free_disk_gib_{mount}"] = round(disk.f_bavail * disk.f_frsize / (1 << 30), 1)
        except OSError as error:
            facts[f"free_disk_gib_{mount}"] = f"unreadable: {error.strerror}"
    return facts


def _clock(node: Node) -> Facts:
    """Return the clock's offset in seconds, from the program that keeps the time, and whether the kernel calls its clock synchronised."""
    kernel, keeper = clock.of_kernel(), clock.of_keeper(node)
    facts: Facts = {"clock_synchronised": None if kernel is None else "yes" if kernel.synchronised else "no"}
    if keeper:
        facts.update(clock_source=keeper[0], clock_offset_s=keeper[1])
    return facts
