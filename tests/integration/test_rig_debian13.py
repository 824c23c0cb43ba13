# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other controllers than the one of the virtual environment: the oldest and the newest ansible-core that are supported."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t

import pytest
from harness.fleet_runs import ROOT, Acceptance, Done
from rigs import common

pytestmark = pytest.mark.fleet
CHROOT = str(ROOT / "tests/rigs/debian13/chroot")
HOSTS = [f"gpu-{number:02d}" for number in range(1, 17)]
OLDEST = "ansible-core==2.18.9"


@pytest.fixture(scope="module")
def chroot() -> str:
    """The command, once its Debian is there: to build that takes minutes, which are no run's."""
    subprocess.run([CHROOT, "up"], check=True)
    return CHROOT


@pytest.fixture(scope="module")
def shared(acceptance: Acceptance) -> t.Iterator[Acceptance]:
    """Runs whose files are where the chroot sees them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runs-", dir=common.STATE))
    runs = Acceptance(acceptance.fleet, folder)
    for host in HOSTS:
        runs.plant(host)
    runs.plant("gpu-02", FAULTS="nccl_wrong")
    runs.plant("gpu-03", FAULTS="gemm_slow=0.8")
    runs.plant("gpu-04", FAULTS="nccl_html")
    try:
        yield runs
    finally:
        runs.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def here(shared: Acceptance) -> Done:
    """The same hosts as this environment's ansible-core judges them."""
    done = shared.run(HOSTS)
    assert done.status != 0 and done.good("gpu-01") and "FAIL" in done.of("gpu-02") & done.of("gpu-03")
    return done


def version(done: Done) -> str:
    assert done.folder
    found = re.search(r'"ansible_version": "([0-9]+\.[0-9]+)', (done.folder / "plan.json").read_text())
    assert found
    return found[1]


def test_the_newest_core_says_the_same(shared: Acceptance, here: Done, chroot: str) -> None:
    # Sockets lie in /tmp, which is the chroot's own: its connections end with it.
    environment = {"ANSIBLE_SSH_CONTROL_PATH_DIR": "/tmp/cp"}
    done = shared.run(HOSTS, binary=(chroot, "run", "ansible-playbook"), environment=environment)
    assert version(done) == "2.21" and version(here) == "2.19"
    assert done.status == here.status and done.essence() == here.essence(), done.output[-3000:]
    shared.nothing_left(*HOSTS)
    assert "debian13" not in pathlib.Path("/proc/mounts").read_text()


def test_the_oldest_core_says_the_same(shared: Acceptance, here: Done) -> None:
    core = common.CACHE / OLDEST
    if not core.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--target", f"{core}.new", OLDEST]
        subprocess.run(pip, check=True)
        os.replace(f"{core}.new", core)
    path = os.pathsep.join((str(core), str(ROOT / ".collections")))
    done = shared.run(HOSTS, binary=(sys.executable, "-m", "ansible", "playbook"), environment={"PYTHONPATH": path})
    assert version(done) == "2.18"
    assert done.status == here.status and done.essence() == here.essence(), done.output[-3000:]
    shared.nothing_left(*HOSTS)
