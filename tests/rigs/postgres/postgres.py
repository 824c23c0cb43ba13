# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A throw-away PostgreSQL of Debian's package: its own port on loopback, its own user, without systemd. It refuses to run as root."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile
import typing as t

PACKAGES = {"/usr/lib/postgresql": "postgresql"}
USER, PASSWORD = "acceptance", "s3cret-of-the-rig"


def programs() -> pathlib.Path | None:
    """Return the folder of initdb and pg_ctl; None where the package `postgresql` is not installed."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class Postgres:
    def __init__(self, folder: pathlib.Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"

    def _as_postgres(self, *argv: str) -> None:
        done = subprocess.run(
            ["runuser", "-u", "postgres", "--", *argv],
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{argv[0]}: {done.stdout}{done.stderr}")

    def make(self) -> None:
        shutil.chown(self.folder, "postgres", "postgres")
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        shutil.chown(secret, "postgres")
        where = ["-D", str(self.folder / "data"), "-U", USER, "--pwfile", str(secret), "-A", "scram-sha-256"]
        self._as_postgres(str(self._program("initdb")), *where, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder} -c fsync=off"
        self._as_postgres(
            str(self._program("pg_ctl")),
            "-D",
            str(self.folder / "data"),
            "-w",
            "-s",
            "-l",
            str(self.folder / "log"),
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        self._as_postgres(str(self._program("pg_ctl")), "-D", str(self.folder / "data"), "-w", "-s", "-m", mode, "stop")

    def _program(self, name: str) -> pathlib.Path:
        of = programs()
        assert of, "the package postgresql is not installed"
        return of / name


@contextlib.contextmanager
def running() -> t.Iterator[Postgres]:
    """A server of its own; nothing of it is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="acceptance-postgres-") as folder:
        server = Postgres(pathlib.Path(folder), port)
        server.make()
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):  # a test may have stopped it
                server.stop()
