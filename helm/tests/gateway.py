"""Rendered configs in the hands of the gateway: what `highgate check` says of them, and one that serves."""

import http.server
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
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


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def await_ready(process: subprocess.Popen, port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "the gateway has ended"
            assert time.monotonic() < end, "the gateway is not ready after 60 s"
            time.sleep(0.05)


@contextmanager
def serving(config: str) -> Iterator[dict[int, int]]:
    """A gateway with this config, plain and embedded, before an upstream; yields where its ports 8080, 9901 and 9902 are."""
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    ports = dict(zip((8080, 9901, 9902), free_ports(3)))
    for port, free in ports.items():
        config = config.replace(f'"0.0.0.0:{port}"', f'"127.0.0.1:{free}"')
    config = re.sub(r'upstream = "[^"]*"', f'upstream = "http://127.0.0.1:{upstream.server_port}"', config)
    with installed(config) as file:
        process = subprocess.Popen([os.environ["HIGHGATE"], "serve", "--config", str(file)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_ready(process, ports[9901])
            yield ports
        finally:
            process.kill()
            process.wait()
            upstream.shutdown()
            upstream.server_close()
