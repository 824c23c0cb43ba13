# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of SSH hosts on this machine: namespaces, an overlay root and a real sshd each (README.md)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

from rigs import common

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {"/usr/sbin/sshd": "openssh-server", "ip": "iproute2", "unshare": "util-linux", "sudo": "sudo"}
MOST_HOSTS = 200
SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 200:30:400
MaxSessions 200
SetEnv PATH=/opt/simulated/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Subsystem sftp internal-sftp
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a host differs from the others. `overlays`: (folder of this machine, path of the host it is laid over),
    such as ("/tmp/class", "/sys/class")."""

    python: bool = True
    sudo: bool = True
    state_size: str = ""  # "64k": the state directory is a tmpfs of that size
    state_dir: str = "/var/lib/gpufleet-acceptance"
    overlays: tuple[tuple[str, str], ...] = ()

    def shell(self) -> str:
        """The host.conf that host.sh reads."""
        overlays = " ".join(shlex.quote(f"{source}:{target}") for source, target in self.overlays)
        return (
            f"python={'yes' if self.python else 'no'}\nsudo={'yes' if self.sudo else 'no'}\n"
            f"state_size={shlex.quote(self.state_size)}\nstate_dir={shlex.quote(self.state_dir)}\n"
            f"overlays=({overlays})\n"
        )


class Fleet:
    """Hosts gpu-01 … gpu-NN at 10.231.INSTANCE.11 and up; instances do not see each other."""

    def __init__(self, instance: int = 0) -> None:
        self.instance = instance
        self.state = common.STATE / "fleet" / str(instance)
        self.inventory = self.state / "inventory.yml"
        self.ssh_config = self.state / "ssh_config"
        self.known_hosts = self.state / "known_hosts"
        self.key = self.state / "id_ed25519"
        self.bridge = f"gfr{instance}br"

    @classmethod
    def reserve(cls) -> Fleet:
        return common.reserve(cls(instance) for instance in range(1, 32))

    # Names -------------------------------------------------------------------------------------------------------

    def address(self, host: str) -> str:
        return f"10.231.{self.instance}.{10 + _index(host)}"

    def address6(self, host: str) -> str:
        return f"fd67:6670:{self.instance:x}::{10 + _index(host):x}"

    def folder(self, host: str) -> pathlib.Path:
        """Return the folder that the host keeps over a reboot."""
        return self.state / host

    def plant(self, host: str) -> pathlib.Path:
        """The host's /opt/simulated; what lies in its bin/ comes first in the host's PATH."""
        return self.folder(host) / "simulated"

    def var_lib(self, host: str) -> pathlib.Path:
        return self.folder(host) / "var-lib"

    @property
    def hosts(self) -> list[str]:
        """Hosts that were put up, running or not."""
        return sorted(path.parent.name for path in self.state.glob("gpu-*/host.conf"))

    def netns(self, host: str) -> str:
        return f"gfr{self.instance}-{_index(host):02d}"

    def link(self, host: str) -> str:
        """Our end of the host's cable."""
        return f"gfr{self.instance}v{_index(host):02d}"

    # Up and down -------------------------------------------------------------------------------------------------

    def up(self, count: int, options: dict[str, Options] | None = None) -> list[str]:
        """Exactly `count` hosts; those that already run with the same options stay as they are."""
        common.need_root("fleet")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        common.need_packages(PACKAGES)
        if not 1 <= count <= MOST_HOSTS:
            raise common.RigError(f"{count} hosts: from 1 to {MOST_HOSTS} fit")
        names = [f"gpu-{number:02d}" for number in range(1, count + 1)]
        options = options or {}
        if unknown := set(options) - set(names):
            raise common.RigError(f"options for hosts that are not asked for: {', '.join(sorted(unknown))}")
        with common.locked(self.state / "lock"):
            self._remove([host for host in self.hosts if host not in names])
            stale = [host for host in names if not self._runs(host, options.get(host, Options()))]
            self._stop(stale)
            self._network(names)
            self._files(names, options)
            self._start(stale)
            common.write_inventory(
                self.inventory,
                "fleet",
                {host: {"ansible_host": self.address(host)} for host in names},
                self.key,
                self.known_hosts,
            )
        return names

    def down(self) -> None:
        """End every process, remove every link, namespace and file; nothing left of a killed `up` either."""
        common.need_root("fleet")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        with common.locked(self.state / "lock"):
            self._remove([path.name for path in self.state.glob("gpu-*")])
            if self.bridge in common.links():
                common.ip_batch([f"link del {self.bridge}"])
            for path in self.state.iterdir():
                if path.name not in ("lock", "reserved"):
                    path.unlink()

    def status(self) -> dict[str, str]:
        return {host: "up" if self.init(host) else "down" for host in self.hosts}

    def init(self, host: str) -> int | None:
        """Process 1 of the host, by its number on this machine."""
        return common.recorded(self.folder(host) / "init")

    def _runs(self, host: str, options: Options) -> bool:
        conf = self.folder(host) / "host.conf"
        return self.init(host) is not None and conf.exists() and conf.read_text() == options.shell()

    def _network(self, names: list[str]) -> None:
        there = common.links()
        spaces = self._namespaces()
        net = f"10.231.{self.instance}"
        lines = []
        if self.bridge not in there:
            lines += [
                f"link add {self.bridge} address {common.mac(f'{net}.1')} type bridge",
                common.signed(self.bridge, self.state),
                f"addr add {net}.1/24 dev {self.bridge}",
                f"addr add fd67:6670:{self.instance:x}::1/64 dev {self.bridge} nodad",
                f"link set {self.bridge} up",
            ]
        new = [host for host in names if self.netns(host) not in spaces or self.link(host) not in there]
        for host in new:
            if self.link(host) in there:
                lines.append(f"link del {self.link(host)}")
            if self.netns(host) in spaces:
                lines.append(f"netns del {self.netns(host)}")
            lines.append(f"netns add {self.netns(host)}")
        common.ip_batch(lines)
        common.ip_batch(
            [
                line
                for host in new
                for mac in [common.mac(self.address(host))]
                for line in (
                    f"link add {self.link(host)} type veth peer name eth0 address {mac} netns {self.netns(host)}",
                    f"link set {self.link(host)} master {self.bridge} up",
                )
            ]
        )
        for host in new:
            common.ip_batch(
                [
                    "link set lo up",
                    f"addr add {self.address(host)}/24 dev eth0",
                    f"addr add {self.address6(host)}/64 dev eth0 nodad",
                    "link set eth0 up",
                    f"route add default via {net}.1",
                ],
                self.netns(host),
            )

    def _files(self, names: list[str], options: dict[str, Options]) -> None:
        common.make_key(self.key, "fleet")
        keys = {}
        for host in names:
            folder = self.folder(host)
            for part in ("fs", "var-lib", "simulated/bin"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            keys[host] = common.make_key(folder / "ssh_host_ed25519_key", host)
            (folder / "machine-id").write_text(hashlib.sha256(keys[host].encode()).hexdigest()[:32] + "\n")
            (folder / "host.conf").write_text(options.get(host, Options()).shell())
        addresses = {host: (self.address(host), self.address6(host)) for host in names}
        hosts = "".join(f"{a} {host}\n" for host in names for a in addresses[host])
        (self.state / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{hosts}")
        self.known_hosts.write_text("".join(f"{','.join(addresses[h])},{h} {keys[h]}\n" for h in names))
        (self.state / "sshd_config").write_text(SSHD_CONFIG)

    def _start(self, names: list[str]) -> None:
        started = {}
        for host in names:
            folder = self.folder(host)
            with open(folder / "log", "ab") as log:
                started[host] = subprocess.Popen(
                    [
                        "ip",
                        "netns",
                        "exec",
                        self.netns(host),
                        "unshare",
                        "--uts",
                        "--mount",
                        "--ipc",
                        "--pid",
                        "--fork",
                        "--kill-child=KILL",
                        HERE / "host.sh",
                        self.state,
                        host,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            common.record(folder / "launcher", started[host].pid)
        until = time.monotonic() + 60
        for host in names:
            while not common.answers_ssh(self.address(host)):
                if started[host].poll() is not None or time.monotonic() > until:
                    tail = (self.folder(host) / "log").read_text(errors="replace")[-800:]
                    raise common.RigError(f"{host} did not come up: {tail}")
                time.sleep(0.05)

    def _stop(self, names: list[str]) -> None:
        """Processes end with process 1 of their namespace, and mounts with the last process."""
        files = [self.folder(host) / file for host in names for file in ("launcher", "init")]
        common.end([path for path in files if path.exists()])

    def _remove(self, names: list[str]) -> None:
        self._stop(names)
        there = common.links()
        # Our ends of the cables first: a namespace goes only when its last process is gone.
        common.ip_batch([f"link del {self.link(host)}" for host in names if self.link(host) in there])
        spaces = self._namespaces()
        common.ip_batch([f"netns del {self.netns(host)}" for host in names if self.netns(host) in spaces])
        for host in names:
            shutil.rmtree(self.folder(host))

    def _namespaces(self) -> set[str]:
        return {space["name"] for space in json.loads(run_json("ip", "-j", "netns", "list"))}

    # Use ---------------------------------------------------------------------------------------------------------

    def ssh(self, host: str, *argv: str) -> list[str]:
        """The argument list that runs a command on the host over SSH."""
        return ["ssh", "-F", str(self.ssh_config), host, "--", shlex.join(argv)]

    def inside(self, host: str, *argv: str) -> str:
        """Output of a command run in the host's namespaces without SSH: works when its network or sshd does not."""
        return common.run(
            "nsenter", "-t", self._init(host), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--",
            "env", "-i", "PATH=/opt/simulated/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *argv,
        )  # fmt: skip

    def find(self, host: str, *words: str) -> list[str]:
        """Return what `find` lists on the host; asked again where something went while it looked, which it calls an error."""
        for _again in range(20):
            try:
                return self.inside(host, "find", *words).splitlines()
            except common.RigError as error:
                if "No such file or directory" not in str(error):
                    raise
        raise common.RigError(f"{host}: find {' '.join(words)}: something of it goes each time")

    def processes(self, host: str) -> dict[int, list[str]]:
        """Every process of the host but process 1: number on this machine -> its command line."""
        init = self._init(host)
        space = os.readlink(f"/proc/{init}/ns/pid")
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != init and os.readlink(entry / "ns/pid") == space:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0")
                    if words:  # a zombie has none
                        found[int(entry.name)] = words.split("\0")
        return found

    # Faults ------------------------------------------------------------------------------------------------------

    def kill_sshd(self, host: str) -> None:
        """SIGKILL to the host's sshd and to those of its open connections; all else on the host lives on."""
        for pid in self.processes(host):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == "/usr/sbin/sshd":
                    os.kill(pid, signal.SIGKILL)

    def start_sshd(self, host: str) -> None:
        self.inside(host, "/usr/sbin/sshd")

    def cut(self, host: str) -> None:
        """Pull the cable: nothing is refused, nothing arrives."""
        common.ip_batch([f"link set {self.link(host)} down"])

    def heal(self, host: str) -> None:
        common.ip_batch([f"link set {self.link(host)} up"])

    def freeze(self, host: str) -> None:
        """The host hangs: it keeps its connections and does nothing."""
        self._signal_all(host, signal.SIGSTOP)

    def thaw(self, host: str) -> None:
        self._signal_all(host, signal.SIGCONT)

    def _signal_all(self, host: str, number: int) -> None:
        done: set[int] = set()
        while new := set(self.processes(host)) - done:  # again, for what was born meanwhile
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            done |= new

    def power_off(self, host: str) -> None:
        """Every process dies at once, memory and /tmp are gone; /var/lib stays."""
        with common.locked(self.state / "lock"):
            self._stop([host])

    def power_on(self, host: str) -> None:
        """Start it again, with a new boot_id."""
        with common.locked(self.state / "lock"):
            if not self.init(host):
                self._network(self.hosts)
                self._start([host])

    def _init(self, host: str) -> int:
        init = self.init(host)
        if init is None:
            raise common.RigError(f"{host} is not up")
        return init


def _index(host: str) -> int:
    return int(host.rsplit("-", 1)[1])


def run_json(*argv: str) -> str:
    """`ip -j` prints nothing for an empty list."""
    return common.run(*argv) or "[]"


def main() -> int:
    parser = argparse.ArgumentParser(description="A fleet of SSH hosts on this machine.")
    parser.add_argument("--instance", type=int, default=0, help="several fleets side by side, from 0 (default) to 31")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="exactly N hosts")
    up.add_argument("count", type=int, metavar="N")
    up.add_argument("--no-python", action="append", default=[], metavar="HOST", help="a host without python3")
    up.add_argument("--no-sudo", action="append", default=[], metavar="HOST", help="a host without sudo")
    up.add_argument("--small-state", action="append", default=[], metavar="HOST", help="state directory of 16 KiB")
    commands.add_parser("down", help="remove the fleet")
    commands.add_parser("status", help="one line per host")
    arguments = parser.parse_args()
    fleet = Fleet(arguments.instance)
    began = time.monotonic()
    try:
        if arguments.command == "up":
            special = {
                host: Options(
                    python=host not in arguments.no_python,
                    sudo=host not in arguments.no_sudo,
                    state_size="16k" if host in arguments.small_state else "",
                )
                for host in (*arguments.no_python, *arguments.no_sudo, *arguments.small_state)
            }
            fleet.up(arguments.count, special)
            print(f"{arguments.count} hosts in {time.monotonic() - began:.1f} s: {fleet.inventory}")
        elif arguments.command == "down":
            fleet.down()
            print(f"down in {time.monotonic() - began:.1f} s")
        else:
            status = fleet.status()
            for host, state in status.items():
                print(host, fleet.address(host), state)
            return 0 if status and set(status.values()) == {"up"} else 1
    except common.RigError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 1
    return 0
