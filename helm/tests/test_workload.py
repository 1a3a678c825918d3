"""Which objects the values make of the gateway, and what is in them."""

import unittest
from pathlib import Path

from chart import ROOT, SHORTEST, Release

CASES = ROOT / "helm/tests/cases"


def case(name: str) -> Release:
    return Release(CASES / f"{name}.yaml")


def shipped(name: str, *sets: str) -> Release:
    return Release(ROOT / f"helm/highgate/values-{name}.yaml", *sets)


class Workload(unittest.TestCase):
    def test_the_embedded_store_is_one_pod_with_a_volume_that_outlives_it(self):
        release = case("embedded-tls")
        workload = release.workload()
        self.assertEqual((workload["kind"], workload["spec"]["replicas"]), ("StatefulSet", 1))
        claim = workload["spec"]["volumeClaimTemplates"][0]["spec"]
        self.assertEqual(claim["accessModes"], ["ReadWriteOncePod"])
        self.assertEqual(claim["storageClassName"], "fast")
        self.assertEqual(claim["resources"]["requests"]["storage"], "10Gi")
        kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        self.assertEqual(workload["spec"]["persistentVolumeClaimRetentionPolicy"], kept)
        self.assertEqual(workload["spec"]["serviceName"], "r-highgate-admin")

    def test_etcd_is_a_deployment_that_is_never_short_of_a_pod(self):
        for release in (case("etcd-own"), shipped("ha")):
            workload = release.workload()
            self.assertEqual((workload["kind"], workload["spec"]["replicas"]), ("Deployment", 3))
            self.assertEqual(workload["spec"]["strategy"]["rollingUpdate"], {"maxUnavailable": 0, "maxSurge": 1})

    def test_pods_that_remember_etcd_have_volumes(self):
        workload = case("etcd-remembering").workload()
        self.assertEqual((workload["kind"], workload["spec"]["replicas"]), ("StatefulSet", 2))
        self.assertTrue(workload["spec"]["volumeClaimTemplates"])

    def test_the_autoscaler_decides_alone_how_many_pods_there_are(self):
        release = case("etcd-external")
        self.assertNotIn("replicas", release.workload()["spec"])
        scaler = release.one("HorizontalPodAutoscaler", "r-highgate")["spec"]
        self.assertEqual(scaler["scaleTargetRef"]["kind"], "Deployment")
        self.assertEqual(scaler["scaleTargetRef"]["name"], release.workload()["metadata"]["name"])

    def test_a_config_that_is_not_taken_ends_the_rollout(self):
        pod = shipped("ha").pod()
        check, container = pod["initContainers"][0], pod["containers"][0]
        self.assertEqual(check["args"], ["check", "/etc/highgate/config/highgate.toml"])
        self.assertEqual(check["image"], container["image"])
        self.assertEqual(check["volumeMounts"], container["volumeMounts"])

    def test_probes_speak_what_the_admin_port_speaks(self):
        for name, scheme in (("embedded-tls", "HTTPS"), ("etcd-own", "HTTPS"), ("etcd-own-insecure", "HTTP")):
            with self.subTest(name):
                container = case(name).container()
                for probe, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
                    expected = {"path": path, "port": "admin", "scheme": scheme}
                    self.assertEqual(container[f"{probe}Probe"]["httpGet"], expected)

    def test_one_port_may_be_plain_beside_others_with_tls(self):
        release = shipped("ha", "elections.insecure=true")
        self.assertEqual(release.container()["readinessProbe"]["httpGet"]["scheme"], "HTTPS")
        self.assertEqual(release.config().count("insecure = true"), 1)
        self.assertIn("[elections]\naddress = \"0.0.0.0:9902\"\nauth = { bearer_file", release.config())

    def test_the_grace_period_covers_all_of_the_shutdown(self):
        expected = {
            "shortest": 5 + 2 + 30 + 10,
            "embedded-tls": 5 + 2 + 120 + 10,  # 1500ms rounded up
            "etcd-external": 5 + 1 + 30 + 10,  # the gateway's own defaults
            "everything": 0 + 2 + 30 + 10,
        }
        for name, seconds in expected.items():
            with self.subTest(name):
                self.assertEqual(case(name).pod()["terminationGracePeriodSeconds"], seconds)

    def test_endpoints_go_before_sigterm_comes(self):
        self.assertEqual(case("shortest").container()["lifecycle"], {"preStop": {"sleep": {"seconds": 5}}})
        self.assertNotIn("lifecycle", case("everything").container())

    def test_only_what_a_gateway_does_not_reload_restarts_its_pods(self):
        def checksum(*sets: str) -> str:
            pod = Release(SHORTEST, *sets).workload()["spec"]["template"]
            return pod["metadata"]["annotations"]["checksum/restart"]

        same = checksum()
        route = '[{"name": "other", "upstream": "http://other:9000"}]'
        self.assertEqual(checksum('upstream=""', f"routes={route}"), same)
        self.assertEqual(checksum('config.log={"format": "text"}'), same)
        self.assertNotEqual(checksum("data.port=8081"), same)
        self.assertNotEqual(checksum('config.shutdown={"drain_limit": "60s"}'), same)

    def test_pods_are_spread_and_may_not_all_go_at_once(self):
        release = shipped("ha")
        spread = release.pod()["topologySpreadConstraints"]
        self.assertEqual([each["whenUnsatisfiable"] for each in spread], ["ScheduleAnyway", "DoNotSchedule"])
        selector = release.workload()["spec"]["selector"]
        self.assertTrue(all(each["labelSelector"] == selector for each in spread))
        self.assertEqual(release.one("PodDisruptionBudget", "r-highgate")["spec"]["maxUnavailable"], 1)
        self.assertEqual(case("etcd-own-insecure").all("PodDisruptionBudget")[0]["metadata"]["name"], "r-highgate-etcd")

    def test_the_service_account_has_no_token(self):
        release = case("shortest")
        self.assertIs(release.one("ServiceAccount", "r-highgate")["automountServiceAccountToken"], False)
        self.assertEqual(case("etcd-own-insecure").all("ServiceAccount"), [])
        self.assertEqual(case("etcd-own-insecure").pod()["serviceAccountName"], "default")

    def test_settings_of_the_cluster_reach_the_pod(self):
        release = case("everything")
        pod = release.pod()
        self.assertEqual(pod["containers"][0]["image"], "registry.internal/highgate@sha256:" + "0" * 64)
        self.assertEqual(pod["priorityClassName"], "high")
        self.assertEqual(pod["nodeSelector"], {"disk": "fast"})
        self.assertEqual(pod["imagePullSecrets"], [{"name": "registry"}])
        self.assertNotIn("topologySpreadConstraints", pod)
        self.assertEqual(release.workload()["spec"]["template"]["metadata"]["labels"]["team"], "payments")
        self.assertEqual(release.one("Service", "r-gate")["spec"]["type"], "LoadBalancer")


class Etcd(unittest.TestCase):
    def test_three_nodes_know_one_another(self):
        stateful = case("etcd-own").one("StatefulSet", "r-highgate-etcd")
        self.assertEqual(stateful["spec"]["replicas"], 3)
        arguments = stateful["spec"]["template"]["spec"]["containers"][0]["args"]
        cluster = next(each for each in arguments if each.startswith("--initial-cluster="))
        for at in range(3):
            node = f"r-highgate-etcd-{at}"
            self.assertIn(f"{node}=https://{node}.r-highgate-etcd.payments.svc:2380", cluster)
        self.assertIn("--quota-backend-bytes=4294967296", arguments)
        self.assertIn("--client-cert-auth=true", arguments)

    def test_gateways_name_all_nodes_and_show_their_certificate(self):
        config = case("etcd-own").config()
        for at in range(3):
            self.assertIn(f'"https://r-highgate-etcd-{at}.r-highgate-etcd.payments.svc:2379"', config)
        self.assertIn('cert = "/etc/highgate/etcd-tls/tls.crt"', config)
        plain = case("etcd-own-insecure").config()
        self.assertIn('"http://r-highgate-etcd-2.r-highgate-etcd.payments.svc:2379"', plain)
        self.assertNotIn("tls", plain)

    def test_certificates_have_the_names_that_clients_use(self):
        release = case("etcd-own")
        ports = release.one("Certificate", "r-highgate-tls")["spec"]["dnsNames"]
        for name in ("r-highgate", "r-highgate-admin.payments.svc", "r-highgate-elections.payments", "fence.example.com"):
            self.assertIn(name, ports)
        nodes = release.one("Certificate", "r-highgate-etcd-tls")["spec"]
        self.assertIn("*.r-highgate-etcd.payments.svc", nodes["dnsNames"])
        self.assertIn("client auth", nodes["usages"])

    def test_no_etcd_is_made_that_was_not_asked_for(self):
        self.assertEqual([each["kind"] for each in case("etcd-external").all("StatefulSet")], [])


class Monitoring(unittest.TestCase):
    def test_prometheus_finds_the_admin_port_alone(self):
        release = case("monitoring")
        monitor = release.one("ServiceMonitor", "r-highgate")
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        found = [each for each in release.all("Service") if selector <= each["metadata"]["labels"].items()]
        self.assertEqual([each["metadata"]["name"] for each in found], ["r-highgate-admin"])
        self.assertTrue(found[0]["spec"]["publishNotReadyAddresses"])
        endpoint = monitor["spec"]["endpoints"][0]
        self.assertIn(endpoint["port"], [port["name"] for port in found[0]["spec"]["ports"]])
        self.assertEqual(endpoint["authorization"]["credentials"], {"name": "scrape", "key": "token"})
        self.assertEqual(shipped("ha").one("ServiceMonitor", "r-highgate")["spec"]["endpoints"][0]["scheme"], "https")

    def test_rules_are_those_of_config_and_the_values_own(self):
        groups = case("monitoring").one("PrometheusRule", "r-highgate")["spec"]["groups"]
        self.assertEqual(groups[-1]["name"], "mine")
        self.assertEqual(len(groups) - 1, sum(count_groups(path) for path in shipped_files("prometheus")))

    def test_the_dashboards_are_those_of_config(self):
        dashboard = case("monitoring").one("ConfigMap", "r-highgate-dashboard")
        self.assertEqual(dashboard["metadata"]["labels"]["grafana_dashboard"], "1")
        expected = {path.name: path.read_text() for path in shipped_files("grafana")}
        found = dashboard.get("data") or {}
        self.assertEqual({name: text.rstrip() for name, text in found.items()},
                         {name: text.rstrip() for name, text in expected.items()})


def shipped_files(folder: str) -> list[Path]:
    return sorted((ROOT / "helm/highgate/files" / folder).glob("*"))


def count_groups(path: Path) -> int:
    return sum(line.lstrip().startswith("- name:") for line in path.read_text().splitlines())
