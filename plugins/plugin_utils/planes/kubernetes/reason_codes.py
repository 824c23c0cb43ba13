# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason codes of the plane `kubernetes`: what each means, and the next step of whoever is to correct it.

This plugin util is PRIVATE to the collection. records/reason_codes.py reads it, so it imports nothing of ours.
"""

from __future__ import annotations

_EVENTS = "Look at the pod's events (kubectl describe pod), correct the cause, and measure again."

REASON_CODES = {
    "admission": ("the API server's admission refused an object", "Change the object or the policy that refuses it."),
    "bad_spec": ("the API server refused an object as invalid", "Correct the field that the API server names."),
    "cluster_unreachable": ("the cluster's API cannot be reached", "Look at the address of the cluster's API and at the network to it."),
    "container_failed": ("a container could not be made, or ended without a result", _EVENTS),
    "crash_loop": ("a container ends again and again", _EVENTS),
    "evicted": ("the pod was evicted or preempted", "Free memory or disk of the node, or raise the priority of the pods, and run again."),
    "image_pull": ("the container image cannot be pulled", "Look at the name of the image and at the credentials for its registry."),
    "namespace_gone": ("the namespace is absent or being deleted", "Create the namespace."),
    "node_cordoned": ("the node is cordoned or has a taint that is not tolerated", "Uncordon the node, or tolerate its taint."),
    "node_not_ready": ("the node is not ready", "Look at the node's kubelet."),
    "oom_killed": ("the container exceeded its memory limit", "Raise the memory of the pods (acceptance_kube_resources)."),
    "pod_deleted": ("somebody deleted the pod", "Nothing was measured: run again on this node."),
    "pod_refused": ("the kubelet refused the pod", _EVENTS),
    "quota": ("the namespace's quota is used up", "Raise the quota of the namespace, or remove what uses it."),
    "unschedulable": ("the scheduler finds no node for the pod", "Free devices of the node, or tolerate its taints."),
}
