# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples/awx: playbooks that exist, surveys whose answers our variables take, schedules that answer their surveys.

No AWX is here. The rules of surveys and of recurrences are those that AWX 24 applies when it is sent one."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml
from dateutil import rrule

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs/examples/awx"
WRITTEN = yaml.safe_load((EXAMPLES / "templates.yml").read_text(encoding="utf-8"))
TEMPLATES = {template["name"]: template for template in WRITTEN["acceptance_job_templates"]}
TYPES = {"text": str, "integer": int, "multiplechoice": str}
Question = t.Dict[str, t.Any]


def questions(template: dict[str, t.Any]) -> dict[str, Question]:
    return {question["variable"]: question for question in template.get("survey_spec", {}).get("spec", [])}


def playbook_of(template: dict[str, t.Any]) -> pathlib.Path:
    """The playbook of the collection that a template runs."""
    (play,) = yaml.safe_load((EXAMPLES / "project" / template["playbook"]).read_text(encoding="utf-8"))
    namespace, collection, name = play["ansible.builtin.import_playbook"].split(".")
    assert (namespace, collection) == ("gpufleet", "acceptance")
    return ROOT / "playbooks" / f"{name}.yml"


def answers(question: Question, value: t.Any) -> bool:
    """Return True if AWX takes a value as the answer to a question."""
    if not isinstance(value, TYPES[question["type"]]):
        return False
    if question["type"] == "multiplechoice":
        return value in question["choices"]
    size = len(value) if isinstance(value, str) else value
    return bool(question["min"] <= size <= question["max"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_runs_a_playbook_and_asks_what_it_takes(name: str) -> None:
    template = TEMPLATES[name]
    playbook = playbook_of(template)
    assert playbook.is_file() and playbook.name == template["playbook"]
    # A playbook names what it takes in its first lines, or passes it to the tasks of the role `common`.
    tasks = [path.read_text(encoding="utf-8") for path in (ROOT / "roles/common/tasks").glob("*.yml")]
    known = " ".join([playbook.read_text(encoding="utf-8"), *tasks])
    specs = yaml.safe_load((ROOT / "roles/common/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    survey = template.get("survey_spec", {})
    assert not survey or {"name", "description", "spec"} == survey.keys()
    for variable, question in questions(template).items():
        assert {"question_name", "question_description", "variable", "type", "required"} < question.keys() and question["required"]
        assert question["default"] == "" or answers(question, question["default"]), question
        if variable.startswith("acceptance_"):
            assert question["choices"] == options[variable]["choices"] and question["default"] == options[variable]["default"]
        else:
            assert re.search(rf"\b{variable}\b", known), variable


@pytest.mark.parametrize("schedule", WRITTEN["acceptance_schedules"], ids=lambda schedule: schedule["name"])
def test_a_schedule_answers_the_survey_of_its_template_and_is_off(schedule: dict[str, t.Any]) -> None:
    asked, given = questions(TEMPLATES[schedule["unified_job_template"]]), schedule.get("extra_data", {})
    assert asked.keys() == given.keys() and all(answers(asked[variable], value) for variable, value in given.items())
    assert schedule["enabled"] is False
    assert re.fullmatch(r"DTSTART;TZID=[\w/]+:\d{8}T\d{6} RRULE:FREQ=\w+;INTERVAL=\d+[\w;=]*", schedule["rrule"])
    assert "BYDAY=" not in schedule["rrule"] or not re.search(r"BYDAY=\d", schedule["rrule"])
    times = rrule.rrulestr(schedule["rrule"].replace(" ", "\n"))
    assert times[0] == times._dtstart  # it begins on a day of its own rule


def test_every_entry_is_applied() -> None:
    (play,) = yaml.safe_load((EXAMPLES / "apply.yml").read_text(encoding="utf-8"))
    text = (EXAMPLES / "apply.yml").read_text(encoding="utf-8")
    for entries in WRITTEN.values():
        for entry in entries:
            assert all(f"item.{field}" in text for field in entry)
    assert [task["loop"] for task in play["tasks"]] == [f"{{{{ {name} }}}}" for name in WRITTEN]
    assert play["tasks"][0]["awx.awx.job_template"]["job_slice_count"] == 1
