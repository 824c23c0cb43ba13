# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts of the right form whose meaning was changed: no reader takes more than one in 1,000; and none refuses a healthy one. `make fuzz`
tells many more of both."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
import typing as t

import pytest

FUZZ = pathlib.Path(__file__).resolve().parents[1] / "fuzz"


def load() -> t.Any:
    spec = importlib.util.spec_from_file_location("fuzz_run", FUZZ / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_run"] = module
    spec.loader.exec_module(module)
    return module


RUN = load()
MAKERS = [p.stem for p in sorted((FUZZ / "targets").glob("*.py")) if hasattr(RUN.load(p.stem), "HEALTHY")]
LIARS = [p.stem for p in sorted((FUZZ / "targets").glob("*.py")) if getattr(RUN.load(p.stem), "LIES", None)]


@pytest.mark.parametrize("name", LIARS)
def test_lies_are_not_taken(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the first of each class that is taken is kept there
    told = RUN.lie(name, 6000, 9)
    assert told["holds"], {kind: counts for kind, counts in told["classes"].items() if counts[1]}
    never = [kind for kind, counts in told["classes"].items() if not counts[0]]
    assert told["lies"] >= 1000 and len(never) <= 1, f"a class that is never told proves nothing: {never}"


@pytest.mark.parametrize("name", MAKERS)
def test_no_healthy_text_is_refused(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the first that are refused are kept there
    assert RUN.healthy(name, 3000, 9)["refused"] == 0


def test_blind_mutants_of_hccl_test_are_not_read_as_another_number(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a run about as fast, in place of those of the same sizes, are what nobody can see; their count is bounded by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FUZZ))
    mutants = importlib.import_module("mutants")
    classes = mutants.count("hccl_test", 4000, 9)["classes"]
    mixed = classes.pop("rows of two runs mixed at equal sizes")
    assert sum(of["wrong"] for of in classes.values()) * 500 <= sum(sum(of.values()) for of in classes.values())
    assert mixed["wrong"] * 5 <= sum(mixed.values()) and mixed["refused"] > mixed["wrong"]
