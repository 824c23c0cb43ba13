#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the Grafana dashboards of files/observability/dashboards; a test holds the files against this."""

from __future__ import annotations

import json
import pathlib
import sys

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "files/observability/dashboards"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${source}")
P = "gpufleet_acceptance_"
MATRIX = models.DataTransformerConfig(id_val="groupingToMatrix", options={"rowField": "a", "columnField": "b", "valueField": "Value"})
BAD = '{verdict=~"FAIL|UNKNOWN"}'


def query(expression: str, legend: str = "", as_table: bool = False) -> prometheus.Dataquery:
    found = prometheus.Dataquery().expr(expression).legend_format(legend)
    return found.instant().format("table") if as_table else found


def number(title: str, expression: str, unit: str = "short") -> stat.Panel:
    return stat.Panel().title(title).datasource(SOURCE).unit(unit).height(4).span(6).with_target(query(expression))


def curves(title: str, expression: str, legend: str, unit: str = "short", span: int = 12) -> timeseries.Panel:
    return timeseries.Panel().title(title).datasource(SOURCE).unit(unit).height(9).span(span).with_target(query(expression, legend))


def rows(title: str, expression: str, span: int = 24, height: int = 10) -> table.Panel:
    made = table.Panel().title(title).datasource(SOURCE).height(height).span(span)
    return made.cell_height(common.TableCellHeight.SM).with_target(query(expression, as_table=True))


def board(title: str, name: str) -> dashboard.Dashboard:
    made = dashboard.Dashboard(f"GPU fleet acceptance: {title}").uid(f"gpufleet-acceptance-{name}").tags(["gpufleet-acceptance"])
    return made.refresh("1m").time("now-30d", "now").with_variable(dashboard.DatasourceVariable("source").type("prometheus"))


def choice(name: str, of: str) -> dashboard.QueryVariable:
    return dashboard.QueryVariable(name).datasource(SOURCE).query(of).refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)


def boards() -> dict[str, dashboard.Dashboard]:
    return {
        "fleet": board("fleet", "fleet")
        .with_panel(number("Nodes", f'count({P}node_verdict{{kind="node"}})'))
        .with_panel(number("Not accepted", f"count({P}node_verdict{BAD}) or vector(0)"))
        .with_panel(number("Coverage of the last runs", f"min({P}coverage)", "percentunit"))
        .with_panel(number("Oldest test of a node", f"time() - min({P}node_judged_seconds)", "s"))
        .with_panel(curves("Nodes by verdict", f"count by (verdict) ({P}node_verdict)", "{{verdict}}"))
        .with_panel(curves("Least of floor, by check", f"min by (stage, check) ({P}check_value / {P}check_floor)", "{{stage}} {{check}}"))
        .with_panel(rows("Nodes that are not accepted", f"{P}node_verdict{BAD}"))
        .with_panel(rows("Runs", f"{P}accepted", height=6)),
        "node": board("node", "node")
        .with_variable(choice("node", f"label_values({P}node_verdict, node)"))
        .with_panel(rows("Verdict", f'{P}node_verdict{{node="$node"}}', span=12, height=4))
        .with_panel(number("Last test", f'time() - {P}node_judged_seconds{{node="$node"}}', "s").span(12))
        .with_panel(rows("Checks", f'{P}check_verdict{{node="$node"}}'))
        .with_panel(curves("Values", f'{P}check_value{{node="$node"}}', "{{stage}} {{check}} {{variant}} {{unit}}", span=24))
        .with_panel(curves("Of floor", f'{P}check_value{{node="$node"}} / {P}check_floor{{node="$node"}}', "{{stage}} {{check}}", span=24)),
        "links": board("links", "links")
        .with_variable(choice("check", f"label_values({P}pair_value, check)"))
        .with_panel(number("Pairs", f'count({P}pair_value{{check="$check"}})').span(8))
        .with_panel(number("Bad pairs", f"count({P}pair_verdict{BAD}) or vector(0)").span(8))
        .with_panel(number("Best pairs that have no series", f"{P}pairs_left_out").span(8))
        .with_panel(rows("Matrix", f'min by (a, b) ({P}pair_value{{check="$check"}})', height=16).with_transformation(MATRIX))
        .with_panel(rows("The slowest", f'bottomk(50, {P}pair_value{{check="$check"}})')),
        "regressions": board("regressions", "regressions")
        .with_panel(number("Nodes with a regression", f"count(count by (node) ({P}check_regression)) or vector(0)").span(12))
        .with_panel(number("Checks with a regression", f"count({P}check_regression) or vector(0)").span(12))
        .with_panel(rows("Worse than their own past", f"{P}check_regression"))
        .with_panel(
            curves(
                "Their values",
                f"{P}check_value and on (node, stage, check, variant) {P}check_regression",
                "{{node}} {{check}} {{unit}}",
                span=24,
            )
        ),
    }  # fmt: skip


def texts() -> dict[str, str]:
    return {name: json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n" for name, made in boards().items()}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
