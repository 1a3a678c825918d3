"""examples/kubernetes: objects that Kubernetes takes, that fit the chart, and whose commands do what they say."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chart import ROOT, SHORTEST, Release, manifest, objects
from gateway import needs_highgate, serving
from test_objects import kubeconform, locked, needs_kubeconform

FILES = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))


def example(name: str) -> dict:
    return objects((ROOT / f"examples/kubernetes/{name}.yaml").read_text())[0]


def pods() -> list[dict]:
    return [
        example("deployment")["spec"]["template"],
        example("cronjob")["spec"]["jobTemplate"]["spec"]["template"],
    ]


class Examples(unittest.TestCase):
    @needs_kubeconform
    def test_kubernetes_schemas_accept_them(self):
        self.assertIn(f"Valid: {len(FILES)}, Invalid: 0, Errors: 0, Skipped: 0", kubeconform(FILES))

    def test_their_pods_are_locked_down(self):
        for pod in pods():
            locked(self, pod["spec"])

    def test_the_policy_admits_the_pods_of_a_release_called_highgate(self):
        text = manifest(SHORTEST, name="highgate")
        labels = next(each for each in objects(text) if each["kind"] == "StatefulSet")["spec"]["template"]["metadata"]["labels"]
        peer = example("networkpolicy")["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
        self.assertLessEqual(peer.items(), labels.items())

    def test_the_services_that_they_call_are_those_of_a_release_called_highgate(self):
        services = {each["metadata"]["name"]: each for each in objects(manifest(SHORTEST, name="highgate"))
                    if each["kind"] == "Service"}
        for pod in pods():
            command = " ".join(pod["spec"]["containers"][0]["command"])
            self.assertIn("highgate://highgate-elections:9902", command)
            self.assertIn("http://highgate:8080/", command)
        self.assertEqual(services["highgate"]["spec"]["ports"][0]["port"], 8080)
        self.assertEqual(services["highgate-elections"]["spec"]["ports"][0]["port"], 9902)

    @needs_highgate
    def test_the_nightly_job_writes_once_and_is_skipped_when_it_comes_again(self):
        with serving(Release(SHORTEST).config()) as ports, tempfile.TemporaryDirectory() as folder:
            self.assertIn("is completed", self.run_job(ports, folder))
            self.assertIn("nothing to do", self.run_job(ports, folder))

    def run_job(self, ports: dict[int, int], folder: str) -> str:
        """The command of the CronJob, with this machine's names in the place of the cluster's."""
        secret = Path(folder) / "token"
        secret.write_text("jobs\n")
        names = {
            "highgate-elections:9902": f"127.0.0.1:{ports[9902]}",
            "http://highgate:8080": f"http://127.0.0.1:{ports[8080]}",
            "/etc/highgate-elections/token": str(secret),
            "$(JOB)": "nightly-report-29381160",
        }
        command = pods()[1]["spec"]["containers"][0]["command"]
        for name, here in names.items():
            command = [word.replace(name, here) for word in command]
        done = subprocess.run([os.environ["HIGHGATE"], *command[1:]], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr
