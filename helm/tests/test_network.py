"""Who reaches what."""

import unittest

from chart import SHORTEST, Release
from test_workload import case, shipped

GATEWAY = {
    "app.kubernetes.io/name": "highgate",
    "app.kubernetes.io/instance": "r",
    "app.kubernetes.io/component": "gateway",
}


def admitted(policy: dict) -> dict:
    """Who may come, by the port."""
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] or [] for port in rule["ports"]}


class OfTheGateway(unittest.TestCase):
    def test_without_a_word_nobody_reaches_the_admin_port(self):
        policy = case("shortest").one("NetworkPolicy", "r-highgate")
        self.assertEqual(policy["spec"]["podSelector"]["matchLabels"], GATEWAY)
        self.assertEqual(policy["spec"]["policyTypes"], ["Ingress"])
        self.assertEqual(set(admitted(policy)), {"data", "elections"})

    def test_each_port_admits_whom_it_was_told(self):
        ports = admitted(case("network").one("NetworkPolicy", "r-highgate"))
        self.assertEqual(set(ports), {"data", "admin"})
        self.assertEqual(ports["data"], [{"podSelector": {"matchLabels": {"app": "job"}}}])

    def test_a_policy_that_admits_nobody_is_still_a_policy(self):
        release = Release(SHORTEST, "networkPolicy.data.from=[]", "networkPolicy.elections.from=[]")
        policy = release.one("NetworkPolicy", "r-highgate")
        self.assertEqual(admitted(policy), {})
        self.assertEqual(policy["spec"]["policyTypes"], ["Ingress"])

    def test_it_reaches_dns_etcd_and_what_it_was_told(self):
        policy = case("etcd-own").one("NetworkPolicy", "r-highgate")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        self.assertEqual(len(policy["egress"]), 3)
        etcd = policy["egress"][1]["to"][0]["podSelector"]["matchLabels"]
        self.assertEqual(etcd["app.kubernetes.io/component"], "etcd")

    def test_it_can_be_left_out(self):
        self.assertEqual(case("etcd-own-insecure").all("NetworkPolicy"), [])


class OfTheResource(unittest.TestCase):
    def test_nothing_but_the_gateway_is_admitted(self):
        policy = case("network").one("NetworkPolicy", "r-highgate-only-to-archive")
        self.assertEqual(policy["metadata"]["namespace"], "archives")
        self.assertEqual(policy["spec"]["podSelector"], {"matchLabels": {"app": "archive"}})
        self.assertEqual(policy["spec"]["policyTypes"], ["Ingress"])
        only = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "payments"}},
            "podSelector": {"matchLabels": GATEWAY},
        }
        self.assertEqual(policy["spec"]["ingress"], [{"from": [only]}])

    def test_ports_and_further_rules_are_those_of_the_values(self):
        rules = case("network").one("NetworkPolicy", "r-highgate-only-to-ledger")["spec"]["ingress"]
        self.assertEqual([port["port"] for port in rules[0]["ports"]], [9000, "grpc"])
        self.assertEqual(len(rules), 2)

    def test_it_selects_the_gateways_pods(self):
        release = shipped("ha")
        policy = release.one("NetworkPolicy", "r-highgate-only-to-ledger")
        peer = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
        self.assertLessEqual(peer.items(), release.workload()["spec"]["template"]["metadata"]["labels"].items())


class OfEtcd(unittest.TestCase):
    def test_only_gateways_nodes_and_named_jobs_reach_it(self):
        policy = case("etcd-own").one("NetworkPolicy", "r-highgate-etcd")["spec"]
        clients, nodes = policy["ingress"]
        self.assertEqual(clients["from"][0]["podSelector"]["matchLabels"], GATEWAY)
        self.assertEqual(clients["from"][1], {"podSelector": {"matchLabels": {"app": "job"}}})
        self.assertEqual([port["port"] for port in clients["ports"]], ["client"])
        self.assertEqual([port["port"] for port in nodes["ports"]], ["client", "peer"])
