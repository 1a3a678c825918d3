"""Gateways with services behind them, for scripts/clients and scripts/h2spec: certificates, processes, ports."""

import re
import subprocess
import sys
from pathlib import Path

from servers import Failed, wait_for

HERE = Path(__file__).resolve().parent

# `/ledger/NAME/…` is the resource `ledger/NAME`; a client of gRPC names its resource in a header. Any higher token may come, so
# that nobody has to be elected.
CONFIG = """
[listen]
address = "127.0.0.1:0"
{tls}
[admin]
address = "127.0.0.1:0"

[store]
path = "{folder}/data"

[log]
format = "json"

[[routes]]
name = "http"
match = {{ path = "/ledger/{{account}}/{{*rest}}" }}
upstream = "{scheme}://127.0.0.1:{origin}"
resource = "ledger/{{account}}"
tokens = "trusted"
{trust}
"""
GRPC = """
[[routes]]
name = "grpc"
match = {{ path = "/ledger.Ledger/{{*rest}}" }}
upstream = "{scheme}://127.0.0.1:{grpc}"
upstream_protocol = "h2"
resource = {{ client = true }}
tokens = "trusted"
{trust}
"""
OPEN = """
[[routes]]
name = "open"
match = {{ path = "/" }}
upstream = "{scheme}://127.0.0.1:{origin}"
missing_token = "allow"
tokens = "trusted"
{trust}
"""


class Certificates:
    """An authority and a certificate of it for 127.0.0.1, as files."""

    def __init__(self, folder):
        self.folder = folder
        self.authority, self.chain, self.key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
        new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        # With `-x509`, openssl's defaults make an authority.
        self.openssl(*new, "-x509", "-days", "2", "-subj", "/CN=clients", "-keyout", "ca.key", "-out", "ca.pem")
        self.openssl(*new, "-subj", "/CN=gateway", "-keyout", "server.key", "-out", "server.csr")
        extensions = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n"
        (folder / "server.ext").write_text(extensions)
        self.openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                     "-days", "2", "-extfile", "server.ext", "-out", "server.pem")

    def openssl(self, *words):
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"openssl {words[0]}: {done.stderr}")


class Stand:
    """One gateway and what it forwards to."""

    def __init__(self, stage, name, highgate, certificates, tls=False, upstream_tls=False, grpc=False, is_open=False):
        self.stage, self.name, self.tls = stage, name, tls
        self.authority = str(certificates.authority) if tls else "-"
        given = (certificates.chain, certificates.key) if upstream_tls else ()
        values = {
            "scheme": "https" if upstream_tls else "http",
            "trust": f'upstream_tls = {{ ca = "{certificates.authority}" }}' if upstream_tls else "",
            "tls": f'[listen.tls]\ncert = "{certificates.chain}"\nkey = "{certificates.key}"' if tls else "",
            "folder": stage.folder / name,
            "origin": self.start("origin", sys.executable, HERE / "origin.py", *given),
        }
        if grpc:
            values["grpc"] = self.start("grpc", sys.executable, HERE / "grpc_server.py", *given)
        config = stage.folder / f"{name}.toml"
        config.write_text((CONFIG + GRPC * grpc + OPEN * is_open).format(**values))
        self.port = self.start("gateway", highgate, "serve", "--config", config)
        self.base = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def start(self, part, *command):
        """The port that the process says it listens on."""
        name = f"{self.name}-{part}"
        process = self.stage.start(name, *command)

        def says_its_port():
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode}:\n{self.stage.log(name)}")
            return re.search(r"listening on (?:\S+:)?(\d+)\s", self.log(part))

        return int(wait_for(f"{name} listens", says_its_port, 60).group(1))

    def log(self, part):
        return (self.stage.folder / f"{self.name}-{part}.log").read_text(errors="replace")
