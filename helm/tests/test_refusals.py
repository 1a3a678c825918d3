"""What the schema does not take, and what it says."""

import unittest

from chart import SHORTEST, Refused, Release

ROUTE = '[{"name": "a", "upstream": "http://a"}]'
ETCD = 'store={"kind": "etcd", "etcd": {"endpoints": ["http://e:2379"]}}'
ISSUER = 'tls.certManager={"enabled": true, "issuerRef": {"name": "ca"}}'

# What is wrong, the values that say so (over those of cases/shortest.yaml), and a part of the answer.
REFUSED = [
    ("a port on a network without TLS that nobody meant", ["insecure=false"], "/data/insecure"),
    ("the same of one port", ["insecure=false", "data.insecure=true", "elections.insecure=true"], "/admin/insecure"),
    ("no way for the writes", ['upstream=""'], "/routes"),
    ("two ways for the writes", [f"routes={ROUTE}"], "/routes"),
    ("an upstream that is no URL", ['upstream="ledger:9000"'], "/upstream"),
    ("a route without an upstream", ['upstream=""', 'routes=[{"name": "a"}]'], "upstream"),
    ("an unknown key of a route", ['upstream=""', 'routes=[{"name": "a", "upstream": "http://a", "tokenz": 1}]'], "tokenz"),
    ("an unknown value", ["replica=1"], "replica"),
    ("an unknown table of the config", ['config.listener={"workers": 1}'], "listener"),
    ("an unknown key of the config", ["config.listen.wrokers=1"], "wrokers"),
    ("a key that the chart sets", ['config.listen.address="0.0.0.0:1"'], "address"),
    ("a table that the chart sets", ['config.admin={"address": "0.0.0.0:1"}'], "admin"),
    ("a value of another type", ['config.listen.workers="many"'], "/config/listen/workers"),
    ("two pods on one embedded store", ["replicas=2"], "/replicas"),
    ("an autoscaler on an embedded store", ["autoscaling.enabled=true"], "not"),
    ("an etcd that an embedded store does not use", ["etcd.enabled=true", "etcd.insecure=true"], "not"),
    ("an etcd without endpoints", ['store.kind="etcd"'], "/store/etcd/endpoints"),
    ("an etcd of yours beside one of the chart's", [ETCD, "etcd.enabled=true", "etcd.insecure=true"], "/endpoints"),
    ("an etcd of the chart's without TLS that nobody meant", ['store.kind="etcd"', "etcd.enabled=true"], "/etcd"),
    ("an unknown store", ['store.kind="redis"'], "/store/kind"),
    ("clients' certificates that nobody may have signed", [ISSUER, 'data.clientAuth="optional"'], "clientCASecretName"),
    ("clients' certificates without TLS", ['tls.clientCASecretName="ca"', 'data.clientAuth="required"'], "/tls"),
    ("a probe that would need a certificate", [ISSUER, 'tls.clientCASecretName="ca"', 'admin.clientAuth="required"'],
     "/admin/clientAuth"),
    ("cert-manager without an issuer", ["tls.certManager.enabled=true"], "issuerRef"),
    ("a user of etcd without a password", [ETCD, 'store.etcd.user.name="u"'], "/store/etcd/user/secretName"),
    ("a certificate for etcd from nowhere", [ETCD, "store.etcd.tls.clientCertificate=true"], "/store/etcd/tls/secretName"),
    ("a port below 1024, which only root could open", ["data.port=443"], "/data/port"),
    ("a policy on every pod of a namespace", ['resourceNetworkPolicies=[{"name": "all", "podSelector": {}}]'], "podSelector"),
    ("a peer of a policy that says nothing", ["networkPolicy.data.from=[{}]"], "/networkPolicy/data/from"),
    ("a volume that many pods may write", ['persistence.accessModes=["ReadWriteMany"]'], "accessModes"),
]

TAKEN = [
    ("TLS from a Secret", ["insecure=false", 'tls.secretName="ports"']),
    ("TLS from cert-manager", ["insecure=false", ISSUER]),
    ("every port said to be plain", ["insecure=false", "data.insecure=true", "admin.insecure=true", "elections.insecure=true"]),
    ("an etcd of yours", [ETCD, "replicas=5"]),
    ("routes", ['upstream=""', f"routes={ROUTE}"]),
]


class Refusals(unittest.TestCase):
    def test_values_that_cannot_be_right_are_refused(self):
        for what, sets, answer in REFUSED:
            with self.subTest(what):
                with self.assertRaises(Refused) as refused:
                    Release(SHORTEST, *sets)
                self.assertIn("meet the specifications of the schema", str(refused.exception))
                # Helm writes `/data/port` from 3.18 on, and `data.port` before.
                self.assertIn(answer.lstrip("/"), str(refused.exception).replace(".", "/"))

    def test_values_that_differ_little_from_them_are_taken(self):
        for what, sets in TAKEN:
            with self.subTest(what):
                Release(SHORTEST, *sets)
