# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with soft-RoCE devices, a real cpufreq governor and a real sshd, under software emulation (README.md)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import time
import typing as t

from rigs import common

HERE = pathlib.Path(__file__).resolve().parent
# Of the guests themselves and their image.
IMAGE_PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "/usr/share/seabios/bios-256k.bin": "seabios",
    "/bin/busybox": "busybox-static",
    "cpio": "cpio",
    "modprobe": "kmod",
    "iasl": "acpica-tools",
}
PACKAGES = {
    **IMAGE_PACKAGES,
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "/usr/sbin/sshd": "openssh-server",
    "ib_write_bw": "perftest",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so": "ibverbs-providers",
    "ibv_devinfo": "ibverbs-utils",
    "rdma-ndd": "rdma-core",
}
RAILS = 2
MOST_GUESTS = 16
GOVERNORS = ("powersave", "schedutil", "ondemand", "performance")
BOOT_LIMIT_S = 300.0
# The light algorithms: emulated, a post-quantum key exchange takes seconds.
SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
KexAlgorithms curve25519-sha256
Ciphers aes128-ctr,aes128-gcm@openssh.com,chacha20-poly1305@openssh.com
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a guest; `governor` "" takes another one for each guest in turn."""

    governor: str = ""
    cpus: int = 1  # 1, 2 or 4
    memory_mib: int = 320


def built_image() -> pathlib.Path:
    """Return the folder of kernel and initrd, built once per version of build.sh."""
    found = common.CACHE / "rdma" / hashlib.sha256((HERE / "build.sh").read_bytes()).hexdigest()[:16]
    with common.locked(found.with_name("lock")):
        if not found.exists():
            new = found.with_name("new")
            shutil.rmtree(new, ignore_errors=True)
            common.run(HERE / "build.sh", new)
            new.rename(found)
    return found


class Guests:
    """Guests rdma-01 … rdma-NN at 10.232.0.11 and up; rail R is device mlx5_R at 10.232.(R+1).11 and up."""

    state = common.STATE / "rdma"
    bridge = "gfxbr"

    def __init__(self) -> None:
        self.inventory = self.state / "inventory.yml"
        self.ssh_config = self.state / "ssh_config"
        self.known_hosts = self.state / "known_hosts"
        self.key = self.state / "id_ed25519"

    @contextlib.contextmanager
    def reserved(self) -> t.Iterator[Guests]:
        """Wait until nobody else holds the guests and hold them. For tests, which may run side by side."""
        self.state.mkdir(parents=True, exist_ok=True)
        with open(self.state / "reserved", "a", encoding="ascii") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self

    @contextlib.contextmanager
    def lent(self, count: int, options: dict[str, Options]) -> t.Iterator[Guests]:
        """So many guests, fresh, for whoever holds them; taken down at the end."""
        with self.reserved():
            self.down()
            try:
                self.up(count, options)
                yield self
            finally:
                self.down()

    # Names -------------------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> list[str]:
        return sorted(path.parent.name for path in self.state.glob("rdma-*/command"))

    def folder(self, guest: str) -> pathlib.Path:
        return self.state / guest

    def address(self, guest: str) -> str:
        """Management address."""
        return f"10.232.0.{10 + _index(guest)}"

    def rail_address(self, guest: str, rail: int) -> str:
        return f"10.232.{rail + 1}.{10 + _index(guest)}"

    def tap(self, guest: str, rail: int | None = None) -> str:
        """Our end of a cable of the guest: the management link, or a rail."""
        return f"gfx{_index(guest):02d}" + ("m" if rail is None else f"r{rail}")

    def _detour(self, guest: str, rail: int) -> str:
        """Prefix of the links a slowed rail is led through."""
        return self.tap(guest, rail) + "s"

    def _bridge(self, rail: int | None) -> str:
        return self.bridge if rail is None else f"gfxr{rail}br"

    # Up and down -------------------------------------------------------------------------------------------------

    def up(self, count: int, options: dict[str, Options] | None = None) -> dict[str, float]:
        """Exactly `count` guests; those that run stay as they are. Returns the seconds each one took to its sshd."""
        common.need_root("rdma")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        if not os.path.exists("/usr/bin/apt-get"):
            raise common.RigError("the rdma rig takes its kernel from Debian packages: it needs a Debian machine")
        common.need_packages(PACKAGES)
        if not 1 <= count <= MOST_GUESTS:
            raise common.RigError(f"{count} guests: from 1 to {MOST_GUESTS} fit")
        names = [f"rdma-{number:02d}" for number in range(1, count + 1)]
        options = options or {}
        with common.locked(self.state / "lock"):
            image = built_image()
            self._remove([guest for guest in self.hosts if guest not in names])
            self._network(names)
            self._files(names)
            commands = {guest: self._command(guest, options.get(guest, Options()), image) for guest in names}
            stale = [guest for guest in names if not self._runs(guest, commands[guest])]
            self._stop(stale)
            for guest in stale:
                (self.folder(guest) / "command").write_text(shlex.join(commands[guest]) + "\n")
            return self._start(stale)

    def down(self) -> None:
        """End every guest, remove every link and file; nothing left of a killed `up` either."""
        common.need_root("rdma")
        common.refuse_what_is_not_ours(self.bridge, self.state)
        with common.locked(self.state / "lock"):
            self._remove([path.name for path in self.state.glob("rdma-*")])
            there = common.links()
            bridges = [self._bridge(rail) for rail in (None, *range(RAILS))]
            common.ip_batch([f"link del {bridge}" for bridge in bridges if bridge in there])
            for path in self.state.iterdir():
                if path.name not in ("lock", "reserved"):
                    path.unlink()

    def status(self) -> dict[str, str]:
        return {guest: "up" if self.pid(guest) else "down" for guest in self.hosts}

    def pid(self, guest: str) -> int | None:
        return common.recorded(self.folder(guest) / "pid")

    def _runs(self, guest: str, command: list[str]) -> bool:
        file = self.folder(guest) / "command"
        return self.pid(guest) is not None and file.exists() and shlex.split(file.read_text()) == command

    def _network(self, names: list[str]) -> None:
        there = common.links()
        lines = []
        for rail in (None, *range(RAILS)):
            bridge = self._bridge(rail)
            if bridge not in there:
                lines += [f"link add {bridge} type bridge", common.signed(bridge, self.state)]
                if rail is None:
                    lines.append(f"addr add 10.232.0.1/24 dev {bridge}")
                lines.append(f"link set {bridge} up")
            for guest in names:
                tap = self.tap(guest, rail)
                if tap not in there:
                    lines.append(f"tuntap add {tap} mode tap")
                    if rail is not None:
                        lines.append(f"link set {tap} mtu 4200")
                    lines.append(f"link set {tap} master {bridge} up")
        common.ip_batch(lines)

    def _files(self, names: list[str]) -> None:
        common.make_key(self.key, "rdma")
        keys = {}
        hosts = "127.0.0.1 localhost\n"
        for guest in names:
            folder = self.folder(guest)
            folder.mkdir(exist_ok=True)
            keys[guest] = common.make_key(folder / "ssh_host_ed25519_key", guest)
            (folder / "machine-id").write_text(hashlib.sha256(keys[guest].encode()).hexdigest()[:32] + "\n")
            if not (folder / "disk").exists():
                new = folder / "disk.new"
                new.unlink(missing_ok=True)
                common.run("mkfs.ext4", "-q", "-O", "^resize_inode", new, "32M")
                new.rename(folder / "disk")
            hosts += f"{self.address(guest)} {guest}\n"
            hosts += "".join(f"{self.rail_address(guest, rail)} {guest}-rail{rail}\n" for rail in range(RAILS))
        (self.state / "hosts").write_text(hosts)
        self.known_hosts.write_text("".join(f"{self.address(g)},{g} {keys[g]}\n" for g in names))
        (self.state / "sshd_config").write_text(SSHD_CONFIG)
        shutil.copy(HERE / "guest.sh", self.state / "guest.sh")
        common.write_inventory(
            self.inventory,
            "rdma",
            {
                guest: {
                    "ansible_host": self.address(guest),
                    "rail_addresses": [self.rail_address(guest, rail) for rail in range(RAILS)],
                }
                for guest in names
            },
            self.key,
            self.known_hosts,
        )

    def _command(self, guest: str, options: Options, image: pathlib.Path) -> list[str]:
        number = _index(guest)
        folder = self.folder(guest)
        governor = options.governor or GOVERNORS[(number - 1) % len(GOVERNORS)]
        rails = ",".join(f"{self.rail_address(guest, rail)}/24" for rail in range(RAILS))
        words = [
            # On a busy machine the emulated timer may seem not to work for a moment, of which the kernel dies at boot.
            "console=ttyS0 quiet panic=-1 mitigations=off nokaslr net.ifnames=0 no_timer_check",
            f"rig.init={self.state}/guest.sh rig.state={self.state} rig.name={guest} rig.governor={governor}",
            f"rig.address={self.address(guest)}/24 rig.rails={rails}",
        ]
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,vendor=GenuineIntel,family=6,model=85",
        ]
        command += ["-smp", str(options.cpus), "-m", str(options.memory_mib)]
        command += ["-nographic", "-nodefaults", "-no-user-config", "-no-reboot"]
        command += ["-serial", f"file:{folder}/console", "-monitor", f"unix:{folder}/monitor,server,nowait"]
        command += ["-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initrd.img", "-append", " ".join(words)]
        command += ["-virtfs", "local,path=/,mount_tag=outside,security_model=none,readonly=on,multidevs=remap"]
        command += ["-drive", f"file={folder}/disk,format=raw,if=virtio", "-device", "virtio-rng-pci"]
        # The table's register is the scratch register of a second serial port.
        command += ["-acpitable", f"file={image}/cpufreq-{options.cpus}.aml"]
        command += ["-chardev", "null,id=com2", "-device", "isa-serial,chardev=com2,index=1"]
        for rail in (None, *range(RAILS)):
            link = "m" if rail is None else f"r{rail}"
            mac = f"52:54:00:e8:{0 if rail is None else rail + 1:02x}:{number:02x}"
            speed = "" if rail is None else ",speed=100000,duplex=full"  # what soft-RoCE gives as its rate
            command += ["-netdev", f"tap,id={link},ifname={self.tap(guest, rail)},script=no,downscript=no"]
            command += ["-device", f"virtio-net-pci,id=nic-{link},netdev={link},mac={mac}{speed},romfile="]
        return command

    def _start(self, names: list[str]) -> dict[str, float]:
        began = {}
        for guest in names:
            folder = self.folder(guest)
            command = shlex.split((folder / "command").read_text())
            with open(folder / "log", "ab") as log:
                started = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            common.record(folder / "pid", started.pid)
            _prefer(started.pid)
            began[guest] = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(began):
            for guest in sorted(set(began) - set(took)):
                if common.answers_ssh(self.address(guest)):
                    took[guest] = time.monotonic() - began[guest]
                elif self.pid(guest) is None or time.monotonic() - began[guest] > BOOT_LIMIT_S:
                    ends = [
                        (self.folder(guest) / file).read_text(errors="replace")[-500:] for file in ("log", "console")
                    ]
                    raise common.RigError(f"{guest} did not come up: {' '.join(ends)}")
            time.sleep(0.2)
        return took

    def _stop(self, names: list[str]) -> None:
        common.end([self.folder(guest) / "pid" for guest in names if (self.folder(guest) / "pid").exists()])

    def _remove(self, names: list[str]) -> None:
        self._stop(names)
        there = common.links()
        links = []
        for guest in names:
            links.append(self.tap(guest))
            for rail in range(RAILS):
                detour = self._detour(guest, rail)
                links += [self.tap(guest, rail), f"{detour}i", f"{detour}b"]
        common.ip_batch([f"link del {link}" for link in links if link in there])
        for guest in names:
            shutil.rmtree(self.folder(guest))

    # Use ---------------------------------------------------------------------------------------------------------

    def ssh(self, guest: str, *argv: str) -> list[str]:
        """The argument list that runs a command on the guest."""
        return ["ssh", "-F", str(self.ssh_config), guest, "--", shlex.join(argv)]

    def inside(self, guest: str, *argv: str) -> str:
        """Output of a command on the guest that must succeed."""
        return common.run(*self.ssh(guest, *argv), timeout=120)

    def governors(self, guest: str) -> list[str]:
        """One per CPU."""
        return self.inside(guest, "sh", "-c", "cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor").split()

    def set_governor(self, guest: str, governor: str, cpu: int = 0) -> None:
        """Set the governor as another user of the machine would."""
        path = f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
        self.inside(guest, "sh", "-c", f"echo {shlex.quote(governor)} > {path}")

    # Faults ------------------------------------------------------------------------------------------------------

    def slow(self, guest: str, rail: int, rate: str = "20mbit") -> None:
        """Limit the link of a rail, both ways, until `fast`.

        A queue shapes what leaves a link, so the guest's cable is led through a bridge of its own, and the veth pair
        from there to the rail shapes what the guest sends.
        """
        self.fast(guest, rail)
        tap, detour = self.tap(guest, rail), self._detour(guest, rail)
        common.ip_batch(
            [
                f"link add {detour}b type bridge",
                f"link add {detour}i mtu 4200 type veth peer name {detour}o mtu 4200",
                f"link set {detour}i master {detour}b up",
                f"link set {detour}o master {self._bridge(rail)} up",
                f"link set {tap} master {detour}b",
                f"link set {detour}b up",
            ]
        )
        for link in (tap, f"{detour}i"):
            common.run(
                "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"
            )

    def fast(self, guest: str, rail: int) -> None:
        tap, detour = self.tap(guest, rail), self._detour(guest, rail)
        if f"{detour}b" in common.links():
            common.run("tc", "qdisc", "del", "dev", tap, "root")
            common.ip_batch([f"link set {tap} master {self._bridge(rail)}"])
            common.ip_batch([f"link del {detour}i", f"link del {detour}b"])

    def link_down(self, guest: str, rail: int) -> None:
        """No carrier: the port goes down in the guest."""
        self._monitor(guest, f"set_link nic-r{rail} off")

    def link_up(self, guest: str, rail: int) -> None:
        self._monitor(guest, f"set_link nic-r{rail} on")

    def lose(self, guest: str, rail: int | None = None) -> None:
        """Packets vanish while the port stays up; without a rail, those of the management link."""
        common.ip_batch([f"link set {self.tap(guest, rail)} down"])

    def heal(self, guest: str, rail: int | None = None) -> None:
        common.ip_batch([f"link set {self.tap(guest, rail)} up"])

    def set_mtu(self, guest: str, rail: int, mtu: int) -> None:
        self.inside(guest, "ip", "link", "set", f"eth{rail + 1}", "mtu", str(mtu))

    def power_off(self, guest: str) -> None:
        """The guest is gone at once; its disk (/var/lib) stays as it was written."""
        with common.locked(self.state / "lock"):
            self._stop([guest])

    def power_on(self, guest: str) -> None:
        with common.locked(self.state / "lock"):
            if self.pid(guest) is None:
                self._start([guest])

    def pause(self, guest: str) -> None:
        """The guest stands still at once, its kernel too: it acknowledges no packet."""
        self._monitor(guest, "stop")

    def go_on(self, guest: str) -> None:
        self._monitor(guest, "cont")

    def _monitor(self, guest: str, command: str) -> str:
        """A command to the emulator, and what it answered."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(20)
            monitor.connect(str(self.folder(guest) / "monitor"))
            answer = _until_prompt(monitor)
            monitor.sendall(command.encode() + b"\n")
            answer = _until_prompt(monitor)
        if "Error" in answer or "not found" in answer:
            raise common.RigError(f"{guest}: {command}: {answer}")
        return answer


def _prefer(pid: int) -> None:
    """Give the process that leads a session priority over others, where the kernel allows it: an emulated processor that waits for its turn
    on a busy machine loses packets and cannot read its clock."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, -10)  # with its threads
        pathlib.Path(f"/proc/{pid}/autogroup").write_text("-10")


def _until_prompt(monitor: socket.socket) -> str:
    text = b""
    while not text.endswith(b"(qemu) "):
        more = monitor.recv(4096)
        if not more:
            break
        text += more
    return text.decode(errors="replace")


def _index(guest: str) -> int:
    return int(guest.rsplit("-", 1)[1])


def main() -> int:
    parser = argparse.ArgumentParser(description="Soft-RoCE guests under software emulation.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="exactly N guests")
    up.add_argument("count", type=int, metavar="N")
    up.add_argument("--governor", action="append", default=[], metavar="GUEST=NAME", help="governor it is born with")
    up.add_argument("--cpus", action="append", default=[], metavar="GUEST=N", help="1 (default), 2 or 4")
    commands.add_parser("down", help="remove the guests")
    commands.add_parser("status", help="one line per guest")
    arguments = parser.parse_args()
    guests = Guests()
    began = time.monotonic()
    try:
        if arguments.command == "up":
            governors = dict(item.split("=", 1) for item in arguments.governor)
            cpus = dict(item.split("=", 1) for item in arguments.cpus)
            options = {
                guest: Options(governor=governors.get(guest, ""), cpus=int(cpus.get(guest, 1)))
                for guest in {*governors, *cpus}
            }
            guests.up(arguments.count, options)
            print(f"{arguments.count} guests in {time.monotonic() - began:.1f} s: {guests.inventory}")
        elif arguments.command == "down":
            guests.down()
            print(f"down in {time.monotonic() - began:.1f} s")
        else:
            status = guests.status()
            for guest, state in status.items():
                print(guest, guests.address(guest), state)
            return 0 if status and set(status.values()) == {"up"} else 1
    except common.RigError as error:
        print(f"rdma: {error}", file=sys.stderr)
        return 1
    return 0
