"""Shows what reached an upstream to h11 and httptools: both must read what the gateway meant.

    readers.py FOLDER    every *.json that the tables wrote there (HIGHGATE_STREAMS)

Each file is a list of streams: the exact bytes of one upstream connection, and the requests that a strict reader found
in them. `scripts/readers` runs the tables and this.
"""

import json
import pathlib
import sys

import h11
import httptools


def text(value):
    return value.decode("utf-8", "replace")


def read_with_h11(stream):
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(stream)
    connection.receive_data(b"")
    requests, request = [], None
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            headers = [[text(name), text(value)] for name, value in event.headers]
            request = [text(event.method), text(event.target), headers, b""]
        elif isinstance(event, h11.Data):
            request[3] += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert not list(event.headers), f"trailers: {event.headers}"
            requests.append(request)
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                assert not connection.trailing_data[0], "something after the last request"
                return requests
            connection.start_next_cycle()
        elif isinstance(event, h11.ConnectionClosed):
            return requests
        else:
            raise AssertionError(f"h11 says {event!r}")


class Collector:
    """What httptools calls back."""

    def __init__(self):
        self.parser, self.requests, self.request = None, [], None

    def on_message_begin(self):
        self.request = [None, "", [], b""]

    def on_url(self, url):
        self.request[1] += text(url)

    def on_header(self, name, value):
        self.request[2].append([text(name).lower(), text(value)])

    def on_body(self, body):
        self.request[3] += body

    def on_message_complete(self):
        self.request[0] = text(self.parser.get_method())
        self.requests.append(self.request)


def read_with_httptools(stream):
    collector = Collector()
    collector.parser = httptools.HttpRequestParser(collector)
    collector.parser.feed_data(stream)
    return collector.requests


def differs(name, number, reader, stream, expected):
    try:
        read = reader(stream)
    except Exception as error:  # whatever a reader does not like is what we look for
        print(f"{name}, stream {number}: {reader.__name__}: {error!r}\n  {stream!r}")
        return True
    # Order over different names means nothing; order within one name does, and sorting is stable.
    plain = [[method, target, sorted(headers, key=lambda field: field[0]), body] for method, target, headers, body in read]
    if plain == expected:
        return False
    print(f"{name}, stream {number}: {reader.__name__} reads\n  {plain}\nand the gateway meant\n  {expected}")
    return True


def main(folder):
    files = sorted(pathlib.Path(folder).glob("*.json"))
    assert files, f"no streams in {folder}"
    streams, requests, wrong = 0, 0, 0
    for file in files:
        for number, stream in enumerate(json.loads(file.read_text())):
            expected = [
                [
                    request["method"],
                    request["target"],
                    sorted(([name.lower(), value] for name, value in request["headers"]), key=lambda field: field[0]),
                    bytes.fromhex(request["body"]),
                ]
                for request in stream["requests"]
            ]
            raw = bytes.fromhex(stream["bytes"])
            for reader in (read_with_h11, read_with_httptools):
                wrong += differs(file.stem, number, reader, raw, expected)
            streams, requests = streams + 1, requests + len(expected)
    print(f"h11 {h11.__version__} and httptools {httptools.__version__}: {requests} requests on {streams} connections, "
          f"{wrong} read in another way")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
