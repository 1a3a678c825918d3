"""What the clients in Python have in common: they run checks and print a line for each.

`ok NAME`, `FAILED NAME: why`, or `SKIPPED NAME: why` for what this client cannot do.
"""

import os

TOKEN, STALE = "7", "6"
SMALL, LARGE = os.urandom(1 << 10), os.urandom(1 << 20)
# Requests on one connection; the gateway's access log tells whether it was one.
REQUESTS = 50


class CannotBeTried(Exception):
    """The client is not able to, and why."""


class Checks:
    def __init__(self):
        self.failed = False

    def run(self, name, check):
        try:
            check()
            print("ok", name, flush=True)
        except CannotBeTried as why:
            print(f"SKIPPED {name}: {why}", flush=True)
        except Exception as error:  # whatever it is, the next check is run as well
            self.failed = True
            print(f"FAILED {name}: {type(error).__name__} {error}".replace("\n", " "), flush=True)


def same(what, found, expected):
    """Bodies are not shown."""
    if found != expected:
        shown = [repr(value) if len(repr(value)) < 200 else f"{len(value)} bytes" for value in (found, expected)]
        raise AssertionError(f"{what} is {shown[0]} and not {shown[1]}")
