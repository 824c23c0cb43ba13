# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that starts Ascend's runtime (ACL, of CANN) in a child, and the judgement of what it prints.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

# Initialises ACL for real and takes every NPU once, then asks torch_npu where it is installed.
ASK_ACL = """
import ctypes, json
said = {}
def say():
    print("ACL " + json.dumps(said), flush=True)
try:
    acl = ctypes.CDLL("libascendcl.so")
    count = ctypes.c_uint32()
    said["init"] = acl.aclInit(None)
    said["count_status"] = acl.aclrtGetDeviceCount(ctypes.byref(count))
    said["count"] = count.value if said["count_status"] == 0 else 0
    said["contexts"] = []
    for index in range(said["count"]):
        status = acl.aclrtSetDevice(index)
        if status == 0:
            acl.aclrtResetDevice(index)
        said["contexts"].append(status)
    try:
        acl.aclrtGetSocName.restype = ctypes.c_char_p
        said["soc"] = (acl.aclrtGetSocName() or b"").decode("ascii", "replace")
    except AttributeError:
        pass
except OSError as error:
    said["library"] = str(error)
say()
try:
    import torch, torch_npu
    said["torch"] = torch.__version__
    said["torch_npu"] = torch_npu.__version__
    said["torch_available"] = bool(torch.npu.is_available())
    said["torch_count"] = torch.npu.device_count() if said["torch_available"] else 0
except ImportError as error:
    if getattr(error, "name", None) not in ("torch", "torch_npu"):
        said["torch_error"] = "ImportError: %s" % error
except Exception as error:
    said["torch_error"] = "%s: %s" % (type(error).__name__, error)
say()
"""
# The status of aclInit if this process has called it before.
REPEATED = 100002


def problem(report: dict[str, t.Any], npus: int | None) -> tuple[str, str] | None:
    """Return the defect of ACL that the child's report shows, as (reason code, reason); None if there is none. `npus`: the number of NPUs
    that ACL must see."""
    if "library" in report:
        return "acl_failed", f"CANN's runtime cannot be loaded: {report['library']}; is the toolkit installed, or its set_env.sh needed?"
    if report.get("init") not in (0, REPEATED):
        return "acl_failed", f"aclInit failed: error {report.get('init')}"
    if report.get("count_status") != 0:
        return "acl_failed", f"ACL cannot count its devices: error {report.get('count_status')}"
    if npus is not None and report.get("count") != npus:
        return "gpu_count", f"ACL sees {report.get('count')} NPUs and npu-smi {npus}: see ASCEND_RT_VISIBLE_DEVICES"
    refused = [f"NPU {index}: error {status}" for index, status in enumerate(report.get("contexts") or []) if status != 0]
    if refused:
        return "acl_failed", f"NPUs that cannot be taken: {'; '.join(refused)}"
    if report.get("torch_error"):
        return "acl_failed", f"torch_npu cannot be used: {report['torch_error']}"[:500]
    if report.get("torch_npu") and report.get("torch_available") is False:
        return "acl_failed", f"torch_npu {report['torch_npu']} on torch {report.get('torch')} says that no NPU is available"
    return None
