"""Runs h2spec against the data port, plain and with TLS, and compares what fails with what may (scripts/h2spec).

    h2spec.py HIGHGATE H2SPEC [spec...]
"""

import subprocess
import sys
import xml.etree.ElementTree

from servers import Failed, Stage
from stands import Certificates, Stand

# Cases that fail, by the kind of port, and why that is right.
KNOWN = {
    "plain": {
        ("http2/3.5", "Sends invalid connection preface"): "the port speaks HTTP/1.1, too, so what does not begin with "
        "the preface is read as that: it is answered with 400 and closed, and not with a GOAWAY",
    },
    "TLS": {},
}
# For one case; long, for a busy machine.
PATIENCE = "5"


def run(stage, h2spec, stand, specs):
    """The cases that were tried, and what those that failed said."""
    report = stage.folder / f"{stand.name}.xml"
    words = ["--host", "127.0.0.1", "--port", str(stand.port), "--timeout", PATIENCE, "--strict", "--junit-report", report]
    words += ["--tls", "--insecure"] if stand.tls else []
    done = subprocess.run([h2spec, *specs, *words], capture_output=True, text=True, timeout=900)
    if not report.exists():
        raise Failed(f"h2spec ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    tried = {named(case) for case in cases if case.find("skipped") is None}
    failed = {named(case): " ".join("".join(case.itertext()).split()) for case in cases if is_failed(case)}
    return tried, failed


def named(case):
    return case.get("package"), case.get("classname")


def is_failed(case):
    return case.find("failure") is not None or case.find("error") is not None


def judge(kind, tried, failed):
    """Prints what was seen. True if it is what it has to be."""
    known = {case: why for case, why in KNOWN[kind].items() if case in tried}
    unknown, mended = failed.keys() - known.keys(), known.keys() - failed.keys()
    print(f"{kind}: {len(tried) - len(failed)} of {len(tried)} cases pass")
    for case in sorted(failed.keys() & known.keys()):
        print("    known", *case, "-", known[case])
    for case in sorted(unknown):
        print("    FAILED", *case, "-", failed[case])
    for case in sorted(mended):
        print("    FAILED", *case, "- passes now: take it off the list")
    if not tried:
        print("    FAILED: no case was tried")
    return bool(tried) and not unknown and not mended


def main(highgate, h2spec, *specs):
    held = True
    try:
        with Stage() as stage:
            certificates = Certificates(stage.folder)
            for kind in KNOWN:
                stand = Stand(stage, kind, highgate, certificates, tls=kind == "TLS", is_open=True)
                held &= judge(kind, *run(stage, h2spec, stand, specs))
    except Failed as failure:
        print("FAILED", failure)
        return 1
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
