"""The chart, rendered: what `helm template` makes of a file of values, and how its objects are found."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/highgate"
CASES = sorted((ROOT / "helm/tests/cases").glob("*.yaml"))
SHIPPED = sorted(CHART.glob("values-*.yaml"))
# The smallest values that the schema takes.
SHORTEST = ROOT / "helm/tests/cases/shortest.yaml"


# The C library is ten times as fast, where PyYAML was built with it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """Helm did not take the values; the message is its own."""


def helm(*arguments: str) -> str:
    done = subprocess.run([os.environ["HELM"], *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


@cache
def manifest(values: Path, *sets: str, chart: Path = CHART, name: str = "r") -> str:
    more = [word for each in sets for word in ("--set-json", each)]
    return helm("template", name, str(chart), "--namespace", "payments", "--values", str(values), *more)


def objects(text: str) -> list[dict]:
    return [each for each in yaml.load_all(text, LOADER) if each]


class Release:
    """The objects of one release."""

    def __init__(self, values: Path, *sets: str):
        self.text = manifest(values, *sets)
        self.objects = objects(self.text)

    def all(self, kind: str) -> list[dict]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str) -> dict:
        found = [each for each in self.all(kind) if each["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        return found[0]

    def workload(self) -> dict:
        """The gateway's own, of whichever kind."""
        found = [
            each
            for each in self.all("Deployment") + self.all("StatefulSet")
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"
        ]
        assert len(found) == 1, f"{len(found)} workloads"
        return found[0]

    def pod(self) -> dict:
        return self.workload()["spec"]["template"]["spec"]

    def container(self) -> dict:
        return self.pod()["containers"][0]

    def config(self) -> str:
        name = next(each["configMap"]["name"] for each in self.pod()["volumes"] if each["name"] == "config")
        return self.one("ConfigMap", name)["data"]["highgate.toml"]


def notes(values: Path) -> str:
    """What `helm install` would print. It asks a cluster first, so here the text is a value of an object."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "highgate"
        shutil.copytree(CHART, chart)
        (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
        (chart / "templates/notes.yaml").write_text(
            "apiVersion: v1\nkind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get \"notes.txt\") . | toJson }}\n"
        )
        return next(each["text"] for each in objects(manifest(values, chart=chart)) if each["kind"] == "Notes")
