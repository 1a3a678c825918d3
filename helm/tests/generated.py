"""What is made of other files: the README's table of values, parts of the schema, and the rules and dashboards of config/."""

import json
import re
from functools import cache
from pathlib import Path

import yaml

import example
from chart import CHART, ROOT

BEGIN = "<!-- values: scripts/chart --write makes this table of values.yaml -->"
END = "<!-- end of values -->"
WIDTH = 110


@cache
def values() -> dict:
    return yaml.safe_load((CHART / "values.yaml").read_text())


@cache
def described() -> dict[str, str]:
    """The comment directly above each key of values.yaml, by the key's path."""
    found, path, comment = {}, [], None
    for line in (CHART / "values.yaml").read_text().splitlines():
        key = re.match(r"( *)([A-Za-z_]+):", line)
        if key:
            path = path[: len(key[1]) // 2] + [key[2]]
            if comment:
                found[".".join(path)] = comment
        text = re.match(r" *# (.*)", line)
        comment = text[1] if text else None
    return found


def default(path: str) -> str:
    value = values()
    for key in path.split("."):
        value = value[key]
    if isinstance(value, dict) and any(each.startswith(path + ".") for each in described()):
        return ""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def undescribed() -> list[str]:
    """Keys without a comment of their own, below none that has one for all of them."""
    known = described()

    def walk(value: object, path: str) -> list[str]:
        if path in known and not any(each.startswith(path + ".") for each in known):
            return []
        if not isinstance(value, dict) or not value:
            return [] if path in known else [path]
        return [each for key, below in value.items() for each in walk(below, f"{path}.{key}".strip("."))]

    return walk(values(), "")


def readme() -> str:
    text = (CHART / "README.md").read_text()
    rows = "".join(f"| `{path}` | {default(path)} | {what} |\n" for path, what in described().items())
    table = f"{BEGIN}\n| value | default | what it is |\n| --- | --- | --- |\n{rows}{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: table, text, flags=re.DOTALL)


def written(value: object, indent: str = "") -> str:
    """JSON with a line for what fits on one, so that the schema can be read."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, (dict, list)):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        parts, ends = [written(each, inner) for each in value], "[]"
    else:
        parts, ends = [f"{json.dumps(key)}: {written(each, inner)}" for key, each in value.items()], "{}"
    body = ",\n".join(inner + part for part in parts)
    return f"{ends[0]}\n{body}\n{indent}{ends[1]}"


def schema() -> str:
    tree = json.loads((CHART / "values.schema.json").read_text())
    tree["$defs"] |= example.definitions(ROOT)
    return written(tree) + "\n"


def copies() -> dict[Path, str]:
    """Helm reads files below its chart only, so what the chart ships of config/ is there a second time."""
    sources = {
        "prometheus": [ROOT / "config/prometheus" / name for name in ("alerts.yml", "recording.yml")],
        "grafana": sorted((ROOT / "config/grafana").glob("*.json")),
    }
    return {
        CHART / "files" / folder / source.name: source.read_text()
        for folder, files in sources.items()
        for source in files
        if source.exists()
    }


def files() -> dict[Path, str]:
    return {CHART / "README.md": readme(), CHART / "values.schema.json": schema()} | copies()


def write() -> None:
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
