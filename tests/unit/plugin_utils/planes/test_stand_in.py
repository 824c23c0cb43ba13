# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file that Ansible gets in place of a module whose program we replace."""

from __future__ import annotations

from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import module_loader
from ansible.template import Templar
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import action, payload


def test_ansible_finds_the_interpreter_and_packs_nothing() -> None:
    for module in ("gemm", "nccl_tests"):
        action.action_of(module)
    path = module_loader.find_plugin(f"ansible.legacy.{action.STAND_IN}")
    variables = {"ansible_python_interpreter": "/opt/python/bin/python3.9"}
    built = modify_module(module_name=action.STAND_IN, module_path=path, module_args={}, templar=Templar(DataLoader()), task_vars=variables)
    assert (built.module_style, built.shebang) == ("new", "#!/opt/python/bin/python3.9")
    assert built.b_module_data == b"#!/opt/python/bin/python3.9\n# {}\n"


def test_a_module_that_is_imported_anywhere_in_another_is_sent_with_it() -> None:
    source = "import one\ndef f():\n  try:\n    from a.b import c\n  except E:\n    import two\n  else:\n    import three\n"
    _code, imported = payload._module("m", source)
    assert sorted(imported) == ["a.b", "a.b.c", "one", "three", "two"]
