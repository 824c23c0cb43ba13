# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell virtual machines from physical ones: a virtual one may be given one of the eight GPUs of a board.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re

# What hypervisors write into the DMI tables, vendor and product in one text. `Amazon EC2` is also the vendor of its bare-metal types.
_DMI = re.compile(
    r"(?i)\b(?:qemu|kvm|bochs|vmware|virtualbox|innotek|xen|hvm domu|virtual machine|google compute engine|openstack|parallels|ovirt|rhev"
    r"|alibaba cloud|tencent cloud|hua ?wei ?cloud|ahv|digitalocean|cloud hypervisor|vserver)\b|^amazon ec2(?!.*\.metal)|standard pc \("
)


def by_dmi(vendor: str, product: str) -> bool:
    """Return True if vendor and product of a machine are those of a hypervisor."""
    return bool(_DMI.search(f"{vendor} {product}"))


def by_cpuinfo(text: str) -> bool:
    """Return True if /proc/cpuinfo of an x86 machine has the flag that every hypervisor sets for its guests."""
    return bool(re.search(r"(?m)^flags\s*:.*\bhypervisor\b", text))
