# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An InfiniBand fabric without hardware: ibsim with OpenSM, and infiniband-diags as Debian has them, unpacked and not installed.

Each tool sits at the adapter of one host of the fabric. The programs meet on the loopback of this machine. A host with a network of its own
calls them through a socket in a folder that it shares with this machine: what it prints, and its status, are those of the tool.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

from harness.fat_tree import FatTree
from rigs import common
from rigs.services import Service

PACKAGES = (
    "ibsim-utils", "libumad2sim0", "opensm", "infiniband-diags", "libibnetdisc5", "libibmad5", "libibumad3", "libopensm9", "libosmcomp5",
    "libosmvendor5", "libwrap0", "libnsl2",
)  # fmt: skip
TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "vendstat", "dump_fts")
# The adapter of every host, as umad2sim calls it.
DEVICE = "ibsim0"
# With TERM some of these programs never end.
WITHIN_S = 0.2
_CALLER = """\
#!/usr/bin/python3
# Calls a tool of infiniband-diags, which is outside this host, at the adapter of this host.
import json, os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect("{place}/door")
door.sendall(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]).encode() + b"\\n")
rc, out, err = json.load(door.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(rc)
"""


class _Door(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True  # a tool that hangs does not hold the rig
    allow_reuse_address = True

    def __init__(self, path: pathlib.Path, fabric: Fabric, host: str) -> None:
        path.unlink(missing_ok=True)
        self.fabric, self.host = fabric, host
        super().__init__(str(path), _Call)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Call(socketserver.StreamRequestHandler):
    server: _Door

    def handle(self) -> None:
        tool, *argv = json.loads(self.rfile.readline())
        assert tool in TOOLS
        done = self.server.fabric.call(self.server.host, tool, *argv)
        self.wfile.write(json.dumps([done.returncode, done.stdout, done.stderr]).encode())


def programs() -> pathlib.Path:
    """Return the folder into which the packages are unpacked, once for this machine."""
    folder = common.CACHE / "infiniband"
    with common.locked(common.CACHE / "infiniband.lock"):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            fetch = ("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PACKAGES)
            try:
                common.run(*fetch, cwd=new)
            except common.RigError:  # package lists absent or out of date
                common.run("apt-get", "-qq", "update")
                common.run(*fetch, cwd=new)
            for package in sorted(new.glob("*.deb")):
                common.run("dpkg-deb", "-x", package, new)
                package.unlink()
            new.rename(folder)
    return folder


def netfile(tree: FatTree) -> str:
    """Return a fabric in the form that ibsim reads: that of ibnetdiscover without GUIDs of ports, with a LID at the ports of adapters."""
    lines = []
    own = ""
    for line in tree.text().splitlines():
        if line.startswith(("Ca", "Switch")):
            own = "lid 0 lmc 0 " if line.startswith("Ca") else ""
            line = line.replace(" lid 1 lmc 0", " lid 0 lmc 0")
        elif line.startswith("["):
            line = re.sub(r"\([0-9a-f]{16}\)", "", line).replace("\t\t# ", f"\t\t# {own}").replace(" lid 7 ", " lid 0 ")
        elif line.startswith(("switchguid", "caguid")):
            line = line.partition("(")[0]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Fabric:
    """A fabric that is up as long as the context lasts; `tree` says how it is cabled. OpenSM is at the adapter of its last host, where no
    tool can be. `manager_lid` is the LID of OpenSM's port."""

    def __init__(self, tree: FatTree, managed: bool = True) -> None:
        self.tree, self.managed = tree, managed
        self.manager_lid = 0
        self._services: list[Service] = []
        self._doors: list[_Door] = []

    def __enter__(self) -> Fabric:
        self.programs = programs()
        self.port = _free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ibsim-"))
        try:
            self._start_simulator()
            if self.managed:
                self._start_manager()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for door in self._doors:
            door.shutdown()
            door.server_close()
            pathlib.Path(str(door.server_address)).unlink(missing_ok=True)
        self._doors = []
        for service in reversed(self._services):
            service.end(WITHIN_S)
        self._services = []
        if hasattr(self, "_console"):
            os.close(self._console)
            del self._console
        shutil.rmtree(self.folder)

    def _start_simulator(self) -> None:
        (self.folder / "net").write_text(netfile(self.tree))
        os.mkfifo(self.folder / "console")
        # Both ways: the console's end must not come before we write to it.
        self._console = os.open(self.folder / "console", os.O_RDWR)
        ibsim = self.programs / "usr/bin/ibsim"
        sizes = ("-N", "4096", "-S", "1024", "-P", "131072")
        words = ["env", f"LD_LIBRARY_PATH={self._libraries}", str(ibsim), "-s", "-r", "-l", str(self.port), *sizes, "net"]
        simulator = Service("ibsim", ["sh", "-c", 'exec "$@" < console', "sh", *words], self.folder)
        self._start(simulator)
        simulator.until("ready", lambda: "simulator ready" in simulator.log.read_text(errors="replace"))

    def _start_manager(self) -> None:
        log = self.folder / "manager.log"
        manager = Service(
            "opensm", ["env", *self._environment(self.tree.hosts[-1]), str(self.programs / "usr/sbin/opensm"), "-f", str(log), "-d", "2",
                       "-s", "0"],
            self.folder,
        )  # fmt: skip
        self._start(manager)
        self.manager = manager
        manager.until("SUBNET UP", lambda: log.exists() and "SUBNET UP" in log.read_text(errors="replace"))
        found = re.search(r"sm lid (\d+)", self.run("sminfo"))
        self.manager_lid = int(found.group(1)) if found else 0

    def _start(self, service: Service) -> None:
        service.start()
        self._services.append(service)

    def end_manager(self) -> None:
        """End OpenSM: ports stay up with the addresses that they have."""
        self.manager.end(WITHIN_S)

    @property
    def _libraries(self) -> pathlib.Path:
        return next(self.programs.glob("usr/lib/*-linux-gnu"))

    def _environment(self, host: str) -> list[str]:
        libraries = self._libraries
        return [
            f"LD_LIBRARY_PATH={libraries}", f"LD_PRELOAD={libraries}/umad2sim/libumad2sim.so", f"SIM_HOST=H-{self.tree.guid(host)}",
            "IBSIM_SERVER_NAME=127.0.0.1", f"IBSIM_SERVER_PORT={self.port}", f"OSM_CACHE_DIR={self.folder}", f"OSM_TMP_DIR={self.folder}",
        ]  # fmt: skip

    def call(self, host: str, tool: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a tool at the adapter of a host."""
        words = ["env", *self._environment(host), str(self.programs / f"usr/sbin/{tool}"), *argv]
        with tempfile.TemporaryDirectory(dir=self.folder) as place:  # umad2sim keeps files where it runs
            return subprocess.run(words, cwd=place, check=False, capture_output=True, text=True, timeout=300)

    def run(self, tool: str, *argv: str) -> str:
        """Return what a tool prints at the first host of the fabric, whatever its status is."""
        done = self.call(self.tree.hosts[0], tool, *argv)
        return done.stdout + done.stderr

    def command(self, *lines: str) -> None:
        """Give commands to ibsim's console: `Unlink "S-..."[5]` pulls a cable."""
        os.write(self._console, "".join(f"{line}\n" for line in lines).encode())
        time.sleep(0.1 + 0.01 * len(lines))

    def node(self, name: str) -> str:
        """Return the name of a host's adapter or of a switch as ibsim's console takes it."""
        return f'"{"H" if name in self.tree.of_hosts else "S"}-{self.tree.guid(name)}"'

    def plant(self, host: str, folder: pathlib.Path, place: str) -> None:
        """Put the tools of a host into `folder`/bin, which the host has at `place` and has on its PATH."""
        self._doors.append(_Door(folder / "door", self, host))
        (folder / "bin").mkdir(exist_ok=True)
        for tool in TOOLS:
            caller = folder / "bin" / tool
            caller.write_text(_CALLER.format(place=place))
            caller.chmod(0o755)

    def sysfs(self, host: str, root: pathlib.Path) -> None:
        """Write what the kernel of a host says of its port below `root`: its state, its rate and the subnet manager that it knows."""
        cables = {name: self.tree.rates.get(name, "4xHDR") for name, (end, _far) in self.tree.cables.items() if end == (host, 1)}
        width = next(iter(cables.values()), "4xSDR").partition("x")[0]
        gbps = {"4": "200 Gb/sec (4X HDR)", "1": "50 Gb/sec (1X HDR)"}[width]
        guid = self.tree.port_guid(host, 1)
        port = root / "sys/class/infiniband" / DEVICE / "ports/1"
        values = {
            "state": "4: ACTIVE" if cables else "1: DOWN", "phys_state": "5: LinkUp" if cables else "2: Polling",
            "link_layer": "InfiniBand", "rate": gbps, "sm_lid": f"0x{self.manager_lid if cables else 0:x}", "lid": "0x1",
            "gids/0": f"fe80:0000:0000:0000:{guid[:4]}:{guid[4:8]}:{guid[8:12]}:{guid[12:]}",
        }  # fmt: skip
        (port / "gids").mkdir(parents=True, exist_ok=True)
        for name, text in values.items():
            (port / name).write_text(text + "\n")
        (root / "dev/infiniband").mkdir(parents=True, exist_ok=True)
        (root / "dev/infiniband/umad0").touch()
