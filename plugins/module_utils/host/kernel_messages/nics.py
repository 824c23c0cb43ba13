# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about NICs: of the drivers of NVIDIA (Mellanox), Broadcom, Intel, Amazon and AMD (Pensando), and of the network core.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import BDF, Message, good

_HEALTH = "drivers/net/ethernet/mellanox/mlx5/core/health.c"
_EVENTS = "drivers/net/ethernet/mellanox/mlx5/core/events.c"
# The name of the interface as netdev_err prints it, also before it has one: `eth2`, `(unnamed net_device) (uninitialized)`.
_NAME = r"(?: (?:\([\w ]{1,40}\)|[\w@.-]{1,40})){0,3}: "
_MLX5 = rf"(mlx5_core(?: {BDF})?){_NAME}(?:\w+:\d+:(?:\(pid \d+\):? ?)? ?)?"
_OTHERS = (
    r"((?:bnxt_en|bnxt_re|ice|irdma|i40e|idpf|ixgbe|ionic|ena|efa|hfi1|qede|qed|mlx4_core|sfc|cxgb4|hns3|gve|igb|igc|e1000e|tg3|bnx2x|fm10k|"
    r"atlantic)"
)
_NIC = rf"{_OTHERS}(?: {BDF})?){_NAME}"

MESSAGES: tuple[Message, ...] = (
    # The firmware of mlx5. Its driver may recover: that it failed at all is then worth a look.
    Message(
        rf"{_MLX5}[^\n]*?(?:device's health compromised|Health issue observed[^\n]*?severity\((?:[0-3])\)|FW is unable to respond)",
        "nic_fault",
        "a NIC's firmware does not answer",
        f"{_HEALTH} poll_health, print_health_info",
        "firmware",
        "nic_event",
    ),
    Message(
        rf"{_MLX5}[^\n]*?(?:fatal error|assert_exit_ptr 0x(?!0+\b)[0-9a-f]+|firmware internal error|synd 0x(?!0+:)[0-9a-f]+:|"
        r"in fatal (?:state|status)|handling bad device|internal state error|unrecoverable|device in bad state)",
        "nic_fault",
        "a NIC's firmware failed",
        f"{_HEALTH} poll_health, print_health_info, mlx5_health_try_recover",
        "firmware",
        "nic_event",
    ),
    Message(
        rf"{_MLX5}[^\n]*?(?:recovery (?:flow )?(?:failed|aborted)|failed (?:to )?recover|health recovery flow aborted|"
        rf"PCI reads still not working|"
        r"Driver is in error state|reset failed)",
        "nic_fault",
        "a NIC's firmware did not recover",
        f"{_HEALTH} mlx5_health_try_recover",
        "firmware",
        "nic_event",
    ),
    good(rf"{_MLX5}[^\n]*?health re\wovery succe\w+", "firmware", f"{_HEALTH} mlx5_health_try_recover"),
    Message(
        rf"{_MLX5}[^\n]*?\w+\(0x[0-9a-f]+\) (?:canceled on out of queue )?timeout\. Will cause a leak",
        "nic_fault",
        "a NIC's firmware does not answer",
        "drivers/net/ethernet/mellanox/mlx5/core/cmd.c wait_func",
        "firmware",
        "nic_event",
    ),
    Message(
        rf"{_MLX5}[^\n]*?(?:Firmware over \d+ MS in|mlx5_init_one failed|mlx5_load_one failed|mlx5_function_setup failed|"
        r"init_one failed|probe with driver mlx5_core failed|wait for FW init|FW did not return all pages)",
        "nic_fault",
        "a NIC could not be started",
        "drivers/net/ethernet/mellanox/mlx5/core/main.c mlx5_function_enable, probe_one",
        "firmware",
        "nic_event",
    ),
    Message(
        rf"{_MLX5}[^\n]*?Port module event\[error\]: module (\d+)",
        "nic_fault",
        "a NIC reports an error of its cable or transceiver",
        f"{_EVENTS} mlx5_port_module_event",
        "module",
        "nic_event",
    ),
    good(rf"{_MLX5}[^\n]*?Port module event: module (\d+), Cable (?:plugged|enabled)", "module", f"{_EVENTS} mlx5_port_module_event"),
    Message(
        rf"{_MLX5}[^\n]*?Detected insufficient power on the PCIe slot",
        "nic_event",
        "a slot says that it has too little power for a NIC",
        f"{_EVENTS} mlx5_pcie_event",
        "slot power",
    ),
    good(rf"{_MLX5}[^\n]*?PCIe slot advertised sufficient power", "slot power", f"{_EVENTS} mlx5_pcie_event"),
    Message(
        rf"{_MLX5}[^\n]*?(?:High temperature on sensors|temperature (?:is )?(?:too high|above|exceed))",
        "nic_event",
        "a NIC was too hot",
        f"{_EVENTS} temp_warn",
    ),
    Message(
        rf"{_MLX5}[^\n]*?(?:TX timeout|tx_timeout)",
        "nic_event",
        "a NIC did not send for seconds",
        "drivers/net/ethernet/mellanox/mlx5/core/en/reporter_tx.c",
    ),
    Message(
        rf"mlx5_core: probe of ({BDF}) failed with error", "nic_fault", "a NIC could not be started", "drivers/base/dd.c before Linux 6.10"
    ),
    # Other drivers.
    Message(
        rf"{_NIC}[^\n]*?(?:Firmware (?:is )?not responding|"
        r"(?:FW|Firmware) heartbeat (?:stopped|stalled|lost|failure)|FW Down|"
        r"Firmware (?:non-)?fatal|fatal (?:firmware|hardware|error)|FATAL firmware|unrecoverable|firmware (?:has )?(?:crash|died|halted)|"
        r"(?:Firmware|entering|in) recovery mode|"
        r"hardware (?:error|failure)|HW Error|ECC (?:error|err)|Rebuild failed|Firmware reset (?:failed|timed out|aborted)|"
        r"bnxt_open\(\) failed during FW reset|Failed to reinitialize after aborted firmware reset|Firmware init phase \d failed|"
        r"unable to contact the device's firmware|Lost 8051 heartbeat|"
        r"ice_wait_for_fw timed out|Error resetting device\.|"
        r"adapter (?:is )?dead|"
        r"Abandoning|Error \(timeout:|Keep ?alive watchdog timeout|Admin(?: queue)? (?:q )?(?:is )?(?:timeout|timed out|not running)|"
        r"PCIe link lost|Adapter removed|"
        r"reset (?:attempt |\d+ )?(?:failed|did not complete)|PF reset failed|device (?:is )?(?:not responding|removed|in bad state))",
        "nic_fault",
        "a NIC's firmware failed",
        "bnxt_en/bnxt.c, ice/ice_main.c, i40e_main.c, irdma/hw.c, ionic_dev.c, ena_netdev.c, efa_com.c; "
        "igb_main.c igb_rd32, igc_main.c igc_rd32, ixgbe_main.c ixgbe_remove_adapter",
        "firmware",
        "nic_event",
    ),
    good(
        rf"{_NIC}[^\n]*?(?:Firmware (?:reset|recover\w*) (?:done|complete\w*|succe\w+)|Recovered from (?:firmware|error)|FW Up|"
        rf"error recovery (?:done|completed)|Device reset completed successfully)",
        "firmware",
        "bnxt_en/bnxt.c bnxt_fw_reset_task; ionic_lif.c ionic_lif_handle_fw_up; ena_netdev.c ena_restore_device",
    ),
    Message(
        rf"{_NIC}[^\n]*?(?:(?:chip |over)?temperature (?:has gone |is )?(?:above|too high|critical|exceed)|overheat|"
        rf"thermal (?:event|shutdown|alert|alarm)|"
        r"over heat)",
        "nic_event",
        "a NIC was too hot",
        "bnxt_en/bnxt.c bnxt_event_error_report; ixgbe_main.c; ice_main.c",
    ),
    Message(
        rf"{_NIC}[^\n]*?(?:TX timeout detected|(?:Tx|Hardware) Unit Hang|tx hang|TX[ _]timeout|transmit timed out)",
        "nic_event",
        "a NIC did not send for seconds",
        "bnxt_en/bnxt.c bnxt_tx_timeout; ice_main.c ice_tx_timeout; ixgbe_main.c",
    ),
    Message(
        rf"{_OTHERS}): probe of ({BDF}) failed with error", "nic_fault", "a NIC could not be started", "drivers/base/dd.c before Linux 6.10"
    ),
    Message(rf"{_NIC}probe with driver \S+ failed with error", "nic_fault", "a NIC could not be started", "drivers/base/dd.c really_probe"),
    Message(
        r"NETDEV WATCHDOG: (?:CPU: \d+: )?(\S+)", "nic_event", "a NIC did not send for seconds", "net/sched/sch_generic.c dev_watchdog"
    ),
    Message(
        rf"[\w-]{{1,40}} {BDF} (\S+): NETDEV WATCHDOG: ",
        "nic_event",
        "a NIC did not send for seconds",
        "net/sched/sch_generic.c dev_watchdog since Linux 6.8",
    ),
)
