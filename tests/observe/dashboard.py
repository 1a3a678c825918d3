"""The Grafana dashboard: what it asks Prometheus, and what is wrong with it."""

import json
import re

from servers import ROOT

FILE = ROOT / "config/grafana/highgate.json"
CRIMSON = "#B3123C"
# What alone may be crimson, so that it is seen.
MAY_BE_CRIMSON = re.compile(r"stale|valid", re.IGNORECASE)
# Made by Grafana itself; the range is as long as the check has data.
BUILT_IN = {"__rate_interval": "10s", "__interval": "1s", "__range": "90s"}
ROWS = ["Now", "Stale rejections", "Failovers", "Traffic and overhead", "Store", "Electors", "Runtime"]
# Labels whose values are somebody's own names.
NAMES = "namespace|job|instance|route|resource|holder|listener|pod|cluster"
REFERENCE = re.compile(r"\$\{?(\w+)\}?")


class Query:
    """One expression of the dashboard."""

    def __init__(self, title, target):
        self.title, self.expression = title, target["expr"]
        self.instant = target.get("instant", False)

    def with_values(self, values):
        return REFERENCE.sub(lambda found: values[found[1]], self.expression)


def load():
    return json.loads(FILE.read_text())


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard):
    """What panels and annotations ask."""
    notes = [Query(f"annotation {note['name']}", note) for note in dashboard["annotations"]["list"]]
    return notes + [Query(panel["title"], target) for panel in panels(dashboard) for target in panel["targets"]]


def problems(dashboard):
    """Everything that is wrong with it, as sentences."""
    yield from problems_of_the_whole(dashboard)
    for panel in panels(dashboard):
        for problem in [*problems_of_panel(panel), *problems_of_colours(panel)]:
            yield f"panel {panel.get('id')} {panel.get('title')!r}: {problem}"
    known = {variable["name"] for variable in dashboard["templating"]["list"]} | set(BUILT_IN)
    for query in queries(dashboard):
        for problem in problems_of_query(query, known):
            yield f"{query.title!r}: {problem}: {query.expression}"


def problems_of_the_whole(dashboard):
    if dashboard["schemaVersion"] < 39:
        yield "the schema is older than that of Grafana 10"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(set(ids)) < len(ids):
        yield "two panels have the same id"
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    if rows != ROWS:
        yield f"the rows are {rows}, and not {ROWS}"
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    if variables != ["datasource", "namespace", "route", "resource"]:
        yield f"the variables are {variables}"
    text = FILE.read_text()
    for variable in variables:
        if f"${variable}" not in text and f"${{{variable}}}" not in text:
            yield f"the variable {variable} is not used"
    yield from overlaps(dashboard["panels"])


def overlaps(all_panels):
    """Panels that lie on one another, or beside the 24 columns."""
    taken = {}
    for panel in all_panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"panel {panel['id']} is wider than the dashboard"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if taken.setdefault((x, y), panel["id"]) != panel["id"]:
                    yield f"panels {taken[x, y]} and {panel['id']} lie on one another"
                    return


def problems_of_panel(panel):
    for key in ("title", "description"):
        if not panel.get(key, "").strip():
            yield f"it has no {key}"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "it has no unit"
    if not panel["targets"]:
        yield "it asks nothing"
    refs = [target["refId"] for target in panel["targets"]]
    if len(set(refs)) < len(refs):
        yield "two of its queries have the same refId"
    for part in [panel, *panel["targets"]]:
        if part.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield "it does not use the chosen datasource"
    for target in panel["targets"]:
        if not target.get("legendFormat", "").strip():
            yield "a query has no legend"


def problems_of_colours(panel):
    if CRIMSON in json.dumps(panel) and not MAY_BE_CRIMSON.search(panel["title"]):
        yield "crimson is for stale writes and for replicas that are not valid"
    for threshold in re.findall(r'"color": "(red|dark-red|semi-dark-red|light-red)"', json.dumps(panel)):
        yield f"{threshold} is too near to crimson"


def problems_of_query(query, known):
    for name in REFERENCE.findall(query.expression):
        if name not in known:
            yield f"there is no variable {name}"
    for label in re.findall(rf'\b({NAMES})\s*(?:=|!=|=~|!~)\s*"[^"$]', query.expression):
        yield f"the {label} is written into it"
    metrics = re.findall(r"\b(?:highgate|process)_\w+", query.expression)
    # Jobs may run in other namespaces than their gateways.
    if any(not name.startswith("highgate_elector_") for name in metrics) and "$namespace" not in query.expression:
        yield "it does not ask for the chosen namespace"
    for window in re.findall(r"\[(\d\w*)", query.expression):
        yield f"the window {window} is written into it"
