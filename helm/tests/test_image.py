"""The Dockerfile, as far as it can be judged where no engine can build it: what is sent to it is all that cargo needs."""

import fnmatch
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from chart import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def sent() -> list[str]:
    """The folders and files at the top that .dockerignore lets through; all else it leaves out."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


class Context(unittest.TestCase):
    @unittest.skipIf(shutil.which("cargo") is None, "there is no cargo")
    def test_what_is_sent_is_a_workspace(self):
        with tempfile.TemporaryDirectory() as name:
            for pattern in sent():
                for source in ROOT.glob(pattern):
                    copy(source, Path(name) / source.relative_to(ROOT))
            command = ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]
            done = subprocess.run(command, cwd=name, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_copied_into_the_image_is_sent(self):
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            self.assertIn(f"/src/{licence}", DOCKERFILE)
            self.assertTrue(any(fnmatch.fnmatch(licence, pattern) for pattern in sent()))

    def test_it_is_the_version_of_the_workspace_and_of_the_chart(self):
        version = next(line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines()
                       if line.startswith("version = "))
        self.assertIn(f"ARG VERSION={version}\n", DOCKERFILE)
        self.assertIn(f'appVersion: "{version}"', (ROOT / "helm/highgate/Chart.yaml").read_text())

    def test_the_user_of_the_image_is_that_of_the_chart(self):
        self.assertIn("USER 65532:65532", DOCKERFILE)
        self.assertIn("runAsUser: 65532", (ROOT / "helm/highgate/templates/_pod.tpl").read_text())


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("target"))
    else:
        shutil.copy(source, target)
