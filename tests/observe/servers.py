"""Processes that the check and the live view start: on loopback, on free ports, ended by their process ids."""

import contextlib
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """Something that has to be so is not."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for(what, condition, seconds=30):
    """Returns what the condition returns as soon as that is true."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if found := condition():
                return found
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def get(port, path, timeout=10, **query):
    """The status and the body of a GET on loopback."""
    target = path + ("?" + urllib.parse.urlencode(query) if query else "")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Stage:
    """A temporary folder and the processes that live in it; both are gone when it is left."""

    def __enter__(self):
        # An end from outside is one like Ctrl-C: the stage is left in order.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.folder = Path(tempfile.mkdtemp(prefix="highgate-observe-"))
        self.started = []
        return self

    def __exit__(self, *_):
        for _, process in reversed(self.started):
            stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name, *command, env=None):
        """Starts a process in a session of its own: Ctrl-C is for this program, which ends all in their order."""
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env={**os.environ, **(env or {})},
            )
        self.started.append((name, process))
        return process

    def log(self, name):
        """The end of what a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def is_up(self, name, port, path, seconds=30):
        process = next(process for known, process in self.started if known == name)

        def answers():
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode}:\n{self.log(name)}")
            return get(port, path)[0] == 200

        wait_for(f"{name} answers {path}\n{self.log(name)}", answers, seconds)


def stop(process):
    """Asks once, and then insists."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            # It leads a session of its own, so nothing else has this group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Prometheus:
    """A real Prometheus with the rules of the repository, and its API."""

    def __init__(self, stage, jobs, interval, port=None):
        """`jobs`: for each job the ports to scrape."""
        self.port = port or free_port()
        config = stage.folder / "prometheus.yml"
        config.write_text(configuration(jobs, interval))
        stage.start(
            "prometheus", "prometheus", f"--config.file={config}", f"--storage.tsdb.path={stage.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        )
        stage.is_up("prometheus", self.port, "/-/ready")

    def ask(self, what, **query):
        """What the API answers; an error of Prometheus is Failed."""
        _, body = get(self.port, f"/api/v1/{what}", timeout=30, **query)
        answer = json.loads(body)
        if answer["status"] != "success":
            raise Failed(answer.get("error", body))
        return answer["data"]

    def instant(self, expression):
        return self.ask("query", query=expression)["result"]

    def over_time(self, expression, since, step="1s"):
        return self.ask("query_range", query=expression, start=since, end=time.time(), step=step)["result"]

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def scraped(self):
        return {target["scrapeUrl"] for target in self.ask("targets")["activeTargets"] if target["health"] == "up"}


def configuration(jobs, interval):
    """YAML takes JSON."""
    rules = [str(ROOT / "config/prometheus" / name) for name in ("recording.yml", "alerts.yml")]
    scrapes = [
        {"job_name": job, "static_configs": [{
            "targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"namespace": "local"},
        }]}
        for job, ports in jobs.items()
    ]
    timing = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s"}
    return json.dumps({"global": timing, "rule_files": rules, "scrape_configs": scrapes})


class Upstream:
    """A service to fence: it takes every request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "3")
            self.end_headers()
            self.wfile.write(b"ok\n")

        do_GET = do_POST

        def log_message(self, *_):
            """It has nothing to say."""

    def __init__(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
