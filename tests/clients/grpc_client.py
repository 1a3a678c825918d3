"""grpcio: `grpc_client.py BASE PROTOCOL CA`. The last segment of BASE is the resource; `-` without TLS."""

import queue
import sys
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from checks import LARGE, REQUESTS, SMALL, STALE, TOKEN, Checks, same
from grpc_server import SERVICE

PATIENCE = 60


class Ledger:
    def __init__(self, base, authority):
        url = urlsplit(base)
        if authority == "-":
            self.channel = grpc.insecure_channel(url.netloc)
        else:
            credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
            self.channel = grpc.secure_channel(url.netloc, credentials)
        self.resource = url.path.strip("/")

    def metadata(self, token=TOKEN):
        named = [("x-fencing-resource", self.resource)]
        return [*named, ("x-fencing-token", token)] if token else named

    def call(self, kind, name, message):
        method = getattr(self.channel, kind)(f"/{SERVICE}/{name}")
        return method(message, metadata=self.metadata(), timeout=PATIENCE)

    def unary(self, message, name="Unary", token=TOKEN):
        """The answer, and the call that tells how it ended."""
        method = self.channel.unary_unary(f"/{SERVICE}/{name}")
        return method.with_call(message, metadata=self.metadata(token), timeout=PATIENCE)

    def echoes(self, message):
        same("the answer", self.unary(message)[0], message)

    def ends_whole(self):
        call = self.unary(SMALL)[1]
        same("the status", call.code(), grpc.StatusCode.OK)
        same("the trailers", dict(call.trailing_metadata()).get("x-after"), "whole")

    def streams_up(self):
        answer = self.call("stream_unary", "ClientStream", (LARGE[at : at + 16384] for at in range(0, 1 << 20, 16384)))
        same("the answer", answer, b"1048576 in 64")

    def streams_down(self):
        call = self.call("unary_stream", "ServerStream", b"32")
        for number, message in enumerate(call):
            same("a message", message, bytes([number]) * (1 << 20))
        same("the last message", number, 31)
        same("the trailers", dict(call.trailing_metadata()).get("x-after"), "whole")

    def streams_both_ways(self):
        """Every message waits for the answer to the one before it."""
        sent = queue.SimpleQueue()
        call = self.call("stream_stream", "BothWays", iter(sent.get, None))
        for number in range(64):
            message = number.to_bytes(4, "big") * 1024
            sent.put(message)
            same("an answer", next(call), message)
        sent.put(None)
        same("what is left", list(call), [])
        same("the trailers", dict(call.trailing_metadata()).get("x-after"), "whole")

    def is_refused(self, token, reason):
        for message in SMALL, LARGE:
            self.refuses(message, token, reason)

    def refuses(self, message, token, reason):
        try:
            self.unary(message, token=token)
        except grpc.RpcError as error:
            same("the status", error.code(), grpc.StatusCode.FAILED_PRECONDITION)
            told = dict([*error.initial_metadata(), *error.trailing_metadata()])
            same("the reason", told.get("x-fencing-reason"), reason)
        else:
            raise AssertionError("it passed")

    def reuses(self):
        for _ in range(REQUESTS):
            self.unary(b"x", "Reuse")


def main(base, _, authority):
    ledger, checks = Ledger(base, authority), Checks()
    checks.run("small", lambda: ledger.echoes(SMALL))
    checks.run("large", lambda: ledger.echoes(LARGE))
    checks.run("trailers", ledger.ends_whole)
    checks.run("client-stream", ledger.streams_up)
    checks.run("server-stream", ledger.streams_down)
    checks.run("both-ways", ledger.streams_both_ways)
    checks.run("stale", lambda: ledger.is_refused(STALE, "stale"))
    checks.run("missing", lambda: ledger.is_refused(None, "missing"))
    checks.run("reuse", ledger.reuses)
    return checks.failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
