# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The integration tests of `make test`: for each promise of README.md at least one real run. The others are those of `make test-all`.

They need Debian's packages, the programs of a Kubernetes cluster with the MPI operator, and nothing else that is built for minutes.
"""

from __future__ import annotations

# {promise: tests that are real runs of it, as FILE::TEST}; a name stands for the test with all its parameters.
PROMISES: dict[str, tuple[str, ...]] = {
    "one command measures every node behind SSH, and leaves it as it was": (
        "test_acceptance_fleet.py::test_sixteen_healthy_hosts_are_accepted_and_left_as_they_were",
    ),
    "it judges each number and names the bad part": (
        "test_train_fleet.py::test_a_gpu_that_computes_wrong_is_convicted_by_the_others",
        "test_fabric_fleet.py::test_one_slow_node_is_convicted_by_name",
    ),
    "what was not measured is UNKNOWN, and never accepted": (
        "test_acceptance_fleet.py::test_the_recap_names_who_is_not_accepted",
        "test_terminal.py::test_who_is_not_accepted_has_failed_and_nobody_else",
    ),
    "machines behind SSH and Kubernetes clusters in the same way, with an MPIJob between nodes": (
        "test_kube_groups.py::test_the_stage_over_a_cluster",
    ),
    "Slurm clusters": ("test_slurm.py::test_four_nodes_are_accepted_and_left_as_they_were",),
    "nothing is left behind by Ctrl-C or a killed controller, and what is cut off is resumed": (
        "test_stop.py::test_a_signal_ends_what_was_started_detached_and_says_so[ctrl-c]",
        "test_stop.py::test_a_killed_controller_is_missed_at_once",
        "test_stop.py::test_ctrl_c_ends_a_soak",
        "test_fabric_fleet.py::test_kill_9_of_the_controller_and_resume",
    ),
    "RDMA ports, links and pairs": (
        "test_rdma_guests.py::test_ports_against_themselves",
        "test_governor_guests.py::test_held_and_restored_each_to_its_own",
        "test_rdma_fleet.py::test_a_sample_is_accepted",
    ),
    "a report that a customer can read, in a browser": (
        "test_report_browser.py::test_it_draws_all_without_a_request_or_an_error",
        "test_browser.py::test_requests_do_not_fail_while_interfaces_come_and_go",
    ),
    "a console: runs are started from a form, watched, and found in the history": (
        "test_console_browser.py::test_from_the_form_to_the_verdict_and_found_again_in_the_history",
    ),
    "what other systems see of a run": (
        "test_observing.py::test_a_run_is_in_the_log_and_in_the_gateway",
    ),
    "the machine beside its GPUs, by its management controller": (
        "test_host_redfish.py::test_parts_are_judged_and_the_password_is_nowhere",
    ),
    "a stage of one's own, for which nothing in the collection changes": (
        "test_own_plane_and_stage.py::test_a_plane_and_stages_of_ones_own_are_accepted_like_the_shipped_ones",
    ),
    "everything works in an installed collection": (
        "test_release.py::test_the_tarball_has_what_runs_and_nothing_of_the_checkout",
        "test_acceptance_fleet.py::test_installed_collection_with_a_stage_of_ones_own",
    ),
}
# Of the shared cluster.
OPERATORS = ("mpi-operator",)
TESTS = frozenset(name for names in PROMISES.values() for name in names)


def is_quick(nodeid: str) -> bool:
    """Return True if a test, by its id from the root of the checkout, is one of `make test`."""
    name = nodeid.removeprefix("tests/integration/")
    return name in TESTS or name.partition("[")[0] in TESTS
