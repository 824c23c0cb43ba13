# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Containerfile carried out without a container engine: its steps in a chroot, over a Debian that stands for the image it begins with.

Known are the instructions that the console's recipe has; another one is an error, and not passed over. What comes before the last COPY
changes seldom and is kept.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import typing as t

from rigs import common

# Python's own images are Debian with a Python in which pip may install.
BASE = ("trixie", "python3,python3-pip,ca-certificates")
# Whatever mounts something, and is killed: nothing of it stays.
OURS = ("nice", "unshare", "--mount", "--propagation", "private")
# Names and trusted certificates are this machine's.
INSIDE = """
set -eu
root=$1; shift
mount --bind "$root" "$root"
for kept in proc dev; do mount --rbind "/$kept" "$root/$kept"; done
for file in etc/resolv.conf etc/hosts etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "/$file" ] || { touch "$root/$file"; mount -o bind,ro "/$file" "$root/$file"; }
done
exec chroot "$root" /bin/sh -euc "$@"
"""


class Step(t.NamedTuple):
    name: str
    words: str


def steps(file: pathlib.Path) -> list[Step]:
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [Step(*line.split(maxsplit=1)) for line in whole]


class Build:
    """The build of a recipe in `context`; `made` is the root and `config` what a container of it starts with."""

    def __init__(self, file: pathlib.Path, context: pathlib.Path, kept: pathlib.Path) -> None:
        self.context, self.kept = context, kept
        self.config: dict[str, t.Any] = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        self.steps = steps(file)
        self.last = max(number for number, step in enumerate(self.steps) if step.name == "COPY")

    def into(self, root: pathlib.Path) -> None:
        """Carry it out; `root` is made."""
        with common.locked(self.kept.with_name(f"{self.kept.name}.lock")):
            base = self.kept / self._name()
            if not base.exists():
                shutil.rmtree(self.kept, ignore_errors=True)  # one is kept
                new = self.kept / "new"
                self.kept.mkdir(parents=True)
                self._begin(new)
                for step in self.steps[: self.last]:
                    self._do(step, new)
                new.rename(base)
            common.run("cp", "-a", base, root)
        for step in self.steps[self.last :]:
            self._do(step, root)

    def _name(self) -> str:
        digest = hashlib.sha256(repr((BASE, INSIDE, self.steps[: self.last])).encode())
        for step in self.steps[: self.last]:
            for path in self._sources(step) if step.name == "COPY" else ():
                digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def _begin(self, root: pathlib.Path) -> None:
        suite, packages = BASE
        common.run(*OURS, "debootstrap", "--variant=minbase", f"--include={packages}", suite, root)
        for path in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            path.unlink()
        for path in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("usr/share/doc"), *root.glob("usr/share/locale")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _sources(self, step: Step) -> list[pathlib.Path]:
        found = [pathlib.Path(path) for word in step.words.split()[:-1] for path in sorted(glob.glob(str(self.context / word)))]
        if not found:
            raise common.RigError(f"{step.words}: nothing of that name in {self.context}")
        return found

    def _do(self, step: Step, root: pathlib.Path) -> None:
        if step.name == "COPY":
            target = step.words.split()[-1]
            place = root / target.lstrip("/")
            for source in self._sources(step):
                (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
        elif step.name == "RUN":
            variables = dict(word.split("=", 1) for word in self.config["Env"])
            environment = {**os.environ, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **variables}
            common.run(*OURS, "sh", "-c", INSIDE, "sh", root, step.words, env=environment)
        elif step.name == "ENV":
            self.config["Env"] += shlex.split(step.words)
        elif step.name == "USER":
            self.config["User"] = step.words
        elif step.name == "CMD":
            self.config["Cmd"] = json.loads(step.words)
        elif step.name != "FROM":
            raise common.RigError(f"{step.name} {step.words}: expected FROM, COPY, RUN, ENV, USER or CMD")
