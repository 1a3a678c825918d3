"""The gateway under the restrictions of the chart's pod, from its start to the end of its shutdown."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chart import ROOT, SHORTEST, Release
from gateway import needs_highgate, ports

NAMESPACES = ["unshare", "--mount", "--pid", "--fork"]


def namespaces_can_be_made() -> bool:
    return shutil.which("setpriv") is not None and subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode == 0


def config() -> str:
    text = re.sub(r'address = "0\.0\.0\.0:[0-9]+"', 'address = "127.0.0.1:0"', Release(SHORTEST).config())
    return text.replace('format = "json"', 'format = "text"')


@contextmanager
def pod(*arguments: str) -> Iterator[subprocess.Popen]:
    """A process with these arguments of the container."""
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "config").mkdir()
        (Path(folder) / "config/highgate.toml").write_text(config())
        command = [*NAMESPACES, str(ROOT / "helm/tests/pod.sh"), os.environ["HIGHGATE"], root, folder, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            # With its first process a container ends, and unshare with it.
            for inner in inside(process):
                os.kill(inner, signal.SIGKILL)
            process.communicate(timeout=60)


def inside(process: subprocess.Popen) -> list[int]:
    """The container's first process, by the number that it has out here; none when it has ended."""
    if process.poll() is not None:
        return []
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(child) for child in children.split()]


@unittest.skipUnless(namespaces_can_be_made(), "namespaces cannot be made here, or there is no setpriv")
class Pod(unittest.TestCase):
    @needs_highgate
    def test_its_arguments_are_taken(self):
        with pod(*Release(SHORTEST).pod()["initContainers"][0]["args"]) as process:
            said, problems = process.communicate(timeout=60)
            self.assertIn("ok, 1 route", said, problems)

    @needs_highgate
    def test_it_serves_and_ends_clean_within_the_grace_period(self):
        spec = Release(SHORTEST).pod()
        with pod(*spec["containers"][0]["args"]) as process:
            admin = ports(process)[9901]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = spec["containers"][0][probe]["httpGet"]["path"]
                with urllib.request.urlopen(f"http://127.0.0.1:{admin}{path}", timeout=30) as answer:
                    self.assertEqual(answer.status, 200)
            [inner] = inside(process)
            status = Path(f"/proc/{inner}/status").read_text()
            self.assertRegex(status, r"Uid:\t65532\t")
            self.assertRegex(status, r"CapEff:\t0+\n")
            os.kill(inner, signal.SIGTERM)
            _, log = process.communicate(timeout=spec["terminationGracePeriodSeconds"])
            self.assertEqual(process.returncode, 0, log)
            self.assertIn("stopped clean", log)
