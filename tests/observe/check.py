"""The test of dashboards and alerts, against a real Prometheus that scrapes real gateways while leaders are deposed.

Everything that the dashboard asks has to have an answer. An alert is quiet when all is well, so of it every series that it
looks at has to be there: one that looks at nothing could never fire. `promtool` has tested when each fires.
"""

import math
import subprocess
import sys
import time

import dashboard
import names
from cast import Cast
from servers import ROOT, Failed, Prometheus, Stage, wait_for

# As long as a busy machine may take; on a quiet one it is a few turns.
PATIENCE = 120
RULES = ROOT / "config/prometheus"


def main(highgate):
    began = time.time()
    run("promtool", "check", "rules", RULES / "recording.yml", RULES / "alerts.yml")
    run("promtool", "test", "rules", RULES / "alerts.test.yml")
    with Stage() as stage:
        cast = Cast(stage, highgate)
        jobs = {"highgate": [gateway.admin for gateway in cast.gateways], "electors": cast.metrics}
        prometheus = Prometheus(stage, jobs, "500ms")
        everything = sum(len(ports) for ports in jobs.values())
        wait_for("Prometheus scrapes everything", lambda: len(prometheus.scraped()) == everything)
        board, rules = dashboard.load(), prometheus.rules()
        report("names and dashboard", [*dashboard.problems(board), *names.problems(rules, dashboard.queries(board), highgate)])
        drive(cast, prometheus, Questions(board, rules, began, cast.left_out))
        report("rules", [*problems_of_rules(prometheus)])
    print(f"observed in {time.time() - began:.0f} s")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def report(what, problems):
    if problems:
        raise Failed(f"{what}:\n  " + "\n  ".join(problems))


class Questions:
    """What Prometheus has not answered yet."""

    def __init__(self, board, rules, began, left_out):
        values = {"namespace": "local", "route": ".*", "resource": ".*", **dashboard.BUILT_IN}
        asked = [(query.title, query.with_values(values), query.instant) for query in dashboard.queries(board)]
        asked += [(rule["name"], series, False) for rule in rules for series in names.selectors(rule["query"])]
        self.since = began
        self.open = []
        for question in asked:
            reason = next((why for word, why in left_out.items() if word in question[1]), None)
            if reason:
                print(f"SKIPPED {question[0]}: {reason}")
            else:
                self.open.append(question)
        self.total = len(self.open)

    def ask(self, prometheus):
        self.open = [question for question in self.open if not self.is_answered(prometheus, *question)]

    def is_answered(self, prometheus, title, expression, instant):
        try:
            if instant:
                return any(is_number(series["value"][1]) for series in prometheus.instant(expression))
            series = prometheus.over_time(expression, self.since)
        except Failed as error:
            raise Failed(f"{title!r} asks {expression}: {error}") from error
        return any(is_number(value) for one in series for _, value in one["values"])


def is_number(value):
    return not math.isnan(float(value))


def drive(cast, prometheus, questions):
    """Deposes leaders until everything has been answered, at least twice: a rate needs two points in time."""
    deadline, turn = time.monotonic() + PATIENCE, 0
    while turn < 2 or questions.open or firing(prometheus) < {"HighgateStaleWriteRefused"}:
        if time.monotonic() > deadline:
            unanswered = "\n  ".join(f"{title!r}: {expression}" for title, expression, _ in questions.open)
            raise Failed(f"no data after {turn} turns for\n  {unanswered}\nfiring: {sorted(firing(prometheus))}")
        cast.play(turn)
        questions.ask(prometheus)
        turn += 1
    print(f"{questions.total} queries of panels, annotations and rules answered after {turn} turns")
    print(f"firing: {', '.join(sorted(firing(prometheus)))}")


def firing(prometheus):
    return {series["metric"]["alertname"] for series in prometheus.instant('ALERTS{alertstate="firing"}')}


def problems_of_rules(prometheus):
    """Rules that Prometheus could not evaluate, and expressions of alerts that it does not take by themselves."""
    for rule in prometheus.rules():
        if rule["health"] != "ok" or rule.get("lastError"):
            yield f"{rule['name']} is {rule['health']}: {rule.get('lastError')}"
        try:
            prometheus.instant(rule["query"])
        except Failed as error:
            yield f"{rule['name']}: {error}"


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
    except Failed as error:
        sys.exit(f"scripts/observe: {error}")
