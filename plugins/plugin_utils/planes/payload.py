# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that is sent to a node: module_utils, a request, and code that unpacks both.

There are two forms of the same files. `archive()` is a zip that python3 runs, for a pod's volume. `program()` is one source text that
unpacks itself in memory. It replaces Ansible's wrapper, which compiles half of ansible.module_utils on every host; it leaves no file on
the node and prints the same answer.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ast
import base64
import functools
import importlib
import importlib.util
import io
import json
import marshal
import math
import pathlib
import types
import typing as t
import zipfile
import zlib

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import probing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection, syntax
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork

PACKAGE = "ansible_collections.gpufleet.acceptance.plugins.module_utils"
HERE = collection.ROOT / "plugins" / "module_utils"

# `sources` is base64 of zlib of the JSON of {module: source}; `compiled` likewise holds a marshalled {module: code} for nodes with the
# controller's version of Python. Other versions compile each source at its import, which takes longer than a short probe itself. Lines are
# short: Python quotes the line at which a cut connection has ended the text, and a long one would block in a pipe without a reader.
_UNPACKING = '''\
import base64, importlib.machinery, importlib.util, json, marshal, sys, zlib
def unpacked(text):
    return zlib.decompress(base64.b64decode(text))
SOURCES = json.loads(unpacked("""{sources}"""))
CODE = marshal.loads(unpacked("""{compiled}""")) if importlib.util.MAGIC_NUMBER == {magic} else {{}}
'''
_MEMORY = """\
class Memory:
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES or any(known.startswith(name + ".") for known in SOURCES):
            return importlib.machinery.ModuleSpec(name, self, is_package=name not in SOURCES)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(CODE.get(name) or compile(SOURCES.get(name, ""), name, "exec", 0, True), module.__dict__)
    def get_source(self, name):
        return SOURCES.get(name, "")
sys.meta_path.insert(0, Memory())
"""

# What `python3 -c` gets to read a program from standard input: half of the time of a short probe was Python's own reading, byte by byte.
READ_PROGRAM = "import sys; exec(sys.stdin.buffer.read())"
# Runs on the node.
_PROGRAM = '''\
{unpacking}
from {package}.program import runner
print(json.dumps(runner.answer(json.loads(base64.b64decode("""{request}""")))))
'''


def sources() -> dict[str, str]:
    """Return {full name: source} of every module of module_utils."""
    texts = {}
    for path in sorted(HERE.rglob("*.py")):
        name = ".".join(path.relative_to(HERE).with_suffix("").parts)
        texts[f"{PACKAGE}.{name}"] = path.read_text(encoding="utf-8")
    return texts


# What python3 runs of a zip: its other member holds the modules, compressed together, for one by one they take a third more.
_MAIN = f"""\
import importlib.machinery, json, sys, zlib
SOURCES, CODE = json.loads(zlib.decompress(__loader__.get_data("modules"))), {{}}
{_MEMORY}
from {PACKAGE}.program import pod
pod.main()
"""


@functools.lru_cache(maxsize=1)
def archive() -> bytes:
    """Return a zip that python3 runs. The same files always give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        modules = zlib.compress(json.dumps(sources(), separators=(",", ":")).encode(), 9)
        for name, data in (("__main__.py", _MAIN.encode()), ("modules", modules)):
            target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return packed.getvalue()


def program(node_request: NodeWork) -> bytes:
    """Return one Python source text with the files and the request. It prints the answer as JSON."""
    text = base64.encodebytes(json.dumps(node_request).encode()).decode()
    probe = "" if "source" in node_request else node_request["probe"]
    return _PROGRAM.format(unpacking=unpacking(probe), package=PACKAGE, request=text).encode()


@functools.lru_cache(maxsize=8)
def unpacking(probe: str = "", program: str = "runner") -> str:
    """Return Python source that makes module_utils importable from memory: all of it, or only what a probe and a file of program/ need."""
    all_sources = sources()
    compiled = _compiled([f"{PACKAGE}.program.{program}", *([probing.module_of(probe)] if probe else [])], all_sources)
    needed = {name: all_sources[name] for name in compiled} if probe else all_sources
    texts = {"sources": json.dumps(needed).encode(), "compiled": marshal.dumps(compiled)}
    packed = {name: base64.encodebytes(zlib.compress(data, 6)).decode() for name, data in texts.items()}
    return _UNPACKING.format(**packed, magic=importlib.util.MAGIC_NUMBER) + _MEMORY


def _compiled(names: list[str], all_sources: dict[str, str]) -> dict[str, types.CodeType]:
    """Return {name: code} of modules and of all modules of module_utils that they import, also inside of functions."""
    codes: dict[str, types.CodeType] = {}
    names = list(names)
    while names:
        name = names.pop()
        if name in codes or name not in all_sources:
            continue
        codes[name], imported = _module(name, all_sources[name])
        names += imported
    return codes


@functools.cache
def _module(name: str, source: str) -> tuple[types.CodeType, list[str]]:
    """Return the code of a module and the names that it may import. Kept, because nearly all modules are those of every probe."""
    tree = syntax.tree(source, name)
    imported: list[str] = []
    statements: list[ast.AST] = [tree]
    while statements:
        node = statements.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            imported += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):  # no expression has an import: they are most of a tree
            statements += getattr(node, part, ())
    return compile(tree, name, "exec", dont_inherit=True), imported


def probe_module(module: str) -> t.Any:
    """Return a probe module, with its OPTIONS and its PROBE (the file in probes/ that does the work)."""
    return importlib.import_module(f"ansible_collections.gpufleet.acceptance.plugins.modules.{module}")


def options(module: str) -> PlainData:
    """Return the argument spec of a probe module."""
    return {**probe_module(module).OPTIONS, **runner.COMMON}


def checkpoint_query(args: PlainData) -> NodeWork:
    """Return the request for the checkpoints of an interrupted attempt, for any probe. Raise ValueError for wrong arguments."""
    validated = ArgumentSpecValidator(runner.COMMON).validate({k: v for k, v in args.items() if v is not None})
    if validated.error_messages:
        raise ValueError("; ".join(validated.error_messages))
    _check_timeouts(validated.validated_parameters)
    return {"probe": "", "params": validated.validated_parameters}


def request(module: str, spec: PlainData, args: PlainData, own_probe: str = "") -> NodeWork:
    """Return the request for the work of a probe module: {"probe", "params"}. `own_probe` is the path of a team's own probe, which is sent
    along and replaces the module's. Raise ValueError for wrong arguments."""
    validated = ArgumentSpecValidator(spec).validate({k: v for k, v in args.items() if v is not None})
    if validated.error_messages:
        raise ValueError("; ".join(validated.error_messages))
    _check_timeouts(validated.validated_parameters)
    work: NodeWork = {"probe": probe_module(module).PROBE, "params": validated.validated_parameters}
    if own_probe:
        work["probe"], work["source"] = pathlib.Path(own_probe).stem, _source(own_probe)
    elif not work["probe"]:
        raise ValueError(f"module {module} does the work of a stage's own probe, and the description of this stage names none")
    return work


def _check_timeouts(params: Variables) -> None:
    """Raise ValueError for a timeout that is not positive or not finite. The plan has checked those of variables, not those of tasks."""
    for name, value in params.items():
        if name.endswith("timeout") and isinstance(value, (int, float)) and not 0 < value < math.inf:
            raise ValueError(f"{name}: found {value:g}, expected more than 0 seconds")


@functools.lru_cache(maxsize=16)
def _source(path: str) -> str:
    """Return the text of a team's own probe. Raise ValueError here, once, if it is no valid Python."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        compile(text, path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"the stage's own probe {path}: {error}") from error
    return text
