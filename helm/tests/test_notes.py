"""NOTES, followed by somebody who has just installed the chart: up to the first 412."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

from chart import ROOT, SHORTEST, Release, notes
from gateway import needs_highgate, serving

TEMPLATED = {
    "upstream": "",
    "insecure": True,
    "routes": [{
        "name": "ledger",
        "match": {"host": "*.ledger.internal", "path": "/accounts/{account}/{*rest}", "methods": ["GET", "PUT"]},
        "upstream": "http://ledger:9000",
        "resource": "{host}/{account}",
    }],
}
TRUSTED = {"insecure": True, "routes": [{"name": "all", "upstream": "http://ledger:9000", "tokens": "trusted"}]}


def commands(text: str) -> list[str]:
    """What is to be typed beside the port-forward: the lines that are set in."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return [line for line in lines if not line.startswith("kubectl")]


def statuses(answers: str) -> list[str]:
    return [line.split()[1] for line in answers.splitlines() if line.startswith("HTTP/")]


class Followed(unittest.TestCase):
    def follow(self, values: Path) -> str:
        with serving(Release(values).config()) as ports:
            script = "\n".join(commands(notes(values)))
            for port, free in ports.items():
                script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
            done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

    def lead_to_the_first_412(self, values: Path):
        answers = self.follow(values)
        self.assertEqual(statuses(answers), ["200", "412"], answers)
        self.assertIn("x-fencing-reason: stale", answers)

    @needs_highgate
    def test_with_one_upstream(self):
        self.lead_to_the_first_412(SHORTEST)

    @needs_highgate
    def test_with_the_values_for_trying_it(self):
        self.lead_to_the_first_412(ROOT / "helm/highgate/values-dev.yaml")

    @needs_highgate
    def test_with_routes_of_ones_own(self):
        for values in (TEMPLATED, TRUSTED):
            with self.subTest(values["routes"][0]["name"]), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(values, file)
                file.flush()
                self.lead_to_the_first_412(Path(file.name))


class Said(unittest.TestCase):
    def test_what_is_left_open_is_said(self):
        text = notes(SHORTEST)
        for open_door in ("GOING AROUND HIGHGATE", "admin.auth.secretName", "elections.auth.secretName", "plain HTTP"):
            self.assertIn(open_door, text)

    def test_what_is_closed_is_not(self):
        text = notes(ROOT / "helm/highgate/values-ha.yaml")
        for closed in ("GOING AROUND HIGHGATE", "admin.auth.secretName", "elections.auth.secretName", "era bump"):
            self.assertNotIn(closed, text)
        self.assertIn("kubectl -n payments get secret highgate-elections", text)
