"""Tests of the chart. scripts/chart gets the tools and names them in the environment: HELM and HIGHGATE, and KUBECONFORM with
KUBERNETES_SCHEMAS if they can be had; what needs one that is missing says SKIPPED.

`--write` writes what is generated (generated.py) instead.
"""

import sys
import unittest
from pathlib import Path

import generated


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        generated.write()
        return 0
    suite = unittest.defaultTestLoader.discover(str(Path(__file__).parent))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    for test, reason in result.skipped:
        print(f"SKIPPED {test.id().rsplit('.', 1)[-1]}: {reason}")
    return 0 if result.wasSuccessful() else 1


sys.exit(main())
