# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes: the shell tools of tools/, a node.conf with its faults, and host variables that point at them."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE / "tools"

# Model -> (memory in MiB, VBIOS, healthy busbw in GB/s, healthy BF16 TFLOPS).
MODELS = {
    "NVIDIA H100 80GB HBM3": (81559, "96.00.68.00.01", 478, 725),
    "NVIDIA H200": (143771, "96.00.A5.00.1A", 479, 705),
    # A tray of a GB200 NVL72 rack; its healthy busbw is that of its four GPUs.
    "NVIDIA GB200": (189471, "97.00.82.00.18", 680, 1822),
    "NVIDIA A1 Imaginary": (81559, "00.00.00.00.01", 478, 725),
    "Ascend 910B3": (65536, "7.8.0.6.201", 160, 0),
    "AMD Instinct MI300X": (196592, "022.040.003.043.000001", 313, 660),
    "AMD Instinct MI355X": (294896, "022.040.003.043.000001", 361, 1560),
}


def ascend(model: str) -> bool:
    """Return True if a model is an NPU: another tool shows it, and its driver counts its versions otherwise."""
    return model.startswith("Ascend")


def amd(model: str) -> bool:
    """Return True if a model is one of AMD."""
    return model.startswith("AMD")


def conf(identity: int, model: str = "NVIDIA H200", faults: str = "", gpus: int = 8, driver: str = "", **more: t.Any) -> str:
    """The text of a node.conf; `more` overrides its other settings, SLEEP=20 for example."""
    memory, vbios, busbw, tflops = MODELS[model]
    driver = driver or ("25.5.1" if ascend(model) else "6.14.14" if amd(model) else "580.159.04")
    settings: dict[str, t.Any] = {
        "NAME": model, "GPUS": gpus, "MEMORY": memory, "DRIVER": driver, "CUDA": "13.0", "VBIOS": vbios, "BUSBW": busbw,
        "TFLOPS": tflops, "IDENTITY": identity, "FAULTS": faults, **more,
    }  # fmt: skip
    return "".join(f'{name}="{value}"\n' for name, value in settings.items())


# What a kernel logs first after boot.
BOOTED = "6,0,0,-;Linux version 6.8.0 (simulated by gpufleet.acceptance)\n"


def local(
    folder: pathlib.Path, identity: int, machine_id: int | None = None, kernel_log: str | None = None, **settings: t.Any
) -> dict[str, t.Any]:
    """A node of this machine under `folder`; returns the host variables that make Ansible use it. `kernel_log` are the lines that its
    kernel has logged behind the first; None where nobody may read them."""
    (folder / "root/etc").mkdir(parents=True)
    (folder / "root/tmp").mkdir()
    (folder / "root/etc/machine-id").write_text(f"{machine_id or identity:032x}\n")
    (folder / "root/etc/os-release").write_text('PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\n')
    if kernel_log is not None:
        (folder / "root/dev").mkdir()
        (folder / "root/dev/kmsg").write_text(BOOTED + kernel_log)
    (folder / "node.conf").write_text(conf(identity, **settings))
    (folder / "bin").symlink_to(TOOLS)
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "acceptance_simulated": True,
        "acceptance_become": False,
        "acceptance_root": str(folder / "root"),
        "acceptance_state_dir": str(folder / "state"),
        **tools_at(folder / "bin", settings.get("model", "NVIDIA H200")),
    }


def planted(plant: pathlib.Path, identity: int, **settings: t.Any) -> None:
    """Put the tools into a fleet host's /opt/simulated, as that host would have them."""
    (plant / "bin").mkdir(parents=True, exist_ok=True)
    for tool in TOOLS.iterdir():
        shutil.copy(tool, plant / "bin" / tool.name, follow_symlinks=True)
    shutil.copy(HERE / "gpu.xml", plant / "gpu.xml")
    (plant / "node.conf").write_text(conf(identity, **settings))


def tools_at(folder: pathlib.Path | str, model: str = "NVIDIA H200") -> dict[str, t.Any]:
    """Variables that point the stages at the tools of a folder."""
    tool = "npu-smi" if ascend(model) else "amd-smi" if amd(model) else "nvidia-smi"
    return {
        f"acceptance_{tool.replace('-', '_')}": f"{folder}/{tool}",
        "nccl_node_binary_dir": str(folder),
        "acceptance_python": f"{folder}/python3",
    }
