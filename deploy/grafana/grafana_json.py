"""Writes a dashboard in the form in which Grafana imports it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from deploy.grafana.expressions import exported, selectors
from deploy.grafana.model import WIDTH, Dashboard, Look, Panel, Query, Row, Unit, Variable

SCHEMA = 41
"""Grafana 12's version of the form; newer ones read it."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_STAGES = {"0": "Invalid", "1": "New", "2": "Running", "3": "Paused", "4": "Stopped", "5": "Finished"}
_COLOURS = {"2": "green", "3": "red", "5": "blue"}
Json = dict[str, Any]


def text_of(dashboard: Dashboard) -> str:
    """The whole file."""
    return json.dumps(_dashboard(dashboard), indent=1, ensure_ascii=False) + "\n"


def description(panel: Panel) -> str:
    """The note of the panel and the meaning of each of its metrics."""
    families = {exported()[found.metric] for query in panel.queries for found in selectors(query.expression)}
    texts = [f"{family.name}: {family.help}" for family in sorted(families, key=lambda family: family.name)]
    return "\n\n".join([*([panel.note] if panel.note else []), *texts])


def _dashboard(dashboard: Dashboard) -> Json:
    return {
        "uid": f"shardmerge-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["shardmerge"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {"list": [_alerts(dashboard)]},
        "links": [
            {"type": "dashboards", "title": "shardmerge", "tags": ["shardmerge"], "asDropdown": True, "keepTime": True}
        ],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.name.removesuffix("_id"),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"{variable.name}-values"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _alerts(dashboard: Dashboard) -> Json:
    """Firing alerts as marks in every graph: of the chosen tasks, or of the cluster."""
    chosen = ",".join(f'{variable.label}=~"${variable.name}|"' for variable in dashboard.variables)
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": _SOURCE,
        "expr": f'ALERTS{{alertname=~"DM_.+",alertstate="firing"{"," if chosen else ""}{chosen}}}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{task}} {{source_id}} {{instance}}",
    }


def _panels(rows: Iterable[Row]) -> Iterator[Json]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }
        top += 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {**_panel(panel), "id": number, "gridPos": place}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel) -> Json:
    found: Json = {
        "type": panel.look.value,
        "title": panel.title,
        "description": description(panel),
        "datasource": _SOURCE,
        "targets": [_target(panel, query, f"{chr(ord('A') + place)}") for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
    }
    match panel.look:
        case Look.LINES:
            found["options"] = {
                "legend": {
                    "displayMode": "table",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": ["lastNotNull", "max"],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Look.NUMBER:
            found["options"] = {
                "reduceOptions": {"calcs": ["lastNotNull"]},
                "colorMode": "background",
                "graphMode": "none",
            }
        case Look.TABLE:
            found["options"] = {"showHeader": True, "cellHeight": "sm"}
            found["transformations"] = _columns(panel)
            found["fieldConfig"]["overrides"] = [_column_unit(query) for query in panel.queries]
    return found


def _target(panel: Panel, query: Query, reference: str) -> Json:
    is_table = panel.look is Look.TABLE
    return {
        "refId": reference,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": "__auto" if is_table or not query.legend else query.legend,
        "instant": panel.look is not Look.LINES,
        "range": panel.look is Look.LINES,
        "format": "table" if is_table else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    steps += [
        {"color": colour, "value": value}
        for colour, value in (("yellow", panel.warn), ("red", panel.alarm))
        if value is not None
    ]
    found: Json = {**_unit(panel.unit), "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.look is Look.LINES:
        found |= {
            "min": 0,
            "color": {"mode": "palette-classic"},
            "custom": {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 30 if panel.stacked else 0,
                "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
                # A value that is not known is a gap.
                "spanNulls": False,
                "showPoints": "never",
            },
        }
    return found


def _unit(unit: Unit) -> Json:
    if unit is not Unit.STAGE:
        return {"unit": unit.value}
    options = {
        value: {"text": text, "color": _COLOURS.get(value, "text"), "index": place}
        for place, (value, text) in enumerate(_STAGES.items())
    }
    return {"unit": "none", "mappings": [{"type": "value", "options": options}]}


def _columns(panel: Panel) -> list[Json]:
    names = {f"Value #{chr(ord('A') + place)}": query.legend for place, query in enumerate(panel.queries)}
    hidden = {"Time": True, **({panel.rank: True} if panel.rank else {})}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"renameByName": names, "excludeByName": {"Time": True}}},
        *([{"id": "sortBy", "options": {"sort": [{"field": panel.rank, "desc": True}]}}] if panel.rank else []),
        {"id": "organize", "options": {"excludeByName": hidden}},
    ]


def _column_unit(query: Query) -> Json:
    properties = [{"id": name, "value": value} for name, value in _unit(query.unit).items()]
    if query.unit is Unit.STAGE:
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return {"matcher": {"id": "byName", "options": query.legend}, "properties": properties}
