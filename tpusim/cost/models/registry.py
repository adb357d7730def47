"""Which class stands for a unit of a chip: one that ships, entered by decorator, or a user's, ``package.module:Class``.

A chip's file only names it. Code of a package that does not ship runs where the caller has allowed that package:
``tpusim --plugin mypackage``, or ``tpusim.allow_plugin("mypackage")`` once in each process that simulates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tpusim.cost.models.checked import Check, checked
from tpusim.errors import ConfigError, TpusimError, did_you_mean
from tpusim.hardware.chip import Chip, Setting
from tpusim.hardware.load import model_settings

M = TypeVar("M")
C = TypeVar("C", bound=type)

_ALLOWED: dict[str, None] = {}


class Part(Protocol):
    """A section of a chip that names its model, and the figures that the model is made with."""

    @property
    def model(self) -> str:
        """The name of a class that ships, or ``package.module:Class``."""

    @property
    def settings(self) -> Mapping[str, Setting]:
        """What its constructor is given, by name."""


def allow_plugin(*packages: str) -> None:
    """Let chip files load classes from these packages and from the modules in them, in this process.

    Worker processes begin without: give them ``allow_plugin(*allowed_plugins())``. Raises ConfigError for what cannot
    be a package's name.
    """
    for package in packages:
        if not _is_package_name(package):
            raise ConfigError(f"plugin: expected the name of a package such as mypackage, found {package!r:.80}")
        _ALLOWED[package] = None


def _is_package_name(found: object) -> bool:
    return isinstance(found, str) and all(part.isidentifier() for part in found.split("."))


def allowed_plugins() -> tuple[str, ...]:
    """Return the packages that this process may load classes from, in the order in which they were allowed."""
    return tuple(_ALLOWED)


def plugin_places(package: str) -> list[Path]:
    """Return the folders, or the file, that hold the code of a plug-in; raise ConfigError if it is not there."""
    where = "is it installed or on PYTHONPATH?"
    try:
        found = find_spec(package)
    # Of a module in a package Python loads the package first.
    except (ImportError, ValueError) as error:
        raise ConfigError(f"plugin: {package!r}: {error}; {where}") from error
    if found is None:
        raise ConfigError(f"plugin: expected a package or a module, found {package!r}, which is not there; {where}")
    if found.submodule_search_locations is not None:
        return [Path(folder) for folder in found.submodule_search_locations]
    return [Path(found.origin)] if found.has_location and found.origin else []


class Registry(Generic[M]):
    """The models of one unit by name. ``key`` is the chip key that names one.

    ``checks`` are by the methods that every one has, and say what is wrong with the answers of a user's own.
    """

    def __init__(self, key: str, **checks: Check) -> None:
        self.key = key
        self.section = key.partition(".")[0]
        self._checks = checks
        self._shipped: dict[str, Callable[..., M]] = {}
        # Of those without settings, which nearly all are: products ask thousands of times in a lowering.
        self._plain: dict[str, M] = {}
        self._made: dict[tuple[object, ...], M] = {}

    def enter(self, name: str) -> Callable[[C], C]:
        """Return the decorator that enters a class under the name that a chip's file calls it."""

        def enter(kind: C) -> C:
            self._shipped[name] = kind
            return kind

        return enter

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that ship."""
        return tuple(self._shipped)

    def of(self, part: Part) -> M:
        """Return the model of a section of a chip, made once for the same settings.

        Raises ConfigError for a name that is not known or not allowed, and for settings that it does not take.
        """
        if not part.settings and part.model in self._plain:
            return self._plain[part.model]
        return self.named(part.model, part.settings)

    def chosen(self, chip: Chip) -> M:
        """Return the model that a chip names under this key; what is no section's ``model`` has no settings."""
        part, word = getattr(chip, self.section), self.key.partition(".")[2]
        return self.named(getattr(part, word), part.settings if word == "model" else {})

    def named(self, name: str, settings: Mapping[str, Setting]) -> M:
        """Return the model of a name with its settings."""
        # To Python true is 1, which a model may take where it refuses the other.
        key = (name, *sorted((one, type(value), value) for one, value in settings.items()))
        if key not in self._made:
            self._made[key] = self._make(name, settings)
            if not settings:
                self._plain[name] = self._made[key]
        return self._made[key]

    def _make(self, name: str, stated: Mapping[str, Setting]) -> M:
        kind = self._shipped.get(name) or self._load(name)
        # Most take nothing: their signature, for which Python loads its tokenizer, need not be asked for.
        if not stated and getattr(kind, "__init__", None) is object.__init__:
            return kind()
        import inspect

        # Nor the file of settings, of those that have no parameter.
        signature = inspect.signature(kind)
        takes = signature.parameters
        settings = {**(model_settings(self.section, name) if takes else {}), **stated}
        try:
            signature.bind(**settings)
        except TypeError as error:
            wanted, stray = ", ".join(takes) or "none", next((one for one in stated if one not in takes), "")
            found = f"{stray}{did_you_mean(stray, takes)}" if stray else f"only {', '.join(settings) or 'none'}"
            raise ConfigError(f"{self.section}.settings: {name!r} takes {wanted}; found {found}") from error
        try:
            return kind(**settings)
        except TpusimError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.section}.settings: {name!r}: {type(error).__name__}: {error}") from error

    def _load(self, name: str) -> Callable[..., M]:
        """Return the class that ``package.module:Class`` names."""
        module, colon, class_name = name.partition(":")
        if not colon:
            hint = did_you_mean(name, self.names)
            raise ConfigError(
                f"{self.key}: expected one of {', '.join(self.names)}, or package.module:Class, found {name!r}{hint}"
            )
        if not any(module == package or module.startswith(f"{package}.") for package in _ALLOWED):
            package = module.partition(".")[0]
            raise ConfigError(
                f"{self.key}: {name!r} is code of another package, and a chip file alone never runs code: allow it by "
                f"--plugin {package}, or in Python by tpusim.allow_plugin({package!r})"
            )
        try:
            kind: Any = getattr(import_module(module), class_name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.key}: {name!r}: {error}; is it installed or on PYTHONPATH?") from error
        except Exception as error:
            raise ConfigError(f"{self.key}: {name!r}: {type(error).__name__}: {error}") from error
        missing = [method for method in self._checks if not callable(getattr(kind, method, None))]
        if missing or not isinstance(kind, type):
            raise ConfigError(f"{self.key}: {name!r}: expected a class with {', '.join(self._checks)}, found none")
        found: Callable[..., M] = checked(kind, f"{self.key}: {name!r}", self._checks)
        return found
