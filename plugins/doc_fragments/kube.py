# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of every module that works on a Kubernetes cluster."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Kubeconfig on the controller. Without it and O(server), E(KUBECONFIG) is used, the service account of the pod that Ansible
        runs in, or C(~/.kube/config).
      - An option that is not given is taken from the host's variable of the same name with the prefix C(acceptance_kube_).
    type: path
  context:
    description: Context of the kubeconfig; its current one where it is not given.
    type: str
  server:
    description: Address of the API server, where O(token_file) takes the place of a kubeconfig.
    type: str
  token_file:
    description: File on the controller with the token.
    type: path
  ca_file:
    description: File on the controller with the certificate authority of the API server.
    type: path
  namespace:
    description: Namespace of everything that is made or looked for; that of the credentials where it is not given.
    type: str
  proxy:
    description: Proxy on the way to the API server; that of the environment where it is not given.
    type: str
  no_proxy:
    description: Hosts that are reached without it; E(NO_PROXY) where it is not given.
    type: str
notes:
  - Runs on the controller. Credentials stand in no result and no output.
requirements:
  - kubernetes (Python package, on the controller)
"""
