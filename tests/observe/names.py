"""Names in config/prometheus, config/grafana and docs/runbooks, held to what exists."""


import re
import subprocess

from servers import ROOT

RUNBOOKS = ROOT / "docs/runbooks"
TESTS = ROOT / "config/prometheus/alerts.test.yml"


def exported():
    """Every name under which the gateway and the elector show something, parts of histograms included."""
    gateway = shown_by("src/metrics/names.rs", r"name: (\w+),\s*kind: Kind::Histogram")
    elector = shown_by("elector/src/metrics.rs", r"describe_histogram!\(\s*(\w+)")
    return gateway | elector


def shown_by(file, histogram):
    source = (ROOT / file).read_text()
    consts = dict(re.findall(r'const (\w+): &str = "((?:highgate|process)_\w+)";', source))
    histograms = {consts[name] for name in re.findall(histogram, source)}
    return (set(consts.values()) - histograms) | {name + part for name in histograms for part in ("_bucket", "_sum", "_count")}


def problems(rules, dashboard_queries, highgate):
    """Everything that is named and does not exist, as sentences."""
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    known = exported() | recorded
    asked = [(rule["name"], rule["query"]) for rule in rules]
    asked += [(query.title, query.expression) for query in dashboard_queries]
    for title, expression in asked:
        for name in re.findall(r"\b(?:highgate|process)[_:][\w:]+", expression):
            if name not in known:
                yield f"{title} asks for {name}, which nothing exports"
    for name in recorded:
        if not any(name in rule["query"] for rule in rules):
            yield f"{name} is recorded and not used"
    for alert in alerts:
        yield from problems_of_alert(alert)
    yield from problems_of_documents()
    yield from problems_of_pages(alerts)
    yield from problems_of_commands(highgate)


def problems_of_alert(alert):
    name = alert["name"]
    if alert["labels"].get("severity") not in ("warning", "critical"):
        yield f"{name} has no severity"
    for key in ("summary", "description", "runbook_url"):
        if not alert["annotations"].get(key):
            yield f"{name} has no {key}"
    tests = re.findall(r"^  - name: (.*)$", TESTS.read_text(), re.MULTILINE)
    if not any(title.startswith(f"{name} fires") for title in tests):
        yield f"{name} has no test in which it fires"
    if not any(title.startswith(f"{name} ") and "is quiet" in title for title in tests):
        yield f"{name} has no test in which it is quiet"


def problems_of_documents():
    """The elector's metrics and its page. A unit test of the gateway does the same for docs/metrics.md."""
    source = (ROOT / "elector/src/metrics.rs").read_text()
    shown = set(re.findall(r'"(highgate_elector_\w+)"', source))
    documented = set(re.findall(r"^\| `(highgate_elector_\w+)`", (ROOT / "docs/elector.md").read_text(), re.MULTILINE))
    for name in shown ^ documented:
        yield f"{name} is in only one of elector/src/metrics.rs and docs/elector.md"


def problems_of_pages(alerts):
    repository = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    index = (RUNBOOKS / "README.md").read_text()
    linked = set()
    for alert in alerts:
        url, name = alert["annotations"].get("runbook_url", ""), alert["name"]
        page = url.removeprefix(f"{repository}/blob/main/docs/runbooks/")
        linked.add(page)
        if not (RUNBOOKS / page).is_file() or not (RUNBOOKS / page).read_text().startswith(f"# {name}\n"):
            yield f"{name}: there is no page {url}"
        if f"[{name}]({page}) | {alert['labels'].get('severity')} |" not in index:
            yield f"{name} is not in docs/runbooks/README.md with its severity"
    for page in RUNBOOKS.glob("*.md"):
        if page.name not in linked | {"README.md"}:
            yield f"no alert links to {page.name}"


def problems_of_commands(highgate):
    """Every `highgate ...` in a console block has to be a command with those flags."""
    told = {}
    for page in RUNBOOKS.glob("*.md"):
        for line in re.findall(r"^\$ highgate (.*)$", page.read_text(), re.MULTILINE):
            words = line.split()
            command = " ".join(words[: 2 if words[0] in ("era", "once") else 1])
            if command not in told:
                told[command] = subprocess.run(
                    [highgate, *command.split(), "--help"], capture_output=True, text=True, check=False,
                )
            if told[command].returncode != 0:
                yield f"{page.name}: there is no command highgate {command}"
            for flag in (word for word in words if word.startswith("--")):
                if flag not in told[command].stdout:
                    yield f"{page.name}: highgate {command} has no {flag}"


def selectors(expression):
    """The series that an expression looks at, without ranges and offsets."""
    return sorted(set(re.findall(r"\b(?:highgate|process)[_:][\w:]+(?:\{[^}]*\})?", expression)))


