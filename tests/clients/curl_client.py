"""curl: `curl_client.py BASE PROTOCOL CA` (http/1.1, h2, h2c or h2c-upgrade; `-` without TLS)."""

import hashlib
import subprocess
import sys

from checks import LARGE, REQUESTS, SMALL, STALE, TOKEN, CannotBeTried, Checks, same

FLAGS = {
    "http/1.1": "--http1.1",
    "h2": "--http2",
    "h2c": "--http2-prior-knowledge",
    "h2c-upgrade": "--http2",
}
# An offer to upgrade is one that the gateway does not take.
VERSIONS = {"http/1.1": "1.1", "h2": "2", "h2c": "2", "h2c-upgrade": "1.1"}
SHOWN = "\n%{http_code} %{http_version} %{content_type} %header{x-framing} %header{x-sha256} %header{x-fencing-reason}\n"


def version():
    return int(subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout.split()[1].split(".")[0])


class Curl:
    def __init__(self, base, protocol, authority):
        self.base, self.protocol = base, protocol
        self.command = ["curl", "--silent", "--show-error", "--max-time", "60", FLAGS[protocol]]
        if authority != "-":
            self.command += ["--cacert", authority]

    def ask(self, *words, content=b"", token=None, path="write"):
        """The body, and what curl says about the answer."""
        words = [*words, "--write-out", SHOWN.replace(" ", "|")]
        if token:
            words += ["--header", f"X-Fencing-Token: {token}"]
        done = subprocess.run([*self.command, *words, f"{self.base}/{path}"], input=content, capture_output=True)
        if done.returncode:
            raise AssertionError(f"curl ended with {done.returncode}: {done.stderr.decode()}")
        body, shown = done.stdout[:-1].rsplit(b"\n", 1)
        status, version, *rest = shown.decode().split("|")
        same("the version", version, VERSIONS[self.protocol])
        return body, int(status), *rest

    def post(self, content, *words, token=TOKEN):
        return self.ask("--data-binary", "@-", *words, content=content, token=token)

    def echoes(self, content, *words):
        body, status, *_ = self.post(content, *words)
        same("the status", status, 200)
        same("the body", body, content)

    def sends_chunks(self):
        body, status, _, framing, *_ = self.ask("--upload-file", "-", "-X", "POST", content=LARGE, token=TOKEN)
        same("the status", status, 200)
        same("the framing at the origin", framing, "chunked")
        same("the body", body, LARGE)

    def is_refused(self, token, expected):
        for content in SMALL, LARGE:
            _, status, kind, _, _, reason = self.post(content, token=token)
            same("the answer", (status, kind, reason), (expected[0], "application/problem+json", expected[1]))

    def reuses(self):
        if self.protocol == "h2c" and version() < 8:
            raise CannotBeTried("curl 7.88 fails at the second request of a connection (curl issue 10634)")
        urls = [f"{self.base}/reuse"] * (REQUESTS - 1)
        answers, *_ = self.ask("--data-binary", "x", *urls, token=TOKEN, path="reuse")
        statuses = [line.split(b"|")[0] for line in answers.split(b"\n") if b"|" in line]
        same("the answers", statuses, [b"200"] * (REQUESTS - 1))

    def downloads(self):
        body, status, _, _, digest, _ = self.ask(path="download")
        same("the status", status, 200)
        same("the length", len(body), 32 << 20)
        same("the hash", hashlib.sha256(body).hexdigest(), digest)


def main(base, protocol, authority):
    curl, checks = Curl(base, protocol, authority), Checks()
    checks.run("small", lambda: curl.echoes(SMALL))
    checks.run("large", lambda: curl.echoes(LARGE))
    checks.run("expect", lambda: curl.echoes(LARGE, "--header", "Expect: 100-continue"))
    checks.run("chunked", curl.sends_chunks)
    checks.run("stale", lambda: curl.is_refused(STALE, (412, "stale")))
    checks.run("missing", lambda: curl.is_refused(None, (428, "missing")))
    checks.run("reuse", curl.reuses)
    checks.run("download", curl.downloads)
    return checks.failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
