"""Whatever the values, objects fit one another, and pods are locked down."""

import os
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

from chart import CASES, CHART, SHIPPED, Refused, Release, helm, manifest, objects

# Of operators that Kubernetes does not come with, so it has no schema for them.
CUSTOM = "Certificate,ServiceMonitor,PrometheusRule"
needs_kubeconform = unittest.skipUnless("KUBECONFORM" in os.environ, "there is no kubeconform: no Go, and none in the cache")


def releases() -> Iterator[tuple[str, Release]]:
    return ((path.stem, Release(path)) for path in CASES + SHIPPED)


def pods(release: Release) -> Iterator[dict]:
    for workload in release.all("Deployment") + release.all("StatefulSet"):
        yield workload["spec"]["template"]


def kubeconform(files: list[Path]) -> str:
    """What it says of all of them at once: it reads each schema once only."""
    location = os.environ["KUBERNETES_SCHEMAS"] + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"
    options = ["-strict", "-summary", "-skip", CUSTOM, "-schema-location", location]
    done = subprocess.run([os.environ["KUBECONFORM"], *options, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def locked(test: unittest.TestCase, spec: dict) -> None:
    test.assertIs(spec["automountServiceAccountToken"], False)
    test.assertIs(spec["enableServiceLinks"], False)
    test.assertIs(spec["securityContext"]["runAsNonRoot"], True)
    test.assertGreater(spec["securityContext"]["runAsUser"], 0)
    test.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
    for container in spec["containers"] + spec.get("initContainers", []):
        context = container["securityContext"]
        test.assertIs(context["allowPrivilegeEscalation"], False)
        test.assertIs(context["readOnlyRootFilesystem"], True)
        test.assertEqual(context["capabilities"], {"drop": ["ALL"]})
        test.assertIn("requests", container["resources"])


class Objects(unittest.TestCase):
    def test_the_linter_finds_nothing(self):
        for path in CASES + SHIPPED:
            with self.subTest(path.stem):
                helm("lint", "--strict", "--quiet", str(CHART), "--values", str(path))

    @needs_kubeconform
    def test_kubernetes_schemas_accept_every_object(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name, release in releases():
                files.append(Path(folder) / f"{name}.yaml")
                files[-1].write_text(release.text)
            self.assertIn("Invalid: 0, Errors: 0", kubeconform(files))

    def test_a_packaged_chart_is_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            helm("package", str(CHART), "--destination", folder)
            packaged = next(Path(folder).glob("*.tgz"))
            for path in SHIPPED:
                self.assertEqual(manifest(path, chart=packaged), manifest(path))

    def test_pods_are_locked_down(self):
        for name, release in releases():
            for pod in pods(release):
                with self.subTest(name):
                    locked(self, pod["spec"])

    def test_everything_that_is_mounted_is_there(self):
        for name, release in releases():
            for workload in release.all("Deployment") + release.all("StatefulSet"):
                spec = workload["spec"]["template"]["spec"]
                there = {volume["name"] for volume in spec.get("volumes", [])}
                there |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
                for container in spec["containers"] + spec.get("initContainers", []):
                    mounted = {mount["name"] for mount in container["volumeMounts"]}
                    with self.subTest(f"{name}: {container['name']}"):
                        self.assertEqual(mounted, there)

    def test_selectors_find_their_pods_and_nothing_else(self):
        for name, release in releases():
            labels = [pod["metadata"]["labels"] for pod in pods(release)]
            for each in release.all("Service"):
                with self.subTest(f"{name}: {each['metadata']['name']}"):
                    selector = each["spec"]["selector"].items()
                    self.assertEqual(sum(selector <= of.items() for of in labels), 1)
            for each in release.all("PodDisruptionBudget"):
                selector = each["spec"]["selector"]["matchLabels"].items()
                self.assertEqual(sum(selector <= of.items() for of in labels), 1)

    def test_ports_have_the_names_that_others_use(self):
        for name, release in releases():
            ports = {port["name"]: port["containerPort"] for port in release.container()["ports"]}
            gateway = [each for each in release.all("Service") if "highgate/port" in each["metadata"]["labels"]]
            for service in gateway:
                for port in service["spec"]["ports"]:
                    with self.subTest(f"{name}: {service['metadata']['name']}"):
                        self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_two_releases_share_no_name(self):
        first, second = (
            {(each["kind"], each["metadata"]["name"]) for each in objects(manifest(CASES[0], name=name))}
            for name in ("a", "b")
        )
        self.assertEqual(first & second, set())


class Names(unittest.TestCase):
    def test_a_long_name_of_the_release_is_cut(self):
        text = manifest(CASES[0], name="r" * 53)
        for line in text.splitlines():
            if line.startswith("  name: "):
                self.assertLessEqual(len(line.removeprefix("  name: ")), 63)

    def test_a_name_that_is_none_is_refused(self):
        with self.assertRaises(Refused):
            Release(CASES[0], 'fullnameOverride="Not A Name"')
