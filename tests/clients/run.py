"""Real HTTP and gRPC clients through the data port, with and without TLS (scripts/clients).

    run.py HIGHGATE CACHE [--only CLIENT]

Each client is a program of its own in this folder, which says of each check whether it held. What it does not say has
failed, too. That requests shared a connection is seen from the gateway's side, in its access log.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from checks import REQUESTS
from servers import Failed, Stage, wait_for
from stands import HERE, Certificates, Stand

HTTP = {"small", "large", "chunked", "stale", "missing", "reuse", "download"}
GRPC = {"small", "large", "trailers", "client-stream", "server-stream", "both-ways", "stale", "missing", "reuse"}
EXPECT = HTTP | {"expect"}
# What a client speaks without TLS, and with it.
PROTOCOLS = {
    "curl": (["http/1.1", "h2c", "h2c-upgrade"], ["http/1.1", "h2"]),
    "go": (["http/1.1", "h2c"], ["http/1.1", "h2"]),
    "java": (["http/1.1", "h2c-upgrade"], ["http/1.1", "h2"]),
    "httpx": (["http/1.1", "h2c"], ["http/1.1", "h2"]),
    "grpcio": (["h2c"], ["h2"]),
}
CHECKS = {"curl": EXPECT, "go": HTTP, "java": EXPECT, "httpx": HTTP, "grpcio": GRPC}


class Skipped(Exception):
    """A client that cannot be had here, and why."""


def curl(_):
    if not shutil.which("curl"):
        raise Skipped("there is no curl")
    if "HTTP2" not in subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout:
        raise Skipped("this curl has no HTTP/2")
    return [sys.executable, HERE / "curl_client.py"]


def go(cache):
    if not shutil.which("go"):
        raise Skipped("there is no go")
    program = cache / "go-client"
    built = subprocess.run(["go", "build", "-o", program, HERE / "client.go"], capture_output=True, text=True)
    if built.returncode:
        # Go 1.24 and later have all that it uses, and a mistake in it is no reason to skip.
        version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
        numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
        if numbers >= [1, 24]:
            raise Failed(built.stderr)
        raise Skipped("Go 1.24 or later is needed")
    return [program]


def java(_):
    try:
        modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, timeout=300).stdout
    except FileNotFoundError:
        raise Skipped("there is no java") from None
    if "java.net.http" not in modules or "jdk.compiler" not in modules:
        raise Skipped("this java has no HttpClient, or no compiler")
    return ["java", "-XX:TieredStopAtLevel=1", HERE / "Client.java"]


def httpx(_):
    return [sys.executable, HERE / "httpx_client.py"]


def grpcio(_):
    return [sys.executable, HERE / "grpc_client.py"]


MADE = {made.__name__: made for made in (curl, go, java, httpx, grpcio)}


def complaints(client, command, stand, protocol, account):
    """What did not hold, and what the client left out and why."""
    # A gRPC service is where the path begins: there the rest of the address is the resource's name.
    base = f"{stand.base}/{account}" if client == "grpcio" else f"{stand.base}/ledger/{account}"
    words = [*map(str, command), base, protocol, stand.authority]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    said = [line.partition(" ") for line in done.stdout.splitlines()]
    told = {rest.split(":")[0]: verdict for verdict, _, rest in said}
    left_out = [f"SKIPPED {rest}" for verdict, _, rest in said if verdict == "SKIPPED"]
    failed = [f"FAILED {rest}" for verdict, _, rest in said if verdict == "FAILED"]
    failed += [f"FAILED {name}: not tried" for name in sorted(CHECKS[client] - told.keys())]
    if done.returncode and not failed:
        failed.append(f"FAILED: it ended with {done.returncode}")
    if failed and done.stderr:
        failed.append(done.stderr[-1000:])
    if not failed and told["reuse"] == "ok":
        failed = reuse(stand, account)
    return failed, left_out


def reuse(stand, account):
    """The many requests of the check `reuse` came on one connection."""

    def logged():
        whole = (line for line in stand.log("gateway").splitlines() if line.startswith("{") and line.endswith("}"))
        access = [line for line in map(json.loads, whole) if line["target"] == "access" and "resource" in line]
        seen = [line for line in access if line["resource"].endswith(account) and "reuse" in line["path"].lower()]
        return seen if len(seen) >= REQUESTS - 1 else None

    connections = {line["client"] for line in wait_for("the access log has them all", logged)}
    return [f"FAILED reuse: {len(connections)} connections"] if len(connections) != 1 else []


def stands(stage, highgate):
    certificates = Certificates(stage.folder)
    yield "none", Stand(stage, "plain", highgate, certificates, grpc=True)
    yield "clients", Stand(stage, "tls", highgate, certificates, tls=True, grpc=True)
    yield "clients, upstream", Stand(stage, "both", highgate, certificates, tls=True, upstream_tls=True, grpc=True)


def play(stage, highgate, commands):
    """One line for each client, protocol and kind of TLS. True if all held."""
    row = "{:8} {:12} {:18} {}".format
    print(row("client", "protocol", "TLS", "result"))
    failed, number = False, 0
    for tls, stand in stands(stage, highgate):
        for client, command in commands.items():
            if isinstance(command, Skipped):
                print(row(client, "", tls, f"SKIPPED {command}"), flush=True)
                continue
            for protocol in PROTOCOLS[client][stand.tls]:
                number += 1
                began = time.monotonic()
                found, left_out = complaints(client, command, stand, protocol, f"acct-{number}")
                held = f"ok ({len(CHECKS[client]) - len(left_out)} checks, {time.monotonic() - began:.1f} s)"
                result = "FAILED" if found else held
                print(row(client, protocol, tls, result), *found, *left_out, sep="\n    ", flush=True)
                failed |= bool(found)
    return not failed


def command_of(name, cache):
    """How the client is called, or why it cannot be."""
    try:
        return MADE[name](cache)
    except Skipped as why:
        return why


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("highgate")
    parser.add_argument("cache", type=Path)
    parser.add_argument("--only", choices=MADE)
    words = parser.parse_args()
    names = [words.only] if words.only else MADE
    try:
        commands = {name: command_of(name, words.cache) for name in names}
        with Stage() as stage:
            return 0 if play(stage, words.highgate, commands) else 1
    except Failed as failure:
        print("FAILED", failure)
        return 1


if __name__ == "__main__":
    sys.exit(main())
