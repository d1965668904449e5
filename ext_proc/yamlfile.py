"""YAML into types, and a mistake in it into words: where, what, and what was probably meant."""

import difflib
import re
from pathlib import Path
from typing import Any

import msgspec

from ext_proc.errors import ConfigError


def decode(text: bytes, kind: Any) -> Any:
    """YAML bytes into *kind*; ConfigError says where, what and what was probably meant."""
    try:
        raw = msgspec.yaml.decode(text) if text.strip() else {}
        return msgspec.convert(raw, kind, strict=True, str_keys=True, dec_hook=_path)
    except msgspec.ValidationError as exc:
        raise ConfigError(_explained(str(exc), raw, kind)) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as exc:
        raise ConfigError(f"not valid YAML: {' '.join(str(exc).split())}") from exc


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError(f"Expected a path, got {value!r}")


def _explained(message: str, raw: Any, kind: Any) -> str:
    """msgspec's words, with the value that stands there and, for an unknown key, the nearest right one."""
    said, _, path = message.partition(" - at `$")
    unknown = re.search(r"unknown field `(.*?)`", said)
    key = unknown.group(1) if unknown else None
    steps = _found(raw, _steps(path.rstrip("`")), key)
    where = "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps).lstrip(".")
    if key is not None:
        known = _fields_at(kind, steps)
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
        return f"{'.'.join(filter(None, (where, key)))}: unknown key; {hint}"
    value = _value_at(raw, steps)
    shown = "" if value is _NOTHING else f" (found {value!r:.120})"
    return f"{where or 'configuration'}: {said}{shown}"


_NOTHING = object()
_ANY = "..."  # msgspec does not say under which key of a mapping


def _steps(where: str) -> list[str]:
    return re.findall(r"\.\.\.|[^.\[\]]+", where)


def _found(raw: Any, steps: list[str], key: str | None) -> list[str]:
    """The same steps with the mapping's key in the place of `...`: the first under which they lead somewhere."""
    if _ANY not in steps:
        return steps
    at = steps.index(_ANY)
    mapping = _value_at(raw, steps[:at])
    for name in mapping if isinstance(mapping, dict) else ():
        tried = _found(raw, [*steps[:at], str(name), *steps[at + 1 :]], key)
        value = _value_at(raw, tried)
        if value is not _NOTHING and (key is None or (isinstance(value, dict) and key in value)):
            return tried
    return steps


def _value_at(raw: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(raw, dict) and step in raw:
            raw = raw[step]
        elif isinstance(raw, list) and step.isdigit() and int(step) < len(raw):
            raw = raw[int(step)]
        else:
            return _NOTHING
    return raw


def _fields_at(kind: Any, steps: list[str]) -> list[str]:
    """Field names of the struct that *steps* lead to, through containers and optional types."""
    info = msgspec.inspect.type_info(kind)
    for step in steps:
        info = _struct(info)
        if isinstance(info, msgspec.inspect.StructType):
            info = next((f.type for f in info.fields if f.encode_name == step), info)
        elif isinstance(info, msgspec.inspect.DictType):
            info = info.value_type
    info = _struct(info)
    return [f.encode_name for f in info.fields] if isinstance(info, msgspec.inspect.StructType) else []


def _struct(info: Any) -> Any:
    while True:
        if isinstance(info, msgspec.inspect.UnionType):
            info = next((t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)), None)
        elif isinstance(info, msgspec.inspect.Metadata):
            info = info.type
        elif isinstance(info, (msgspec.inspect.VarTupleType, msgspec.inspect.ListType)):
            info = info.item_type
        else:
            return info
