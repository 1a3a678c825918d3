#!/usr/bin/env python3
"""Highgate beside nginx, end to end: CPU time per request and latency, as ratios within one run.

    cargo build --release && benches/compare.py [--rounds 5] [--seconds 2] [--connections 64]

Needs wrk and nginx (Debian: apt-get install wrk nginx-light). Everything runs on 127.0.0.1: one nginx is the
upstream, a second one is the peer that proxies to it, and highgate does the same with every request fenced (POST)
or not (GET). The proxies take turns within a round, so that a noisy machine is unfair to all of them alike;
the figures are medians over the rounds. CPU time is that of the proxy's processes, from /proc.
"""

import argparse
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
POST = 'wrk.method = "POST"\nwrk.body = string.rep("x", 1024)\nwrk.headers["X-Fencing-Token"] = "7"\n'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def nginx(folder, name, server):
    """Starts an nginx of two workers with this server block."""
    config = folder / f"{name}.conf"
    config.write_text(
        f"worker_processes 2; daemon off; pid {folder}/{name}.pid; error_log {folder}/{name}.log;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/{name}-b;\n"
        f"proxy_temp_path {folder}/{name}-p; fastcgi_temp_path {folder}/{name}-f;\n"
        f"uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;\n{server}\n}}\n"
    )
    return subprocess.Popen(["nginx", "-c", str(config), "-p", str(folder)], stderr=subprocess.DEVNULL)


def cpu_seconds(parent):
    """CPU time of a process and its children, threads included."""
    pids, seconds = [parent], 0.0
    pids += [int(pid) for pid in subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout.split()]
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / TICKS
    return seconds


def load(port, script, args):
    """One run of wrk: requests, and latency percentiles in milliseconds."""
    command = ["wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}s", "--latency"]
    command += (["-s", str(script)] if script else []) + [f"http://127.0.0.1:{port}/x"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"the run is worth nothing:\n{text}")
    scale = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    latency = {share: float(value) * scale[unit] for share, value, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)", text)}
    return int(re.search(r"(\d+) requests in", text).group(1)), latency["50"], latency["99"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=64)
    args = parser.parse_args()
    started = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "post.lua").write_text(POST)
        origin, peer, gate, admin = (free_port() for _ in range(4))
        body = "x" * 200
        try:
            started.append(nginx(folder, "origin", f"server {{ listen 127.0.0.1:{origin}; location / {{ return 200 {body}; }} }}"))
            started.append(nginx(folder, "peer", (
                f"upstream origin {{ server 127.0.0.1:{origin}; keepalive 256; keepalive_requests 1000000; }}\n"
                f"server {{ listen 127.0.0.1:{peer}; location / {{ proxy_pass http://origin; proxy_http_version 1.1;"
                " proxy_set_header Connection ''; } }")))
            config = folder / "gate.toml"
            config.write_text(
                f'[listen]\naddress = "127.0.0.1:{gate}"\n[admin]\naddress = "127.0.0.1:{admin}"\n'
                f'[store]\nkind = "embedded"\npath = "{folder}/data"\n[log]\naccess = "off"\nlevel = "warn"\n'
                f'[[routes]]\nname = "r"\nupstream = "http://127.0.0.1:{origin}"\ntokens = "trusted"\n')
            started.append(subprocess.Popen([ROOT / "target/release/highgate", "serve", "--config", str(config)], stdout=subprocess.DEVNULL))
            for port in (origin, peer, gate):
                wait_for(port)
            raise_mark = urllib.request.Request(f"http://127.0.0.1:{gate}/x", b"x", {"X-Fencing-Token": "7"})
            urllib.request.urlopen(raise_mark).read()
            proxies = {"nginx": (peer, started[1].pid), "highgate": (gate, started[2].pid)}
            for kind, script in (("GET, not fenced", None), ("POST 1 KiB, fenced", folder / "post.lua")):
                samples = {name: [] for name in proxies}
                for _ in range(args.rounds):
                    for name, (port, pid) in proxies.items():
                        before = cpu_seconds(pid)
                        requests, p50, p99 = load(port, script, args)
                        samples[name].append(((cpu_seconds(pid) - before) / requests * 1e6, requests / args.seconds, p50, p99))
                ratio = statistics.median(h[0] / n[0] for h, n in zip(samples["highgate"], samples["nginx"]))
                print(f"\n{kind}, {args.connections} connections: CPU per request {ratio:.2f} of nginx's")
                print(f"{'':10}{'CPU us/req':>12}{'req/s':>10}{'p50 ms':>9}{'p99 ms':>9}")
                for name, rows in samples.items():
                    cpu, rate, p50, p99 = (statistics.median(column) for column in zip(*rows))
                    print(f"{name:10}{cpu:12.1f}{rate:10.0f}{p50:9.2f}{p99:9.2f}")
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(10)


if __name__ == "__main__":
    main()
