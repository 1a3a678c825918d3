"""What keys a config file may have, as config/highgate.example.toml shows them; tests of the gateway hold that file to the code.

Lines that begin with `#` and no space are settings that are off, so every key is there.
"""

import tomllib
from pathlib import Path

# What the chart sets by itself: a value for it in `config` would be another truth.
SET_BY_THE_CHART = {
    "listen": {"address", "tls", "insecure"},
    "store": {"kind", "path", "endpoints", "prefix", "tls", "user"},
    "admin": None,
    "elections": None,
    "secrets": None,
    "routes": None,
    "grants": None,
}

TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def read(root: Path) -> dict:
    text = (root / "config/highgate.example.toml").read_text()
    lines = (line[1:] if line[:1] == "#" and line[1:2].strip() else line for line in text.splitlines())
    return tomllib.loads("\n".join(lines))


def value(values: list) -> dict:
    """The schema of a key that was seen with these values."""
    kinds = sorted({TYPES[type(each)] for each in values})
    schema = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if tables := [each for each in values if isinstance(each, dict)]:
        schema |= table(tables)
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    return schema


def table(tables: list[dict], without: set[str] = frozenset()) -> dict:
    """The schema of a table that was seen in these forms; whatever else it could have is refused."""
    keys = {key: [each[key] for each in tables if key in each] for each in tables for key in each}
    properties = {key: value(seen) for key, seen in sorted(keys.items()) if key not in without}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def definitions(root: Path) -> dict:
    """The parts of the chart's schema that follow from the config file."""
    tree = read(root)
    free = {}
    for name, content in sorted(tree.items()):
        without = SET_BY_THE_CHART.get(name, set())
        if without is None:
            continue
        free[name] = (
            {"type": "array", "items": table(content)} if isinstance(content, list) else table([content], without)
        )
    route = table(tree["routes"]) | {"required": ["name", "upstream"]}
    grant = table(tree["grants"]) | {"required": ["who", "may", "resources"]}
    config = {"type": "object", "additionalProperties": False, "properties": free}
    return {"config": config, "route": route, "grant": grant}
