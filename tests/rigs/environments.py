# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Execution environments, built by podman from the context that ansible-builder makes of files/execution-environment.yml.

No image is pulled: the base image is the Debian of the rig `debian13`. Images lie under STATE and are removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
import typing as t

from rigs import common

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = common.STATE / "environments"
PACKAGES = {"podman": "podman", "runc": "runc"}
BASE, IMAGE = "localhost/gpufleet-debian:13", "localhost/gpufleet-environment:1"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
QUEUES = pathlib.Path("/dev/mqueue")  # podman wants it mounted into every container


class Environment:
    """An image with the collection, and the variables with which podman and ansible-navigator find it."""

    image = IMAGE

    def __init__(self, tools: pathlib.Path) -> None:
        self.tools = tools
        self.variables = {
            "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        }

    def podman(self, *argv: t.Any, **options: t.Any) -> str:
        return common.run("podman", *argv, env={**os.environ, **self.variables}, **options)

    def build(self, tarball: pathlib.Path) -> None:
        """Build the image from files/execution-environment.yml and the collection's tarball beside it."""
        source = FOLDER / "source"
        source.mkdir()
        shutil.copy(ROOT / "files/execution-environment.yml", source)
        shutil.copy(tarball, source / "gpufleet-acceptance.tar.gz")
        builder = (self.tools / "ansible-builder", "create", "-f", "execution-environment.yml", "-c", "context")
        common.run(*builder, "--output-filename", "Containerfile", cwd=source)
        self._import_base()
        trusted = ("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro") if os.path.exists(CERTIFICATES) else ()
        limits = [word for limit in _limits() for word in ("--ulimit", limit)]
        build = ("build", "--build-arg", f"EE_BASE_IMAGE={BASE}", "--pull-never", *trusted, *limits, "--tag", IMAGE)
        self.podman(*build, "--file", source / "context/Containerfile", source / "context")

    def _import_base(self) -> None:
        chroot = ROOT / "tests/rigs/debian13/chroot"
        common.run(chroot, "up")
        root = common.run(chroot, "status").strip()
        # Its virtual environment and what it mounts stay out.
        out = [f"--exclude=./{name}" for name in ("opt/controller", "proc/*", "sys/*", "dev/*", "check", "work")]
        with subprocess.Popen(["tar", "-C", root, *out, "-c", "."], stdout=subprocess.PIPE) as packed:
            self.podman("import", "-", BASE, stdin=packed.stdout)


def _limits() -> list[str]:
    """Return limits that this process may give to a child: podman's own are higher than a container without rights may set."""
    names = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    hard = {name: resource.getrlimit(number)[1] for name, number in names.items()}
    least = {name: 10000 if limit == resource.RLIM_INFINITY else min(limit, 10000) for name, limit in hard.items()}
    return [f"{name}={limit}:{limit}" for name, limit in least.items()]


@contextlib.contextmanager
def built(tools: pathlib.Path, tarball: pathlib.Path) -> t.Iterator[Environment]:
    """Yield the image of the tarball. `tools` has ansible-builder and ansible-navigator."""
    common.need_root("environments")
    common.need_packages(PACKAGES)
    made = not QUEUES.exists()
    with common.locked(FOLDER.with_suffix(".lock"), "another execution environment"):
        environment = Environment(tools)
        _remove(environment)
        FOLDER.mkdir(parents=True)
        limits = ", ".join(f'"{limit}"' for limit in _limits())
        (FOLDER / "containers.conf").write_text(
            f'[containers]\nnetns = "host"\ncgroupns = "host"\ndefault_ulimits = [{limits}]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        (FOLDER / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/images"\nrunroot = "{FOLDER}/running"\n'
        )
        QUEUES.mkdir(exist_ok=True)
        try:
            environment.build(tarball)
            yield environment
        finally:
            _remove(environment)
            if made:
                QUEUES.rmdir()


def _remove(environment: Environment) -> None:
    if FOLDER.exists():
        environment.podman("system", "reset", "--force")
        shutil.rmtree(FOLDER, ignore_errors=True)
