"""Envoy's messages as upb classes, built from the field metadata that `envoy-data-plane` carries.

The schema comes from its dataclasses (number, type, oneof, map, wrapper of every field), the codec from
google.protobuf's upb: a request parses in microseconds, where the dataclasses themselves need hundreds.
Bytes are equal to the official code's; message names are our own, which the wire never shows.
"""

import dataclasses
import typing
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import betterproto2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "isogloss"


class _Field(NamedTuple):
    name: str
    meta: betterproto2.FieldMetadata
    kind: type | None
    """The dataclass or enum the field (or its map's value) holds; None for a scalar."""


def messages(*roots: type) -> dict[str, type[Any]]:
    """upb classes for *roots* and every message they contain, by the dataclass's name.

    Raises TypeError from protobuf when a dataclass carries no betterproto2 metadata.
    """
    file = descriptor_pb2.FileDescriptorProto(name="isogloss/wire.proto", package=_PACKAGE, syntax="proto3")
    kinds = _reachable(roots)
    for kind in kinds:
        if issubclass(kind, IntEnum):
            file.enum_type.append(_enum(kind))
        else:
            file.message_type.append(_message(kind))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        kind.__name__: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_name(kind)}"))
        for kind in kinds
        if not issubclass(kind, IntEnum)
    }


def _reachable(roots: tuple[type, ...]) -> list[type]:
    found: dict[type, None] = {}
    waiting = list(roots)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found[kind] = None
            if not issubclass(kind, IntEnum):
                waiting += [field.kind for field in _fields(kind) if field.kind is not None]
    return list(found)


def _message(kind: type) -> descriptor_pb2.DescriptorProto:
    out = descriptor_pb2.DescriptorProto(name=_name(kind))
    oneofs: list[str] = []
    for field in _fields(kind):
        name, meta = field.name, field.meta
        proto = out.field.add(name=name, number=meta.number, label=_label(meta))
        if meta.map_meta is not None:
            entry = out.nested_type.add(name=_entry(name))
            entry.options.map_entry = True
            for part_name, part in zip(("key", "value"), meta.map_meta, strict=True):
                side = entry.field.add(name=part_name, number=part.number, label=_FIELD.LABEL_OPTIONAL)
                _type(side, part.proto_type, field.kind)
            proto.type, proto.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{_name(kind)}.{entry.name}"
            continue
        _type(proto, meta.proto_type, field.kind)
        if meta.group is not None:
            if meta.group not in oneofs:
                oneofs.append(meta.group)
            proto.oneof_index = oneofs.index(meta.group)
    for oneof in oneofs:
        out.oneof_decl.add(name=oneof)
    return out


def _type(proto: Any, proto_type: str, kind: type | None) -> None:
    proto.type = getattr(_FIELD, f"TYPE_{proto_type.upper()}")
    if kind is not None and proto_type in ("message", "enum"):
        proto.type_name = f".{_PACKAGE}.{_name(kind)}"


def _enum(kind: type[IntEnum]) -> descriptor_pb2.EnumDescriptorProto:
    out = descriptor_pb2.EnumDescriptorProto(name=_name(kind))
    for value in kind:  # value names share the file's scope, hence the prefix
        out.value.add(name=f"{_name(kind)}_{value.name}", number=int(value))
    return out


def _label(meta: betterproto2.FieldMetadata) -> Any:
    return _FIELD.LABEL_REPEATED if meta.repeated or meta.map_meta is not None else _FIELD.LABEL_OPTIONAL


def _fields(kind: type) -> Iterator[_Field]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        meta = betterproto2.FieldMetadata.get(field)
        inner = meta.unwrap() if meta.unwrap is not None else _inner(hints[field.name])
        yield _Field(field.name, meta, inner)


def _inner(hint: Any) -> type | None:
    """`dict[str, Struct]`, `list[HeaderValue]`, `Metadata | None` → the class inside, if it is one of theirs."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, IntEnum)):
        return hint
    inner = [found for found in map(_inner, typing.get_args(hint)) if found is not None]
    return inner[-1] if inner else None


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix('envoy_data_plane.')}.{kind.__qualname__}".replace(".", "_")


def _entry(field: str) -> str:
    """protoc's name of a map's entry: CamelCase and Entry."""
    return "".join(part.capitalize() for part in field.split("_")) + "Entry"
