# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about disks: NVMe, the block layer, SCSI, ATA, and controllers with disks behind them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import BDF, Message, good, harmless

# Names of disks: not of optical and floppy drives, RAM disks, loops and disks of the network, whose errors are not this machine's.
_DISK = r"((?:sd|nvme|vd|xvd|hd|dm-|md|mmcblk|pmem)\w*)"
_BLOCK = r"(?:blk_update_request: |print_req_error: )?"
_NVME = r"nvme (nvme\d+(?:c\d+)?): "
_NVME_SOURCE = "drivers/nvme/host/pci.c"
# Commands that write or erase nothing that anybody reads later: a disk may lack them, and the kernel then goes another way. Linux 4.20 to
# 5.3 prints no name of the command, which is the lowest 8 bits of the flags there, a number without 0x (include/linux/blk_types.h:
# REQ_OP_DISCARD is 3, SECURE_ERASE 5, WRITE_SAME 7, WRITE_ZEROES 9).
_WITHOUT_DATA = (
    r"(?:[^\n]*?\bop 0x[0-9a-f]+:\((?:DISCARD|SECURE_ERASE|WRITE_ZEROES|WRITE_SAME)\)|"
    r"sector \d+ flags (?:[0-9a-f]*0)?[3579](?:\s|$))"
)
# The address too, since a disk that went away has no name any more.
_SCSI = r"(?:sd|ses|scsi) (\d+:\d+:\d+:\d+): (?:\[(\w+)\] )?(?:tag#\d+ )?"
_MEGA = rf"(mega(?:raid_)?sas)(?: {BDF})?:"
_BLOCK_SOURCE = "block/blk-core.c blk_print_req_error (print_req_error, blk_update_request before Linux 5.16)"

MESSAGES: tuple[Message, ...] = (
    # NVMe. Since Linux 6.3 the tag and the name of the command stand between I/O and QID.
    Message(
        rf"{_NVME}(?:I/O|queue) [^\n]*?timeout, completion polled",
        "disk_worn",
        "an NVMe disk lost an interrupt",
        f"{_NVME_SOURCE} nvme_timeout",
    ),
    Message(
        rf"{_NVME}I/O [^\n]*?timeout(?:, (?:aborting|reset controller|disable controller)|\b)",
        "disk",
        "an NVMe disk did not answer",
        f"{_NVME_SOURCE} nvme_timeout",
    ),
    Message(
        rf"{_NVME}(?:controller is down|Removing after probe failure|Disabling device after reset failure|Device not ready|"
        r"resetting controller due to|controller (?:is in )?fatal (?:status|error)|Device shutdown incomplete|"
        r"(?:Identify Controller|Identify namespace|Could not set queue count|Controller) failed|failed to (?:mark controller|start))",
        "disk",
        "an NVMe disk did not answer",
        f"{_NVME_SOURCE} nvme_warn_reset, nvme_remove_dead_ctrl, nvme_reset_work; core.c nvme_wait_ready",
    ),
    Message(
        r"block (nvme\w+): no (?:usable|available) path",
        "disk",
        "an NVMe disk has no path left",
        "drivers/nvme/host/multipath.c nvme_ns_head_submit_bio",
    ),
    Message(
        rf"{_NVME}frozen state error detected", "disk", "an NVMe disk was cut off by a PCIe error", f"{_NVME_SOURCE} nvme_error_detected"
    ),
    Message(
        rf"nvme ({BDF}): (?:probe with driver nvme failed|Removing after probe failure)",
        "disk",
        "an NVMe disk could not be started",
        "drivers/base/dd.c really_probe",
    ),
    Message(
        rf"nvme: probe of ({BDF}) failed with error", "disk", "an NVMe disk could not be started", "drivers/base/dd.c before Linux 6.10"
    ),
    Message(
        r"(nvme\w+): [^\n]{1,60}?\(0x[0-9a-f]+\)(?: @ LBA |, )[^\n]*?\(sct 0x2 / sc 0x8[0-4]\)",
        "disk",
        "an NVMe disk could not read or write data",
        "drivers/nvme/host/core.c nvme_log_error; NVMe base specification, media and data integrity errors",
    ),
    Message(
        r"(nvme\w+): [^\n]{1,60}?\(0x[0-9a-f]+\) @ LBA [^\n]*?Internal (?:Device )?Error",
        "disk",
        "an NVMe disk had an internal error",
        "drivers/nvme/host/core.c nvme_log_error",
    ),
    Message(
        r"(nvme\w+): [^\n]{1,60}?\(0x[0-9a-f]+\), [^\n]*?(?:Internal (?:Device )?Error|\(sct 0x0 / sc 0x6\))",
        "disk_worn",
        "an NVMe disk had an internal error in a command without data",
        "drivers/nvme/host/core.c nvme_log_error, nvme_log_err_passthru",
    ),
    # The block layer.
    harmless(
        rf"{_BLOCK}(?:critical (?:medium|target)|operation not supported) error, dev \w+, {_WITHOUT_DATA}",
        "a command without data that the disk lacks",
        _BLOCK_SOURCE,
    ),
    Message(
        rf"{_BLOCK}(?:I/O|protection) error, dev {_DISK}, {_WITHOUT_DATA}",
        "disk_worn",
        "a command without data failed on a disk",
        _BLOCK_SOURCE,
    ),
    Message(
        rf"{_BLOCK}(?:critical (?:medium|target) error|(?:I/O|timeout|protection|device offline) error), dev {_DISK}",
        "disk",
        "input or output error of a disk",
        _BLOCK_SOURCE,
    ),
    Message(rf"Buffer I/O error on (?:dev|device) {_DISK}", "disk", "input or output error of a disk", "fs/buffer.c buffer_io_error"),
    Message(rf"lost (?:async|sync) page write due to I/O error on (?:dev )?{_DISK}", "disk", "written data was lost", "fs/buffer.c"),
    # SCSI and ATA.
    Message(
        rf"{_SCSI}Sense Key : (?:Medium Error|Hardware Error)",
        "disk",
        "a disk reports an error of its medium or hardware",
        "drivers/scsi/scsi_logging.c scsi_log_print_sense_hdr",
    ),
    Message(rf"{_SCSI}Sense Key : Recovered Error", "disk_worn", "a disk corrected an error", "drivers/scsi/scsi_logging.c"),
    Message(
        rf"{_SCSI}(?:rejecting I/O to offline device|Device offlined|Device (?:went )?offline)",
        "disk",
        "a disk was taken offline",
        "drivers/scsi/scsi_lib.c scsi_prep_state_check, scsi_error.c scsi_eh_offline_sdevs",
    ),
    # A device that was taken out; a disk that broke has other messages too.
    Message(
        rf"{_SCSI}rejecting I/O to dead device",
        "disk_worn",
        "a disk went away",
        "drivers/scsi/scsi_lib.c scsi_device_state_check",
    ),
    Message(rf"{_SCSI}Synchronize Cache\(\d+\) failed", "disk_worn", "a disk did not write its cache", "drivers/scsi/sd.c sd_sync_cache"),
    Message(
        rf"{_SCSI}(?:Predictive failure|failure prediction threshold exceeded)",
        "disk",
        "a disk says that it is about to fail",
        "SCSI primary commands, additional sense code 5Dh",
    ),
    Message(
        r"(ata\d+(?:\.\d+)?): (?:error: \{ [^\n}]*\b(?:UNC|ABRT IDNF|IDNF)\b|disabled|disabling device|disable device|"
        r"failed to recover|reset failed, giving up)",
        "disk",
        "a disk could not read data or does not answer",
        "drivers/ata/libata-eh.c ata_eh_link_report, ata_dev_disable",
    ),
    Message(
        r"(ata\d+(?:\.\d+)?): (?:exception Emask|failed command:|qc timeout|limiting SATA link speed|failed to IDENTIFY|SError: \{|"
        r"NCQ disabled due to excessive errors|reset failed \(errno)",
        "disk_worn",
        "a disk or its cable had an error",
        "drivers/ata/libata-eh.c ata_eh_link_report, ata_eh_speed_down, ata_eh_reset",
    ),
    # Controllers with disks behind them.
    Message(
        r"(mpt[23]sas_cm\d+|mpt[23]sas\d+|mpi3mr\d+)[:_ ][^\n]{0,80}?(?:fault_state\(0x|coredump_state\(0x|fault code|"
        r"SAS host is non-operational|"
        r"_base_fault_reset_work|diag reset: FAILED|controller is in unrecoverable state|unrecoverable|"
        r"controller initialization failed|failed to bring (?:to ready state|ioc ready)|Running mpt3sas_dead_ioc thread)",
        "disk",
        "the firmware of a disk controller failed",
        "drivers/scsi/mpt3sas/mpt3sas_base.c mpt3sas_base_fault_info, _base_fault_reset_work; mpi3mr/mpi3mr_fw.c mpi3mr_soft_reset_handler",
    ),
    Message(
        r"(mpt[23]sas_cm\d+): (?:attempting (?:task abort|device reset|target reset|host reset)|issue target reset)",
        "disk_worn",
        "a disk did not answer its controller",
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort, scsih_dev_reset",
    ),
    Message(
        r"(mpt[23]sas_cm\d+): Temperature Threshold flags [^\n]*?exceeded for Sensor: \d+",
        "disk_worn",
        "a disk controller was too hot",
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c _scsih_temp_threshold_events",
    ),
    Message(
        r"(smartpqi) [^\n]*?(?:resetting scsi \d|attempting TASK ABORT on scsi \d)",
        "disk_worn",
        "a disk did not answer its controller",
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_device_reset_handler, pqi_eh_abort_handler",
    ),
    Message(
        r"(smartpqi) [^\n]*?reset of scsi [\d:]+: FAILED",
        "disk",
        "a disk did not come back after a reset",
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_device_reset_handler",
    ),
    Message(
        r"(megaraid_sas) [^\n]*?(?:resetting fusion adapter scsi\d|pending commands remain after waiting, will reset adapter)",
        "disk_worn",
        "a disk controller was reset, as commands did not end",
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_reset_fusion",
    ),
    Message(
        r"(mega(?:raid_)?sas)(?:[:\s][^\n]*?)?(?:FW (?:detected to be )?in fault ?state|fw in fault state|adapter never cleared|"
        r"killing adapter|"
        r"Firmware crash dump|Adapter is OFFLINE|FW (?:was )?not able to come)",
        "disk",
        "the firmware of a disk controller failed",
        "drivers/scsi/megaraid/megaraid_sas_base.c, megaraid_sas_fusion.c megasas_wait_for_outstanding_fusion",
    ),
    Message(
        rf"{_MEGA}[^\n]*?\b(VD [0-9a-f]+/\d+)(?:\([^)]*\))? (?:is now|from \S+ to) (?:OFFLINE|DEGRADED|PARTIALLY DEGRADED|FAILED)",
        "disk",
        "a volume of a disk controller lost a disk",
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_decode_evt",
        "volume",
    ),
    good(
        rf"{_MEGA}[^\n]*?\b(VD [0-9a-f]+/\d+)(?:\([^)]*\))? (?:is now|from \S+ to) OPTIMAL",
        "volume",
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_decode_evt",
    ),
    Message(
        rf"{_MEGA} [^\n]*?/(?:CRIT|FATAL|DEAD)\) - ",
        "disk",
        "a disk controller reports a fault of a disk, a volume or itself",
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_decode_evt",
    ),
    Message(
        r"(mega(?:raid_)?sas|smartpqi|hpsa|aacraid|arcmsr\d*|mpt3sas_cm\d+)\b[^\n]*?"
        r"(?:(?:logical (?:volume|drive)|volume|virtual (?:disk|drive)|VD|RAID volume|array)\b[^\n]{0,60}?\b(?:offline|failed|"
        r"degraded|missing)\b|"
        r"is now (?:OFFLINE|DEGRADED))",
        "disk",
        "a volume of a disk controller lost a disk",
        "megaraid_sas, mpt3sas, smartpqi, hpsa, aacraid",
    ),
    Message(
        r"(smartpqi|hpsa|aacraid|arcmsr\d*)\b[^\n]*?(?:controller (?:is )?offline\b|controller lockup detected|kernel panic'd|"
        r"no heartbeat detected|"
        r"adapter kernel failed|"
        r"is not responding|controller (?:has )?failed)",
        "disk",
        "a disk controller failed",
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_take_ctrl_offline, pqi_heartbeat_timer_handler; hpsa.c controller_lockup_detected; "
        "aacraid/commsup.c",
    ),
)
