"""Rendered configs in the hands of the gateway: what `highgate check` says of them, and one that serves."""

import http.server
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MISSING = [tool for tool in ("openssl", "curl") if shutil.which(tool) is None]
needs_highgate = unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")


@cache
def certificate() -> tuple[str, str]:
    """A certificate that is its own authority, and its key."""
    with tempfile.TemporaryDirectory() as folder:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key")
        name = ("-subj", "/CN=highgate", "-addext", "subjectAltName=DNS:highgate", "-days", "90", "-out", "crt")
        subprocess.run(["openssl", "req", "-x509", *key, *name], cwd=folder, check=True, capture_output=True)
        return (Path(folder) / "crt").read_text(), (Path(folder) / "key").read_text()


def secrets() -> dict[str, str]:
    """What Secrets put below /etc/highgate."""
    crt, key = certificate()
    return {
        "tls/tls.crt": crt, "tls/tls.key": key,
        "etcd-tls/tls.crt": crt, "etcd-tls/tls.key": key, "etcd-tls/ca.crt": crt,
        "client-ca/ca.crt": crt,
        "admin-auth/token": "operators\n", "elections-auth/token": "jobs\n", "etcd-user/password": "etcd\n",
        "secrets/secrets": "ci 0123456789abcdef\nprometheus fedcba9876543210\n",
    }


@contextmanager
def installed(config: str) -> Iterator[Path]:
    """The file as a pod has it, with another folder in the place of /etc/highgate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in secrets().items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o440)
        file = folder / "highgate.toml"
        text = config.replace("/etc/highgate/", f"{folder}/").replace("/var/lib/highgate", f"{folder}/data")
        file.write_text(text)
        yield file


def check(config: str) -> str:
    """What `highgate check` answers; fails if it refuses."""
    with installed(config) as file:
        done = subprocess.run([os.environ["HIGHGATE"], "check", str(file)], capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


class Upstream(http.server.BaseHTTPRequestHandler):
    """Takes every write."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, *_):
        pass


def ports(gateway: subprocess.Popen) -> dict[int, int]:
    """Where its ports 8080, 9901 and 9902 are, as it says when it serves."""
    found = {}
    for name, port in (("listening", 8080), ("admin", 9901), ("elections", 9902)):
        line = gateway.stdout.readline()
        address = re.match(rf"highgate {name} on http://127\.0\.0\.1:([0-9]+)", line)
        assert address, f"the gateway says {line!r}"
        found[port] = int(address[1])
    return found


@contextmanager
def serving(config: str) -> Iterator[dict[int, int]]:
    """A gateway with this config, plain and embedded, on free ports and before an upstream; yields its ports."""
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    config = re.sub(r'address = "0\.0\.0\.0:[0-9]+"', 'address = "127.0.0.1:0"', config)
    config = re.sub(r'upstream = "[^"]*"', f'upstream = "http://127.0.0.1:{upstream.server_port}"', config)
    with installed(config) as file:
        command = [os.environ["HIGHGATE"], "serve", "--config", str(file)]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            yield ports(gateway)
        finally:
            gateway.kill()
            gateway.communicate()
            upstream.shutdown()
            upstream.server_close()
