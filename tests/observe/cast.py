"""Who takes part in the check: a gateway on the embedded store, one on etcd where there is one, three electors."""

import contextlib
import http.client
import shutil
import subprocess

from jobs import Gateway, Job, call, expect, in_line
from servers import ROOT, Upstream, free_port, get, wait_for

TEMPLATE = """
[listen]
address = "127.0.0.1:{data}"
{tls}
[admin]
address = "127.0.0.1:{admin}"
[store]
{store}
[log]
access = "off"
[shutdown]
unready_delay = "0s"
drain_limit = "1s"
[[routes]]
name = "ledger"
match = {{ path = "/ledger/{{account}}" }}
upstream = "{upstream}"
resource = "ledger/{{account}}"
[[routes]]
name = "legacy"
match = {{ path = "/legacy" }}
upstream = "{upstream}"
tokens = "trusted"
lock_delay = "200ms"
"""
FAR = """
[[routes]]
name = "far"
match = {{ path = "/far" }}
upstream = "https://127.0.0.1:{port}"
upstream_tls = {{ ca = "{cert}", cert = "{cert}", key = "{key}" }}
"""


class Cast:
    """What runs, and what was left out and why."""

    def __init__(self, stage, highgate):
        self.stage, self.highgate = stage, highgate
        self.upstream = Upstream()
        self.left_out = {}
        self.certificate = self.make_certificate()
        self.gateways = [self.embedded()]
        self.etcd()
        # The first leads until the second follows it; the third, which waits, sees how long that takes.
        self.metrics = [free_port() for _ in range(3)]
        self.electors = [self.elector(number) for number in range(3)]
        wait_for("two electors in line", lambda: in_line(self.gateways[0], "reports") == 2)

    def make_certificate(self):
        """A certificate for loopback, or None."""
        cert, key = self.stage.folder / "tls.crt", self.stage.folder / "tls.key"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        if not shutil.which("openssl"):
            self.left_out["certificate"] = self.left_out["handshake"] = "there is no openssl to make a certificate"
            return None
        subprocess.run(command, check=True, capture_output=True)
        return cert, key

    def embedded(self):
        tls, far = "", ""
        if self.certificate:
            cert, key = self.certificate
            tls = f'[listen.tls]\ncert = "{cert}"\nkey = "{key}"\n'
            far = FAR.format(port=free_port(), cert=cert, key=key)
        store = f'kind = "embedded"\npath = "{self.stage.folder / "embedded"}"'
        return self.gateway("embedded", store, tls, far)

    def etcd(self):
        """A node of etcd and a gateway on it, if there is one on this machine."""
        found = subprocess.run([ROOT / "scripts/etcd", "--find"], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            self.left_out["fenced"] = self.left_out["store_silence"] = "there is no etcd (scripts/etcd gets one)"
            return
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.stage.start(
            "etcd", f"{found.stdout.strip()}/etcd", "--name", "n1", "--data-dir", self.stage.folder / "etcd",
            "--log-level", "error", "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"n1={peer}",
        )
        self.stage.is_up("etcd", int(client.rsplit(":", 1)[1]), "/health")
        subprocess.run([self.highgate, "backend", "init", client.replace("http", "etcd", 1)], check=True, capture_output=True)
        store = f'kind = "etcd"\nendpoints = ["{client}"]\npath = "{self.stage.folder / "memory"}"'
        self.gateways.append(self.gateway("on-etcd", store, "", ""))

    def gateway(self, name, store, tls, far):
        gateway = Gateway(free_port(), free_port(), bool(tls))
        config = TEMPLATE.format(data=gateway.data, admin=gateway.admin, store=store, tls=tls, upstream=self.upstream.url)
        file = self.stage.folder / f"{name}.toml"
        file.write_text(config + far)
        self.stage.start(name, self.highgate, "serve", "--config", file)
        self.stage.is_up(name, gateway.admin, "/readyz")
        return gateway

    def elector(self, number):
        """`highgate run`, which exports what an elector counts."""
        name, admin = f"elector-{number}", self.gateways[0].admin
        process = self.stage.start(
            name, self.highgate, "run", "--resource", "reports", "--backend", f"highgate://127.0.0.1:{admin}",
            "--ttl", "3s", "--metrics", f"127.0.0.1:{self.metrics[number]}", "--", "sleep", "600",
        )
        self.stage.is_up(name, self.metrics[number], "/metrics")
        return process

    def play(self, turn):
        """One turn of everything that moves a metric, on each gateway."""
        for gateway in self.gateways:
            failover(gateway, turn)
            expect(428, gateway.write("/ledger/a"), "a write without a token")
            expect(200, gateway.write("/ledger/a", method="GET"), "a read")
            deposed(gateway, "/legacy", old=turn * 2 + 1, new=turn * 2 + 2)
            gateway.order("/v1/operator/freeze", resource="ledger/frozen")
            gateway.order("/v1/operator/thaw", resource="ledger/frozen")
            if gateway.tls:
                refused_handshake(gateway)
        if turn == 1:
            self.leading_elector().terminate()

    def leading_elector(self):
        leads = 'highgate_elector_is_leader{resource="reports"} 1'
        return next(one for one, port in zip(self.electors, self.metrics) if leads in get(port, "/metrics")[1])


def failover(gateway, turn):
    """A leader writes and is evicted; the next one leads, and the first one goes on writing."""
    first, second = (Job(gateway, "ledger/a", f"job-{turn}-{which}", 15) for which in "ab")
    first.campaign()
    expect(200, gateway.write("/ledger/a", first.token), "the leader's write")
    has_won = second.stand_in_line()
    wait_for("a candidate in line", lambda: in_line(gateway, "ledger/a") == 1)
    gateway.order("/v1/operator/evict", resource="ledger/a", token=first.token)
    has_won()
    expect(200, gateway.write("/ledger/a", second.token), "the next leader's write")
    expect(412, gateway.write("/ledger/a", first.token), "the deposed leader's write")
    second.resign()


def deposed(gateway, path, old, new):
    """The same with tokens of an election that the gateway does not hold."""
    expect(200, gateway.write(path, old), "a trusted token")
    expect(200, gateway.write(path, new), "a higher trusted token")
    expect(412, gateway.write(path, old), "a stale trusted token")


def refused_handshake(gateway):
    """HTTP without TLS to a port that has it."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        call(gateway.data, "GET", "/")
