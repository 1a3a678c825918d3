"""Unpacks Kubernetes' schemas from the wheel of kubernetes-validate, so that each finds the others beside it.

    schemas.py FOLDER-OF-THE-WHEEL KUBERNETES-VERSION FOLDER-TO-WRITE
"""

import json
import sys
import zipfile
from pathlib import Path


def unpack(wheel: Path, version: str, target: Path) -> None:
    inside = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/"
    target.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(inside) and name.endswith(".json"):
                text = archive.read(name).decode().replace('"/api/_definitions.json', '"_definitions.json')
                schema = json.loads(text)
                # With an address of its own a schema would look for the others there.
                schema.pop("$id", None)
                (target / Path(name).name).write_text(json.dumps(schema))


if __name__ == "__main__":
    unpack(next(Path(sys.argv[1]).glob("*.whl")), sys.argv[2], Path(sys.argv[3]))
