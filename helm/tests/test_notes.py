"""NOTES, followed by somebody who has just installed the chart: up to the first 412."""

import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from chart import ROOT, SHORTEST, Release, notes
from gateway import needs_highgate, serving

# Other ways for the writes than one upstream.
ROUTES = {
    "templated": {"insecure": True, "routes": [{
        "name": "ledger",
        "match": {"host": "*.ledger.internal", "path": "/accounts/{account}/{*rest}", "methods": ["GET", "PUT"]},
        "upstream": "http://ledger:9000",
        "resource": "{host}/{account}",
    }]},
    "trusted": {"insecure": True, "routes": [{"name": "all", "upstream": "http://ledger:9000", "tokens": "trusted"}]},
    "secret": {"insecure": True, "upstream": "http://ledger:9000", "elections": {"auth": {"secretName": "jobs"}}},
}


def commands(text: str) -> list[str]:
    """What is to be typed beside the port-forward: the lines that are set in."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return [line for line in lines if not line.startswith("kubectl")]


def statuses(answers: str) -> list[str]:
    return [line.split()[1] for line in answers.splitlines() if line.startswith("HTTP/")]


def follow(values: Path) -> str:
    """What the commands answer, with this machine's ports, and leases that are over soon."""
    with serving(Release(values).config()) as ports:
        script = "\n".join(commands(notes(values))).replace('"ttl_seconds":10', '"ttl_seconds":4')
        for port, here in ports.items():
            script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{here}")
        # What the Secret of elections.auth has in gateway.py.
        script = "kubectl() { printf jobs; }\n" + script
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=120)
        return done.stdout + done.stderr


class Followed(unittest.TestCase):
    @needs_highgate
    def test_it_leads_to_the_first_412(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [SHORTEST, ROOT / "helm/highgate/values-dev.yaml"]
            for name, values in ROUTES.items():
                files.append(Path(folder) / f"{name}.yaml")
                files[-1].write_text(yaml.safe_dump(values))
            # At once: each mostly waits for a lease to end.
            with ThreadPoolExecutor(len(files)) as pool:
                answers = dict(zip(files, pool.map(follow, files)))
        for values, answer in answers.items():
            with self.subTest(values.stem):
                self.assertEqual(statuses(answer), ["200", "412"], answer)
                self.assertIn("x-fencing-reason: stale", answer)


class Said(unittest.TestCase):
    def test_what_is_left_open_is_said(self):
        text = notes(SHORTEST)
        for open_door in ("GOING AROUND HIGHGATE", "admin.auth.secretName", "elections.auth.secretName", "plain HTTP"):
            self.assertIn(open_door, text)

    def test_what_is_closed_is_not(self):
        text = notes(ROOT / "helm/highgate/values-ha.yaml")
        for closed in ("GOING AROUND HIGHGATE", "admin.auth.secretName", "elections.auth.secretName"):
            self.assertNotIn(closed, text)
        self.assertIn("kubectl -n payments get secret highgate-elections", text)

    def test_pods_that_forget_their_etcd_are_said(self):
        self.assertIn("era bump", notes(ROOT / "helm/highgate/values-ha.yaml"))
        self.assertNotIn("era bump", notes(ROOT / "helm/tests/cases/etcd-remembering.yaml"))

    def test_a_prometheus_that_is_shut_out_is_said(self):
        self.assertIn("Prometheus cannot reach the admin port", notes(ROOT / "helm/tests/cases/monitoring.yaml"))
