"""httpx: `httpx_client.py BASE PROTOCOL CA` (http/1.1, h2 or h2c; `-` without TLS)."""

import hashlib
import ssl
import sys

import httpx
from checks import LARGE, REQUESTS, SMALL, STALE, TOKEN, Checks, same

VERSIONS = {"http/1.1": "HTTP/1.1", "h2": "HTTP/2", "h2c": "HTTP/2"}


class Ledger:
    def __init__(self, base, protocol, authority):
        self.base, self.version = base, VERSIONS[protocol]
        verify = True if authority == "-" else ssl.create_default_context(cafile=authority)
        # Without HTTP/1.1 a client without TLS speaks HTTP/2 at once.
        h2 = protocol != "http/1.1"
        self.client = httpx.Client(http1=not h2, http2=h2, verify=verify, timeout=60, trust_env=False)

    def post(self, content, token=TOKEN, path="write"):
        headers = {"X-Fencing-Token": token} if token else {}
        response = self.client.post(f"{self.base}/{path}", content=content, headers=headers)
        same("the version", response.http_version, self.version)
        return response

    def echoes(self, content):
        response = self.post(content)
        same("the status", response.status_code, 200)
        same("the body", response.content, content)

    def sends_chunks(self):
        response = self.post(LARGE[at : at + 8192] for at in range(0, len(LARGE), 8192))
        same("the status", response.status_code, 200)
        same("the framing at the origin", response.headers["x-framing"], "chunked")
        same("the body", response.content, LARGE)

    def is_refused(self, token, status, reason):
        for content in SMALL, LARGE:
            response = self.post(content, token)
            found = (response.status_code, response.headers["content-type"], response.headers["x-fencing-reason"])
            same("the answer", found, (status, "application/problem+json", reason))
            same("the status in the problem", response.json()["status"], status)

    def reuses(self):
        for _ in range(REQUESTS):
            same("the status", self.post(b"x", path="reuse").status_code, 200)

    def downloads(self):
        response = self.client.get(f"{self.base}/download")
        same("the status", response.status_code, 200)
        same("the length", len(response.content), 32 << 20)
        same("the hash", hashlib.sha256(response.content).hexdigest(), response.headers["x-sha256"])


def main(base, protocol, authority):
    ledger, checks = Ledger(base, protocol, authority), Checks()
    checks.run("small", lambda: ledger.echoes(SMALL))
    checks.run("large", lambda: ledger.echoes(LARGE))
    checks.run("chunked", ledger.sends_chunks)
    checks.run("stale", lambda: ledger.is_refused(STALE, 412, "stale"))
    checks.run("missing", lambda: ledger.is_refused(None, 428, "missing"))
    checks.run("reuse", ledger.reuses)
    checks.run("download", ledger.downloads)
    return checks.failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
