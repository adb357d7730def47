"""Chip files: TOML in, a checked ``Chip`` out, and every number with its source on request.

A shipped file gives each quantity as ``key = { value = ..., confidence = "...", source = "...", note = "..." }``, or as
``key = { same_as = "v4", note = "..." }`` if it is that of another chip for want of a better one: a fit that changes
there changes here. A user's own file may also give bare numbers, and may name another chip as ``base`` and say only
what differs from it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from tpusim.errors import ConfigError, did_you_mean
from tpusim.files import is_file, parse_toml, read_text, read_toml, utf8_text
from tpusim.hardware.chip import Chip, Setting, VectorOps
from tpusim.hardware.fields import (
    CONFIDENCE,
    FIELDS,
    OPERATIONS,
    TEXT_KEYS,
    Fact,
    Field,
    check_key,
    check_value,
    field_of,
    parse_value,
    read_value,
)
from tpusim.hardware.units import stated_value
from tpusim.shapes.dtype import DTYPES

_PACKAGE = Path(__file__).parents[1]
# A wheel carries the files inside the package; a checkout has them beside it.
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
# Other tables lie in the same folder; a chip's file is named after its generation.
_CHIP_FILES = "v[0-9]*.toml"
# What an override may give without quotes: words, the name of a class, names of links, sizes of a host.
_WORDS = r"[A-Za-z][\w .:-]*|[0-9]+:[+>-][0-9]+(,[0-9]+:[+>-][0-9]+)*|[0-9]+(x[0-9]+)+"
# Of a table: in the files that tpusim ships no other line begins with a bracket.
_HEADER = re.compile(r"^\[([\w.]+)\]$", re.MULTILINE)
_MOST_BASES = 32
_QUANTITY_KEYS = ("value", "confidence", "source", "note")
_REFERENCE_KEYS = ("same_as", "note")
_OWES_NOTE = ("estimated", "fitted")
_CMEM_KEYS = ("cmem.capacity_bytes", "cmem.read_bytes_per_second", "cmem.write_bytes_per_second")
# A chip built on v5e is not v5e: it must not answer to its names.
_NOT_INHERITED = frozenset({"name", "aliases"})


def load_chip(name_or_path: str | Path, overrides: Mapping[str, Any] | None = None) -> Chip:
    """Return the chip of a name, an alias or a TOML file, with single values replaced.

    ``overrides`` maps dotted keys to values in the unit of the key: ``{"hbm.bandwidth_bytes_per_second": 1.2e12}``.
    Raises ConfigError for an unknown chip or key and for a missing, mistyped or implausible value.
    """
    nested = _put({}, {key: fact.value for key, fact in _facts(name_or_path, overrides).items()})
    # The common table of operations, under what the chip's own file says of some of them.
    operations: Any = load_vector_ops()
    if OPERATIONS in nested:
        operations = _merged(msgspec.to_builtins(operations), nested[OPERATIONS])
    return msgspec.convert(nested | {OPERATIONS: operations}, Chip)


def _put(nested: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Put values by dotted key into nested tables, and return these."""
    for key, value in values.items():
        *sections, last = key.split(".")
        table = nested
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return nested


def _merged(table: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return nested tables with the entries of ``over`` put over those of ``table``."""
    both = {key: _merged(table[key], over[key]) for key in table.keys() & over.keys() if isinstance(table[key], dict)}
    return {**table, **over, **both}


@cache
def load_vector_ops() -> VectorOps:
    """Return what operations cost the vector unit: the file ``vector_ops.toml`` beside the chips."""
    path = _config_folder() / "vector_ops.toml"
    try:
        found = msgspec.convert(_read(path), VectorOps)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    for table in ("ops", "moves", "unpack", "pack"):
        for name, cost in getattr(found, table).items():
            for unit in cost:
                field_of(f"{OPERATIONS}.{table}.{name}.{unit}", str(path))
    return found


def known_field(key: str, where: str) -> Field:
    """Return ``field_of`` a key, and refuse a cost of an operation, or of a type, that nothing would ever ask for."""
    field = field_of(key, where)
    if key.startswith(f"{OPERATIONS}."):
        table, name = key.split(".")[1:3]
        is_of_types = table in ("pack", "unpack")
        known = DTYPES if is_of_types else getattr(load_vector_ops(), table)
        if name not in known:
            what = "an element type" if is_of_types else f"one of {OPERATIONS}.{table}"
            raise ConfigError(f"{where}: {key!r}: expected {what}, found {name!r}{did_you_mean(name, known)}")
    return field


@cache
def model_settings(section: str, model: str) -> Mapping[str, Setting]:
    """Return what a model that ships is made with where a chip says nothing: the file ``models.toml``."""
    table = read_config("models.toml").get(section, {}).get(model, {})
    return {key: fact["value"] for key, fact in table.items()}


def read_config(name: str) -> dict[str, Any]:
    """Return a file that lies beside those of the chips, as nested dictionaries."""
    return _read(_config_folder() / name)


def fits_path() -> Path:
    """Return the shipped file of parameters that are fitted."""
    return _config_folder() / "fits.toml"


def override_chip(chip: Chip, overrides: Mapping[str, Any]) -> Chip:
    """Return a chip with single values replaced; ``overrides`` as for ``load_chip``, with the same errors."""
    changed = changed_chip(chip, overrides)
    if changed is not chip:
        check_chip(changed)
    return changed


def changed_chip(chip: Chip, overrides: Mapping[str, Any]) -> Chip:
    """Return a chip with single values replaced, each checked by itself: more are to follow before ``check_chip``."""
    pairs = _pairs(overrides).items()
    checked = {key: read_value(key, value, stated_value(chip, key), "override") for key, value in pairs}
    if not checked:
        return chip
    # What stays is the same object: a sweep has thousands of chips that differ in a figure.
    sections = dict.fromkeys(key.partition(".")[0] for key in checked)
    changed = _put({name: msgspec.to_builtins(getattr(chip, name)) for name in sections}, checked)
    types = _section_types()
    found = {name: msgspec.convert(table, types[name]) for name, table in changed.items()}
    return msgspec.structs.replace(chip, **found)


def check_chip(chip: Chip) -> None:
    """Raise ConfigError for a chip whose figures contradict each other, whatever each of them may be by itself."""
    _check_together(partial(stated_value, chip), chip.name)


def _check_together(value: Callable[[str], Any], where: str) -> None:
    """Refuse figures that contradict each other; ``value`` gives that of a key, None for what is not stated."""
    capacity, *rates = (value(key) or 0 for key in _CMEM_KEYS)
    if capacity and not all(rates):
        raise ConfigError(f"{where}: cmem: expected bandwidths above 0 where cmem.capacity_bytes is, found {rates!r}")


@cache
def _section_types() -> dict[str, Any]:
    """Return the types of a chip's sections by name."""
    return {field.name: field.type for field in msgspec.structs.fields(Chip)}


def _pairs(overrides: Any) -> Mapping[str, Any]:
    if not isinstance(overrides, Mapping):
        raise ConfigError(f"overrides: expected keys with values, found {overrides!r:.80}")
    for key in overrides:
        check_key(key, "override")
        known_field(key, "override")
    return overrides


def is_as_shipped(chip: Chip) -> bool:
    """Return whether a chip is one of the shipped ones with no figure replaced that a time depends on."""
    if chip.name not in chip_names():
        return False
    shipped = _shipped_chip(chip.name)
    return shipped == msgspec.structs.replace(chip, power=shipped.power, energy=shipped.energy, area=shipped.area)


@cache
def _shipped_chip(name: str) -> Chip:
    """Return a chip as it is shipped, for questions of this file alone: who is handed one may write into it."""
    return load_chip(name)


def changed_figures(chip: Chip) -> dict[str, Any]:
    """Return by key the figures of a chip that are not as shipped; empty if it does not ship."""
    return changed_at(chip, _shipped_chip(chip.name), Chip.__struct_fields__) if chip.name in chip_names() else {}


def changed_at(chip: Chip, since: Chip, keys: Iterable[str]) -> dict[str, Any]:
    """Return by key the figures of a chip, under some keys and in tables that these name, that are not as ``since``.

    Of the chip nothing else is read: under watch that would be what the answer depends on.
    """
    pairs = ((key, stated_value(chip, key), stated_value(since, key)) for key in keys)
    return {key: value for pair in pairs for key, value in _changed(*pair)}


def _changed(key: str, own: Any, other: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is not as another value, with its key: of structs and tables what is in them."""
    if isinstance(own, dict):
        for name, value in own.items():
            yield from _changed(f"{key}.{name}", value, other.get(name) if isinstance(other, dict) else None)
    elif isinstance(other, msgspec.Struct):
        for name in other.__struct_fields__:
            yield from _changed(f"{key}.{name}", getattr(own, name), getattr(other, name))
    elif own != other:
        yield key, msgspec.to_builtins(own)


def chip_facts(name_or_path: str | Path, overrides: Mapping[str, Any] | None = None) -> list[Fact]:
    """Return every quantity of a chip as (key, value, unit, confidence, source, note), in the order of ``Chip``.

    Values that a user's file or an override gives without a source have the confidence ``user``.
    """
    facts = _facts(name_or_path, overrides)
    # A file may state its keys in any order, and an override may add one at the end.
    order = {key: index for index, key in enumerate(FIELDS)}
    # FIELDS has no place for the open table of rates: it goes behind the last key of the matrix units.
    rates_after = order["mxu.accumulates_in_array"] + 0.5
    shown = [
        msgspec.structs.replace(fact, is_report_only=key in FIELDS and FIELDS[key].is_report_only)
        for key, fact in facts.items()
        if key not in TEXT_KEYS
    ]
    return sorted(shown, key=lambda fact: order.get(fact.key, rates_after))


@cache
def chip_names() -> tuple[str, ...]:
    """Return the names of the shipped chips, in order."""
    return tuple(sorted(path.stem for path in _config_folder().glob(_CHIP_FILES)))


def resolve_chip_name(text: str) -> str:
    """Return the shipped chip that ``text`` names, by its name or an alias, whatever the case, spaces and dashes.

    Raises ConfigError with the nearest known name.
    """
    # The aliases stand in all the files; a name needs none of them read.
    if text in chip_names():
        return text
    known = _names_by_spelling()
    found = known.get(_spelling(text))
    if found is None:
        hint = did_you_mean(text.lower(), chip_names()) or did_you_mean(_spelling(text), known)
        raise ConfigError(
            f"unknown chip {text!r}{hint}: expected one of {', '.join(chip_names())}, an alias of one, or a .toml file"
        )
    return found


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``key=value``: a TOML scalar, a number with a prefix or a factor (``16Mi``, ``x2``), or a bare word."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise ConfigError(f"override: expected KEY=VALUE such as hbm.efficiency=0.9, found {text!r}")
    return key, _scalar(key, value)


def _scalar(key: str, text: str) -> Any:
    # TOML knows what a number looks like, and refuses what only Python would take.
    try:
        table = parse_toml(f"value = {text}")
    except (ValueError, RecursionError):
        table = {"value": text if re.fullmatch(_WORDS, text) or parse_value(text) != text else None}
    value = table["value"]
    # A second key means that the text had a line break in it.
    if len(table) != 1 or not isinstance(value, (str, int, float)):
        raise ConfigError(f"override: {key}: expected one number, true, false or a text, found {text!r}")
    return value


@cache
def _config_folder() -> Path:
    for folder in _FOLDERS:
        if any(folder.glob(_CHIP_FILES)):
            return folder
    places = " nor ".join(str(folder) for folder in _FOLDERS)
    raise ConfigError(f"no chip files: neither {places} has any; install tpusim again or run it from a checkout")


def _spelling(text: str) -> str:
    """Reduce a name to lower-case letters and digits without a leading ``tpu``: ``TPU v5 lite`` is ``v5lite``."""
    return re.sub(r"[^a-z0-9]", "", text.lower()).removeprefix("tpu")


@cache
def _names_by_spelling() -> dict[str, str]:
    """Map the spellings of all shipped names and aliases to the names."""
    words = {name: (name, *_shipped_facts(name)["aliases"].value) for name in chip_names()}
    return {_spelling(word): name for name in words for word in words[name]}


def _facts(name_or_path: str | Path, overrides: Mapping[str, Any] | None) -> dict[str, Fact]:
    """Return all quantities of a chip by key, complete, checked and with the overrides in place."""
    if not isinstance(name_or_path, str | PathLike):
        raise ConfigError(f"chip: expected the name of a chip or of a .toml file, found {name_or_path!r:.80}")
    facts = dict(_facts_of(str(name_or_path), ()))
    for key, value in _pairs({} if overrides is None else overrides).items():
        note, before = "", facts.get(key)
        checked = read_value(key, value, before.value if before else _unstated(key), "override")
        if before:
            shown = f"{before.value:g}" if isinstance(before.value, float) else before.value
            note = f"instead of {shown} ({before.confidence})"
        facts[key] = Fact(key, checked, field_of(key, "override").range.unit, "user", "override", note)
    _check_complete(facts, str(name_or_path))
    _check_together(lambda key: facts[key].value if key in facts else None, str(name_or_path))
    return facts


def _unstated(key: str) -> Any:
    """Return what a chip has for a key that its file leaves out: of the common table, or of a part that it lacks."""
    table, _, rest = key.partition(".")
    if table == OPERATIONS:
        return stated_value(load_vector_ops(), rest)
    return FIELDS[key].default if key in FIELDS else None


def is_chip_file(name_or_path: str) -> bool:
    """Return whether a chip is stated by its file."""
    # A shipped chip's name has neither ending nor slash, so no file on disk can stand in for it.
    return name_or_path.endswith(".toml") or "/" in name_or_path


def _facts_of(name_or_path: str, within: tuple[str, ...]) -> Mapping[str, Fact]:
    """Return the quantities of a chip; ``within`` are the files that have named it as their base."""
    if not is_chip_file(name_or_path):
        return _shipped_facts(resolve_chip_name(name_or_path))
    path = Path(name_or_path)
    if "\0" in name_or_path:
        raise ConfigError(f"expected the name of a file, found {name_or_path!r}")
    if len(within) >= _MOST_BASES:
        raise ConfigError(f"{path}: expected at most {_MOST_BASES} chips that each build on the next, found more")
    if str(path.resolve()) in within:
        raise ConfigError(f"{path}: expected a chip that does not build on this one, found a circle")
    return {key: _followed(fact, (path.stem,)) for key, fact in _file_statements(path, within).items()}


@cache
def _shipped_facts(name: str) -> Mapping[str, Fact]:
    """Return the quantities of a shipped chip; they are read once, since a sweep asks for them thousands of times."""
    return {key: _followed(fact, (name,)) for key, fact in _shipped_statements(name).items()}


@cache
def _shipped_statements(name: str) -> Mapping[str, Fact]:
    """Return the quantities of a shipped chip, references to other chips as such."""
    return _file_statements(_shipped_path(name), ())


def _shipped_path(name: str) -> Path:
    return _config_folder() / f"{name}.toml"


def shipped_value(name: str, key: str) -> Any:
    """Return one value of a shipped chip that states it, or its base or the chip that it refers to does."""
    fact = _shipped_statement(name, key)
    assert fact is not None, f"{name}: nothing states {key}"
    return _followed(fact, (name,)).value


def _shipped_statement(name: str, key: str) -> Fact | None:
    """Return one quantity of a shipped chip, None if neither its file nor that of its base states it."""
    table, _, last = key.rpartition(".")
    raw = _shipped_table(name, table).get(last)
    if raw is not None:
        return _fact(key, raw, _shipped_path(name), needs_source=True)
    base = _shipped_table(name, "").get("base")
    return _shipped_statement(resolve_chip_name(base), key) if base else None


@cache
def _shipped_table(name: str, table: str) -> dict[str, Any]:
    """Return what stands under one header of a shipped chip's file, and nothing of what stands under others.

    Every chip refers to nearly all others for a few quantities: to read these files whole takes as long as to simulate
    a program.
    """
    return tomllib.loads(_shipped_texts(name).get(table, ""))


@cache
def _shipped_texts(name: str) -> dict[str, str]:
    """Return the text below each header of a shipped chip's file; that before the first has none."""
    first, *rest = _HEADER.split(read_text(_shipped_path(name), "cannot read this chip file"))
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _followed(fact: Fact, chips: tuple[str, ...]) -> Fact:
    """Return a quantity, of another chip if it is a reference to one; ``chips`` led here."""
    if not isinstance(fact.value, _SameAs):
        return fact
    other = str(fact.value)
    where = f"{chips[0]}: {fact.key}: same_as"
    if other in chips:
        raise ConfigError(f"{where}: expected a chip that states it, found a circle: {' > '.join((*chips, other))}")
    stated = _shipped_statement(other, fact.key)
    if stated is None:
        raise ConfigError(f"{where}: expected a chip that states it, found {other}, which does not")
    found = _followed(stated, (*chips, other))
    note = f"That of {other} ({found.confidence}). {fact.note}".strip()
    return msgspec.structs.replace(found, confidence="estimated", note=note)


class _SameAs(str):
    """The value of a quantity that is that of another chip: the chip's name."""


def _file_statements(path: Path, within: tuple[str, ...]) -> dict[str, Fact]:
    """Return the quantities that a file states, over those of its base."""
    table = _read(path)
    base = _base(path, table.pop("base", None), (*within, str(path.resolve())))
    inherited = {key: fact for key, fact in base.items() if key not in _NOT_INHERITED}
    plain = {key: Fact(key, value, "", "", "", "") for key, value in (("name", utf8_text(path.stem)), ("aliases", ()))}
    # Users try things out; what tpusim ships is quoted, and so owes a source.
    needs_source = path.parent == _config_folder()
    stated = (_fact(key, raw, path, needs_source) for key, raw in _quantities(table))
    return plain | inherited | {fact.key: fact for fact in stated}


def _base(path: Path, base: Any, within: tuple[str, ...]) -> Mapping[str, Fact]:
    if base is None:
        return {}
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base: expected the name of a chip or of a .toml file, found {base!r}")
    try:
        return _facts_of(_base_place(path, base), within)
    except ConfigError as error:
        raise ConfigError(f"{path}: base: {error}") from error


def _base_place(path: Path, base: str) -> str:
    """Return the chip that a file names as its base; files count from that one's folder."""
    return str(path.parent / base) if base.endswith(".toml") else base


def chip_files(name_or_path: str) -> list[Path]:
    """Return the files that state a chip, its own and then those of its bases, as far as they are there.

    Pipes are left alone: what they have can be read once.
    """
    found = list[Path]()
    # What cannot be read, or is no chip, is for who loads it to say.
    with suppress(ConfigError):
        while True:
            path = Path(name_or_path) if is_chip_file(name_or_path) else _shipped_path(resolve_chip_name(name_or_path))
            if path in found or not is_file(path):
                break
            found.append(path)
            base = _read(path).get("base")
            if not isinstance(base, str):
                break
            name_or_path = _base_place(path, base)
    return found


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path, "cannot read this chip file")


def _quantities(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys with what stands there: a bare value, or a table with a ``value`` or ``same_as`` in it."""
    for key, raw in table.items():
        if isinstance(raw, dict) and not raw.keys() & {"value", "same_as"}:
            yield from _quantities(raw, f"{prefix}{key}.")
        else:
            yield prefix + key, raw


def _fact(key: str, raw: Any, path: Path, needs_source: bool) -> Fact:
    """Return one quantity of a file, its value checked and its source there if the file owes one."""
    field = known_field(key, str(path))
    if isinstance(raw, dict):
        return _sourced(field, raw, path, needs_source)
    if needs_source and key not in TEXT_KEYS:
        raise ConfigError(f"{path}: {key}: expected {{ value, confidence, source }}, found {raw!r} without a source")
    return Fact(key, check_value(field, raw, str(path)), field.range.unit, "user", str(path), "")


def _sourced(field: Field, raw: Mapping[str, Any], path: Path, needs_source: bool) -> Fact:
    """Return the quantity of a table ``{ value, confidence, source, note }`` or ``{ same_as, note }``."""
    where = f"{path}: {field.key}"
    known = _REFERENCE_KEYS if "same_as" in raw else _QUANTITY_KEYS
    for key, text in raw.items():
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(key, known)}")
        if key != "value" and not (isinstance(text, str) and text.strip()):
            raise ConfigError(f"{where}: {key}: expected a text, found {text!r}")
    note = " ".join(raw.get("note", "").split())
    if "same_as" in raw:
        return Fact(field.key, _SameAs(resolve_chip_name(raw["same_as"])), field.range.unit, "", "", note)
    confidence = raw.get("confidence", "" if needs_source else "user")
    source = raw.get("source", "" if needs_source else str(path))
    _check_source(where, confidence, source, note)
    return Fact(field.key, check_value(field, raw["value"], str(path)), field.range.unit, confidence, source, note)


def _check_source(where: str, confidence: str, source: str, note: str) -> None:
    """Refuse a quantity that says too little about where it is from."""
    words = (*CONFIDENCE, "user")
    if confidence not in words:
        hint = did_you_mean(confidence, words)
        raise ConfigError(f"{where}: confidence: expected one of {', '.join(CONFIDENCE)}, found {confidence!r}{hint}")
    if not source:
        raise ConfigError(f"{where}: expected a source, found none")
    if confidence in _OWES_NOTE and not note:
        raise ConfigError(f"{where}: expected a note that says how and on what it was {confidence}, found none")


def _check_complete(facts: Mapping[str, Fact], where: str) -> None:
    """Refuse a chip with quantities missing."""
    # No value is ever filled in by code: a default would be a number about a chip without a source. What has one in
    # Chip is a part that is not there.
    needed = [key for key, field in FIELDS.items() if field.is_required]
    missing = [key for key in (*needed, "mxu.rate_by_type.bf16") if key not in facts]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ConfigError(f"{where}: {len(missing)} missing: {shown}; give them or name another chip as base")
