"""``tpusim schema``: what every command prints as JSON is what its schema says, and carries a version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT
from tpusim.report.json.schemas import schemas

MLP = str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz")
POD = str(ROOT / "traces/llama8b_decode_tp.v5e_2x4.hlo.txt.gz")
COLLECTIVES = str(ROOT / "traces/collectives/index.csv")
UNSCHEDULED = str(ROOT / "traces/unscheduled/index.csv")
STEPS = str(ROOT / "traces/steps/index.csv")

COMMANDS = [
    ("run", MLP, "--json"),
    ("run", POD, "--json", "--by", "source"),
    ("compile", MLP, "--json"),
    ("compile", MLP, "--stop-after", "fuse", "--json"),
    ("check", MLP, "--json"),
    ("layouts", "bf16[10,300]", "--json"),
    ("layout", "bf16[10,300]{1,0:T(8,128)(2,1)}", "--at", "3,129", "--json"),
    ("chips", "--json"),
    ("chips", "v5e", "--json"),
    ("ops", "--json"),
    ("memory", MLP, "--json"),
    ("diff", MLP, "--chip", "v5e", "--chip", "v6e", "--json"),
    ("lower", MLP),
    ("path", MLP, "--json"),
    ("advise", MLP, "--json"),
    ("scale", MLP, "--json"),
    ("explain", MLP, "--json"),
    ("explain", MLP, "--op", "fusion.7", "--json"),
    ("explain", POD, "--op", "all-reduce.14", "--json"),
    ("validate", COLLECTIVES, "--collectives", "--json"),
    ("validate", MLP, "--compiler", "--json"),
    ("validate", UNSCHEDULED, "--compiled", "--chip", "v7x", "--json"),
    ("validate", STEPS, "--steps", "--chip", "v2", "--json"),
    ("sweep", MLP, "-o", "mxu.count=1,2", "--jobs", "1", "--json"),
    ("systolic", *"--m 10 --n 20 --k 30 --json".split()),
]

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def keys_of(schema: Any) -> Iterator[str]:
    """Yield the keys of all objects that a schema describes."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    yield from schema.get("properties", {}) if isinstance(schema, dict) else ()
    for one in inner:
        yield from keys_of(one)


def slips(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "$") -> list[str]:
    """Return where a value is not what a schema says; the keywords are those that msgspec writes."""
    if "$ref" in schema:
        return slips(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, path)
    if "anyOf" in schema:
        found = [slips(value, one, root, path) for one in schema["anyOf"]]
        return min(found, key=len)
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [f"{path}: {value!r} is no {kinds}"]
    if isinstance(value, dict):
        return slips_of_object(value, schema, root, path)
    items = schema.get("items")
    return [slip for one in value for slip in slips(one, items, root, f"{path}[]")] if items and value else []


def slips_of_object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str) -> list[str]:
    """Return the slips of an object: keys that are missing or unknown, and what is wrong with their values."""
    known, others = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
    found = [f"{path}: {key} is missing" for key in schema.get("required", ()) if key not in value]
    for key, one in value.items():
        kind = known.get(key, others)
        if kind is False:
            found.append(f"{path}: {key} is unknown")
        found += slips(one, kind, root, f"{path}.{key}") if isinstance(kind, dict) else []
    return found


def strict(schema: Any) -> Any:
    """Return a schema whose objects have no keys but those that are named."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return closed | {key: strict(value) for key, value in schema.items()}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[::2])[:30])
def test_a_command_prints_what_its_schema_says(capsys, arguments):
    """Every key, its type, and no key more."""
    schema = strict(json.loads(output_of(capsys, "schema", arguments[0])))
    assert slips(json.loads(output_of(capsys, *arguments)), schema, schema) == []


def test_an_explanation_is_what_its_schema_says(capsys):
    """Of the kernel that takes longest."""
    ops = json.loads(output_of(capsys, "run", MLP, "--json"))["ops"]
    name = next(op["name"] for op in ops if op["opcode"] == "fusion")
    schema = strict(json.loads(output_of(capsys, "schema", "explain")))
    assert slips(json.loads(output_of(capsys, "explain", MLP, "--op", name, "--json")), schema, schema) == []


@pytest.mark.parametrize("arguments", [one for one in COMMANDS if one[0] != "lower"], ids=lambda one: one[0])
def test_every_object_says_its_version(capsys, arguments):
    """Scripts can tell when a key goes; lists are of rows and have none."""
    found = json.loads(output_of(capsys, *arguments))
    assert isinstance(found, list) or found["schema_version"] == 2


def test_times_are_microseconds_everywhere():
    """One unit, which keys say: what is counted in picoseconds inside is not written so."""
    keys = [key for command in COMMANDS if command[0] != "lower" for key in keys_of(schemas(command[0]))]
    assert "alone_us" in keys
    assert [key for key in keys if key.endswith("_ps")] == []


def test_every_command_with_json_has_a_schema(capsys):
    """All schemas at once, by command."""
    found = json.loads(output_of(capsys, "schema"))
    assert {arguments[0] for arguments in COMMANDS} | {"explain"} == found.keys()


def test_a_command_without_json_has_no_schema(capsys):
    """The message names the nearest command."""
    assert "did you mean 'run'" in refusal_of(capsys, "schema", "runs")


def test_shares_of_hbm_are_told_apart():
    """Two keys have one, of two rates; and one energy is of a device, the other of all."""
    keys = schemas("run")["$defs"]["Run"]["properties"]
    assert "advertised" in keys["hbm_utilization"]["description"]
    assert "reaches" in keys["unit_utilization"]["description"]
    assert "one device" in keys["energy_j"]["description"]
    assert "all devices" in keys["all_devices_energy_j"]["description"]
