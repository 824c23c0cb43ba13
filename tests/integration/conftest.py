# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rigs for integration tests: each is put up once per session, and taken down behind the last test that stands on it."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import pathlib
import typing as t

import pytest
import quick
from harness.fleet_runs import Acceptance
from harness.own_rig import own
from harness.sharing import Clusters, two_clusters
from rigs.fleet.fleet import Fleet
from rigs.fleet.fleet import Options as Host
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.rdma.rdma import Guests, Options
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm
from tools.run_tests import pytest_runtest_setup  # noqa: F401, no test begins when the time is over
from xdist.scheduler import LoadScopeScheduling

# Where names of tests begin.
ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs chromium")
    config.addinivalue_line("markers", "fleet: needs the fleet rig (root)")
    config.addinivalue_line("markers", "kubernetes(own): needs the Kubernetes rig (root, a minute); with own=True clusters of its own")
    config.addinivalue_line("markers", "long: waits for deadlines or stands up a rig for one thing; not part of CI")
    config.addinivalue_line("markers", "quick: part of `make test` (quick.py)")
    config.addinivalue_line("markers", "rdma: needs the soft-RoCE guests (root, minutes)")


# Those that take longest first: whoever begins them last waits for them alone.
BIG_RIGS = ("guests", "own clusters", "the shared cluster")


@functools.cache
def rig_of(file: str) -> str:
    """The big rig that the tests of a file stand on, by its `pytestmark`, or empty. Read from its text: who shares tests out among
    processes knows their names only."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    words = " ".join(map(ast.unparse, marks))
    if "mark.rdma" in words:
        return "guests"
    if "mark.kubernetes(own=True)" in words:
        return "own clusters"
    return "the shared cluster" if "mark.kubernetes" in words else ""


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `make test`. Put files on big rigs first, then the others from the longest text to the shortest: with short files
    at the end, no worker waits long for the last one."""
    order = [*BIG_RIGS, ""]
    size = {file: (ROOT / file).stat().st_size for file in {file_of(item.nodeid) for item in items}}

    def place(item: pytest.Item) -> tuple[int, int]:
        file = file_of(item.nodeid)
        rig = rig_of(file)
        return order.index(rig), 0 if rig else -size[file]

    items.sort(key=place)
    for item in items:
        if quick.is_quick(item.nodeid):
            item.add_marker(pytest.mark.quick)


class ByRig(LoadScopeScheduling):
    """Tests side by side: one worker has all files that stand on the same big rig, so that nobody waits for it to be free."""

    def _split_scope(self, nodeid: str) -> str:
        return rig_of(file_of(nodeid)) or file_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: t.Any) -> ByRig:
    config.option.loadscopereorder = False  # in the order in which they were collected
    return ByRig(config, log)


Rig = t.TypeVar("Rig", Guests, Kubernetes)
# The big rig that stands now, to be taken down.
standing = contextlib.ExitStack()


def stand(rig: t.ContextManager[Rig]) -> t.Iterator[Rig]:
    """Put up a big rig for a fixture of the session. It goes behind its last test: an idle cluster, or four idle guests, take a tenth of a
    core from the tests that follow."""
    with standing:
        yield standing.enter_context(rig)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> t.Generator[None, object, object]:
    result = yield
    if nextitem and rig_of(file_of(nextitem.nodeid)) != rig_of(file_of(item.nodeid)):
        standing.close()
    return result


@pytest.fixture(scope="session")
def rig_fleet() -> t.Iterator[Fleet]:
    """A fleet of our own, still without hosts: call `up`."""
    with own(Fleet) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def acceptance(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Acceptance]:
    """Runs over sixteen good hosts, gpu-17 without python3 and gpu-18 with a small disk. No sudo on gpu-16."""
    special = {"gpu-16": Host(sudo=False), "gpu-17": Host(python=False), "gpu-18": Host(state_size="16k")}
    rig_fleet.up(18, special)
    runs = Acceptance(rig_fleet, tmp_path_factory.mktemp("runs"))
    try:
        yield runs
    finally:
        runs.close()


@pytest.fixture
def healthy(acceptance: Acceptance) -> Acceptance:
    """The same, every tool of every host as new."""
    for host in acceptance.fleet.hosts:
        acceptance.plant(host)
    return acceptance


@pytest.fixture(scope="session")
def rig_rdma() -> t.Iterator[Guests]:
    """Four guests, of which rdma-04 has two CPUs. A test leaves them as it found them."""
    if os.geteuid():
        pytest.skip("the rdma rig needs root")
    yield from stand(Guests().lent(4, {"rdma-04": Options(cpus=2)}))


@pytest.fixture(scope="session")
def rig_kubernetes(request: pytest.FixtureRequest) -> t.Iterator[Kubernetes]:
    """A cluster of our own: two nodes that run containers, and, but for `make test`, three that exist in the API only. A test leaves it as
    it found it."""
    yield from stand(shared_cluster(is_small=request.config.getoption("markexpr") == "quick"))


@contextlib.contextmanager
def shared_cluster(is_small: bool) -> t.Iterator[Kubernetes]:
    """Put up a cluster. `is_small`: with what the tests of `make test` need, for which fewer programs are built."""
    with own(Kubernetes) as cluster:
        cluster.up(2, 0, operators=quick.OPERATORS) if is_small else cluster.up(2, 3)
        yield cluster


@pytest.fixture(scope="module")
def rig_slurm() -> t.Iterator[Slurm]:
    """A Slurm of our own on four hosts, whose tools are those of healthy nodes. A test leaves it as it found it."""
    with own(Fleet) as fleet:
        for number, host in enumerate(fleet.up(4), 1):
            nodes.planted(fleet.plant(host), number)
        slurm = Slurm(fleet)
        slurm.up()
        yield slurm


@pytest.fixture(scope="module")
def rig_sharing() -> t.Iterator[Clusters]:
    """Two clusters with a system that shares GPUs: two nodes of two T4, one of four A800. A test leaves them as it found them. They are
    taken down behind a file: two idle clusters take a tenth of a core from the tests that follow."""
    with two_clusters(nodes=(2, 1)) as clusters:
        yield clusters
