"""What is generated is what its sources say, and the schema knows every value."""

import json
import unittest

import yaml

import example
import generated
from chart import CHART, ROOT


def accepted(schema: dict, whole: dict) -> dict:
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


class Generated(unittest.TestCase):
    def test_what_is_generated_is_up_to_date(self):
        for path, text in generated.files().items():
            with self.subTest(path=path.relative_to(ROOT)):
                there = path.read_text() if path.exists() else ""
                self.assertTrue(there == text, f"{path.relative_to(ROOT)} is stale: run scripts/chart --write")

    def test_nothing_is_shipped_that_config_no_longer_has(self):
        shipped = {path for path in (CHART / "files").rglob("*") if path.is_file()}
        self.assertEqual(shipped - set(generated.copies()), set())

    def test_every_value_is_described(self):
        self.assertEqual(generated.undescribed(), [])

    def test_the_schema_and_the_values_have_the_same_keys(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, schema, "")

    def compare(self, value: object, schema: dict, whole: dict, path: str):
        schema = accepted(schema, whole)
        # Maps that are empty by default, and generated parts, have more than the defaults say.
        if not value or not isinstance(value, dict) or "properties" not in schema or path == "config":
            return
        self.assertFalse(schema.get("additionalProperties", True), f"{path} takes unknown keys")
        self.assertEqual(set(value), set(schema["properties"]) - {"global"}, path)
        for key, below in value.items():
            self.compare(below, schema["properties"][key], whole, f"{path}.{key}".strip("."))

    def test_keys_that_the_chart_sets_are_keys_of_the_config(self):
        tree = example.read(ROOT)
        for name, keys in example.SET_BY_THE_CHART.items():
            self.assertIn(name, tree)
            for key in keys or ():
                self.assertIn(key, tree[name], name)
