"""The config file that the values become: the gateway takes it, and it says what the values said."""

import tomllib
import unittest

from chart import CASES, SHIPPED, SHORTEST, Release
from gateway import check, needs_highgate
from test_workload import case, shipped


def table(release: Release, name: str) -> object:
    return tomllib.loads(release.config())[name]


class Accepted(unittest.TestCase):
    @needs_highgate
    def test_the_gateway_accepts_every_config(self):
        for path in CASES + SHIPPED:
            with self.subTest(path.stem):
                self.assertIn("ok, ", check(Release(path).config()))

    @needs_highgate
    def test_a_config_that_the_gateway_refuses_is_noticed(self):
        with self.assertRaisesRegex(AssertionError, "on_unknown: unknown value"):
            route = 'routes=[{"name": "a", "upstream": "http://a", "on_unknown": "stop"}]'
            check(Release(SHORTEST, 'upstream=""', route).config())


class Written(unittest.TestCase):
    def test_one_upstream_is_one_route_for_everything(self):
        self.assertEqual(table(case("shortest"), "routes"), [
            {"name": "default", "upstream": "http://ledger:9000", "resource": {"client": True, "default": "default"}}
        ])

    def test_ports_have_tls_and_secrets_of_their_own(self):
        release = case("embedded-tls")
        pair = {"cert": "/etc/highgate/tls/tls.crt", "key": "/etc/highgate/tls/tls.key",
                "client_ca": "/etc/highgate/client-ca/ca.crt"}
        self.assertEqual(table(release, "listen"), {"address": "0.0.0.0:8443", "tls": pair | {"client_auth": "required"}})
        self.assertEqual(table(release, "admin")["tls"], pair | {"client_auth": "optional"})
        self.assertEqual(table(release, "admin")["auth"], {"bearer_file": "/etc/highgate/admin-auth/token"})
        self.assertEqual(table(release, "elections")["auth"], {"bearer_file": "/etc/highgate/elections-auth/token"})
        self.assertEqual(table(release, "secrets"), {"file": "/etc/highgate/secrets/secrets"})
        self.assertEqual(len(table(release, "grants")), 2)
        self.assertNotIn("insecure", release.config())

    def test_the_keys_of_secrets_are_the_files_that_the_config_names(self):
        volumes = {each["name"]: each for each in case("embedded-tls").pod()["volumes"]}
        self.assertEqual(volumes["admin-auth"]["secret"]["items"], [{"key": "bearer", "path": "token"}])
        self.assertEqual(volumes["secrets"]["secret"]["items"], [{"key": "secrets", "path": "secrets"}])
        self.assertTrue(all(each["secret"]["defaultMode"] == 0o440 for each in volumes.values() if "secret" in each))

    def test_an_etcd_of_yours_is_named_with_all_that_it_wants(self):
        self.assertEqual(table(case("etcd-external"), "store"), {
            "kind": "etcd", "path": "/var/lib/highgate", "prefix": "/highgate/payments",
            "endpoints": ["https://e1.internal:2379", "https://e2.internal:2379", "https://e3.internal:2379"],
            "tls": {"ca": "/etc/highgate/etcd-tls/ca.crt"}, "validity": "6s", "compact": "off",
            "user": {"name": "gateway", "password_file": "/etc/highgate/etcd-user/password"},
        })

    def test_each_release_has_a_prefix_of_its_own(self):
        self.assertEqual(table(case("etcd-own"), "store")["prefix"], "/highgate/payments/r-highgate")

    def test_elections_can_be_left_out(self):
        release = case("etcd-own-insecure")
        self.assertNotIn("elections", tomllib.loads(release.config()))
        self.assertNotIn("r-highgate-elections", [each["metadata"]["name"] for each in release.all("Service")])

    def test_values_keep_their_types_and_their_letters(self):
        release = case("everything")
        config = tomllib.loads(release.config())
        self.assertEqual(config["listen"], {"address": "[::]:8080", "insecure": True, "max_connections": 1000000, "workers": 2})
        self.assertEqual(config["metrics"]["max_resources"], 20000)
        self.assertEqual(config["routes"][0]["match"]["path"], '/ü & "quoted"/{*rest}')
        self.assertEqual(config["routes"][0]["unknown_statuses"], [])
        self.assertEqual(config["routes"][1]["unknown_statuses"], [202, 504])

    def test_production_is_encrypted(self):
        config = tomllib.loads(shipped("ha").config())
        self.assertIn("tls", config["listen"])
        self.assertIn("tls", config["admin"])
        self.assertIn("tls", config["elections"])
        self.assertTrue(all(each.startswith("https://") for each in config["store"]["endpoints"]))
