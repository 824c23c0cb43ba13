# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container images of the rig: archives that containerd imports, made once per content of what they are made of."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile
import typing as t

from rigs import common
from rigs.kubernetes import recipe

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parent / "simulated"
CHECKOUT = HERE.parents[2]
RECIPE = CHECKOUT / "files" / "tester-image"  # what a real cluster's tester image has is also in this one
PACKAGES = {
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/bin/busybox": "busybox-static",
    "tar": "tar",
}
PAUSE = "gpufleet.invalid/pause:1"
BARE = "gpufleet.invalid/bare:1"
SUITES = ("bookworm", "trixie")  # Open MPI 4.1 and 5.0
COLLECTIVES = (
    "all_gather", "all_reduce", "alltoall", "broadcast", "gather", "reduce", "reduce_scatter", "scatter", "sendrecv",
)  # fmt: skip
PATH = "/opt/simulated/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def tester(suite: str = "bookworm") -> str:
    """Name of the tester image made of this Debian; it changes with its content."""
    if suite not in SUITES:
        raise common.RigError(f"no tester image of Debian {suite}: {', '.join(SUITES)}")
    return f"gpufleet.invalid/tester:{suite}-{_tester_version(suite)}"


def device_plugin(programs: pathlib.Path) -> str:
    return f"gpufleet.invalid/device-plugin:{programs.name.rsplit('-', 1)[1]}"


def amd_device_plugin(programs: pathlib.Path) -> tuple[str, pathlib.Path]:
    """(name, archive) of the image of the device plugin of AMD GPUs; `programs` is the folder of build.amd()."""
    name = f"gpufleet.invalid/amd-device-plugin:{programs.name.rsplit('-', 1)[1]}"
    with _missing(name) as (archive, missing):
        if missing:
            _small(name, {"amd-device-plugin": programs / "amd-device-plugin"}, archive)
    return name, archive


def tools() -> tuple[str, pathlib.Path]:
    """(name, archive) of an image with this machine's python3 and the simulated tools in /opt/gpufleet, which brings all its libraries
    along: for pods whose own image has none."""
    version = hashlib.sha256((common.run(_PYTHON, "-VV") + _TOOLS_PYTHON).encode())
    for path in [*sorted((TOOLS / "tools").iterdir()), TOOLS / "gpu.xml"]:
        version.update(path.name.encode() + path.read_bytes())
    name = f"gpufleet.invalid/tools:{version.hexdigest()[:12]}"
    with _missing(name) as (archive, missing):
        if missing:
            _tools(name, archive)
    return name, archive


_PYTHON = "/usr/bin/python3"
_TOOLS_PYTHON = """\
#!/bin/sh
export PYTHONHOME=/opt/gpufleet
exec /opt/gpufleet/lib/loader --library-path /opt/gpufleet/lib /opt/gpufleet/lib/python3 "$@"
"""


def _tools(name: str, archive: pathlib.Path) -> None:
    root = archive.with_suffix(".root")
    if root.exists():
        shutil.rmtree(root)
    folder = root / "opt" / "gpufleet"
    shutil.copytree(TOOLS / "tools", folder / "bin", symlinks=True)
    shutil.copy(TOOLS / "gpu.xml", folder)
    library = pathlib.Path(common.run(_PYTHON, "-c", "import os; print(os.path.dirname(os.__file__))").strip())
    shutil.copytree(library, folder / "lib" / library.name, ignore=shutil.ignore_patterns("__pycache__", "test", "config-*", "*-packages"))
    shutil.copy(os.path.realpath(_PYTHON), folder / "lib" / "python3")
    needed = common.run("ldd", _PYTHON, *(library / "lib-dynload").glob("*.so"))
    for path in set(re.findall(r"(/\S+\.so[.\d]*) \(", needed)):
        shutil.copy(path, folder / "lib" / ("loader" if "/ld-linux" in path else pathlib.Path(path).name))
    (folder / "bin" / "python3").write_text(_TOOLS_PYTHON)
    (folder / "bin" / "python3").chmod(0o755)
    (root / "bin").mkdir()
    for applet in ("busybox", "cp", "sh"):
        shutil.copy("/bin/busybox", root / "bin" / applet)
    _pack(root, name, archive)
    shutil.rmtree(root)


def archives(programs: pathlib.Path, suites: t.Sequence[str] = ("bookworm",)) -> list[tuple[str, pathlib.Path]]:
    """(name, archive) of every image; `programs` is the folder of build.programs()."""
    made = []
    for name, contents in (
        (PAUSE, {"pause": programs / "pause"}),
        (device_plugin(programs), {"device-plugin": programs / "device-plugin"}),
        (BARE, {"bin/busybox": pathlib.Path("/bin/busybox")}),
    ):
        with _missing(name) as (archive, missing):
            if missing:
                _small(name, contents, archive)
        made.append((name, archive))
    for suite in suites:
        with _missing(tester(suite)) as (archive, missing):
            if missing:
                _tester(suite, archive)
        made.append((tester(suite), archive))
    return made


def console(folder: pathlib.Path) -> tuple[str, pathlib.Path]:
    """(name, archive) of the console's image, made in `folder` of its recipe and this checkout's collection, as the recipe says."""
    common.need_packages(PACKAGES)
    context, root = folder / "context", folder / "root"
    collection = context / "files" / "console"
    galaxy = pathlib.Path(sys.executable).with_name("ansible-galaxy")
    common.run("nice", galaxy, "collection", "build", "--output-path", collection, cwd=CHECKOUT)
    shutil.copy(CHECKOUT / "requirements.txt", context)
    build = recipe.Build(CHECKOUT / "files/console/Containerfile", context, common.CACHE / "kubernetes" / "console")
    build.into(root)
    archive = folder / "console.tar"
    name = f"gpufleet.invalid/console:{folder.name}"
    _pack(root, name, archive, config=build.config)
    shutil.rmtree(root)
    return name, archive


@contextlib.contextmanager
def _missing(name: str) -> t.Iterator[tuple[pathlib.Path, bool]]:
    """The image's archive, and whether it is to be made now, by one at a time. Who needs only what is there waits for nobody."""
    archive = common.CACHE / "kubernetes" / "images" / f"{_stem(name)}.tar"
    if archive.exists():
        yield archive, False
        return
    common.need_packages(PACKAGES)
    with common.locked(archive.with_name(f"{_stem(name).rsplit('-', 1)[0]}.lock")):
        yield archive, not archive.exists()


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[1].replace(":", "-")


def _packages() -> list[str]:
    return _lines(RECIPE / "packages.txt")


def _lines(path: pathlib.Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _base_version(suite: str) -> str:
    files = [(HERE / "image" / file).read_text() for file in ("rootfs.sh", "collective_perf.c")]
    return hashlib.sha256("\0".join([suite, *_packages(), *files]).encode()).hexdigest()[:12]


def _tester_version(suite: str) -> str:
    digest = hashlib.sha256(_base_version(suite).encode() + repr(COLLECTIVES).encode())
    files = [*sorted((TOOLS / "tools").iterdir()), TOOLS / "gpu.xml", *sorted(RECIPE.glob("*.conf")), RECIPE / "commands.txt"]
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _tester(suite: str, archive: pathlib.Path) -> None:
    folder = archive.parent
    base = folder / f"base-{suite}-{_base_version(suite)}"
    if not (base / "root").exists():
        print(f"building the tester image of Debian {suite}", file=sys.stderr)
        new = folder / f"base-{suite}.new"
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(parents=True)
        source = HERE / "image" / "collective_perf.c"
        common.run("nice", "unshare", "--mount", HERE / "image" / "rootfs.sh", new, suite, ",".join(_packages()), source)
        new.rename(base)
    root = folder / f"tester-{suite}.root"
    if root.exists():
        shutil.rmtree(root)
    common.run("cp", "-a", base / "root", root)
    simulated = root / "opt" / "simulated"
    for tool in (TOOLS / "tools").iterdir():
        # The Python with PyTorch is not the one that runs probes: it has a name of its own.
        shutil.copy(tool, simulated / "bin" / ("python3-torch" if tool.name == "python3" else tool.name))
    shutil.copy(TOOLS / "gpu.xml", simulated / "gpu.xml")
    for collective in COLLECTIVES:
        program = f"{collective}_perf_mpi"
        os.link(simulated / "bin" / "collective", simulated / "bin" / program)
        os.symlink(f"/opt/simulated/bin/{program}", root / "usr/local/bin" / program)  # for logins by ssh, which have another PATH
    (simulated / "bin" / "collective").unlink()
    (root / "run" / "sshd").mkdir(mode=0o755, exist_ok=True)
    (root / "root" / ".ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(RECIPE / "ssh.conf", root / "etc" / "ssh" / "ssh_config.d" / "tester.conf")
    shutil.copy(RECIPE / "sshd.conf", root / "etc" / "ssh" / "sshd_config.d" / "tester.conf")
    for line in _lines(RECIPE / "commands.txt"):
        command, *arguments = line.split()
        test = ["sh", "-c", 'command -v "$1"', "sh", command] if not arguments else [command, *arguments]
        inside = ["env", "-i", f"PATH={PATH}", "HOME=/root", *test]
        script = 'mount --rbind /dev "$1/dev" && exec chroot "$@"'
        common.run("unshare", "--mount", "--net", "sh", "-c", script, "sh", root, *inside, timeout=60)
    _pack(root, tester(suite), archive)
    shutil.rmtree(root)


def _small(name: str, contents: dict[str, pathlib.Path], archive: pathlib.Path) -> None:
    """An image of a few static programs; busybox comes with all its names."""
    root = archive.with_suffix(".root")
    if root.exists():
        shutil.rmtree(root)
    for place, source in contents.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / place)
        if source.name == "busybox":
            for applet in common.run(source, "--list").split():
                if applet != "busybox":
                    os.link(root / place, root / "bin" / applet)
    _pack(root, name, archive, None if name == BARE else ["/" + place for place in contents])
    shutil.rmtree(root)


def _pack(
    root: pathlib.Path, name: str, archive: pathlib.Path, entry: list[str] | None = None, config: dict[str, t.Any] | None = None
) -> None:
    """A one-layer image in the format of `docker save`."""
    layer = archive.with_suffix(".layer")
    common.run("tar", "--numeric-owner", "--sort=name", "-C", root, "-cf", layer, ".")
    with open(layer, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    description = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {"Entrypoint": entry, "Env": [f"PATH={PATH}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "rigs/kubernetes"}],
    }
    data = json.dumps(description).encode()
    file = f"{hashlib.sha256(data).hexdigest()}.json"
    manifest = json.dumps([{"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    new = archive.with_suffix(".part")
    with tarfile.open(new, "w") as tar:
        for member, content in ((file, data), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        tar.add(layer, "layer.tar")
    layer.unlink()
    new.rename(archive)
