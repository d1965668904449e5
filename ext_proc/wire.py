"""Protobuf to events, commands to protobuf: the only reader of Envoy's messages."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, assert_never

from envoy_data_plane.envoy.service.ext_proc.v3 import ProcessingRequest, ProcessingResponse

from ext_proc import errors, names, schema, subset
from ext_proc.protocol import (
    Body,
    Chunk,
    Decide,
    Event,
    Headers,
    Mode,
    Pass,
    Phase,
    Refuse,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    Trailers,
    Undecided,
)

_messages = schema.messages(ProcessingRequest, ProcessingResponse)
_Request = _messages["ProcessingRequest"]
_Response = _messages["ProcessingResponse"]
_Mutation = _messages["HeaderMutation"]
_MODES = {mode.value: mode for mode in Mode}
_OVERWRITE = 2  # HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD: Envoy's own default would append
_SEND, _SKIP = 1, 2  # ProcessingMode.HeaderSendMode
_FIELDS = {phase: phase.name.lower() for phase in Phase}
_PASSED: dict[Phase, bytes] = {}


def event(message: bytes) -> Event | None:
    """What *message* says happened; None when it says nothing we know.

    Raises google.protobuf.message.DecodeError when it is not a ProcessingRequest.
    """
    request = _Request.FromString(message)
    match request.WhichOneof("request"):
        case "request_headers":
            pairs = request.request_headers.headers.headers
            headers, size = _headers(pairs)
            return Headers(
                headers=headers,
                ends=request.request_headers.end_of_stream,
                modes=_modes(request),
                attributes=_attributes(request.attributes),
                subset=_subset(request),
                lines=len(pairs),
                size=size,
                observing=request.observability_mode,
            )
        case "request_body":
            return Body(request.request_body.body, request.request_body.end_of_stream, _subset(request))
        case "request_trailers":
            return Trailers()
        case "response_headers":
            return ResponseHeaders(_modes(request), _headers(request.response_headers.headers.headers)[0])
        case "response_body":
            return ResponseBody(request.response_body.body, request.response_body.end_of_stream)
        case "response_trailers":
            return ResponseTrailers()
        case _:
            return None


def response(command: Pass | Route | Chunk | Refuse | Undecided | Decide) -> bytes:
    """The ProcessingResponse that carries *command* out."""
    if isinstance(command, Pass):
        return _passed(command.phase)
    out = _Response()
    match command:
        case Route():
            _route(out, command)
        case Undecided():
            _undecided(out, command)
        case Chunk():
            _chunk(out, command)
        case Refuse():
            _refuse(out, command)
        case Decide():
            raise TypeError("Decide is a question to the router, not an answer to Envoy")
        case _:
            assert_never(command)
    return bytes(out.SerializeToString())


def _headers(pairs: Any) -> tuple[Mapping[str, str], int]:
    """One value a name, and what all weigh; lines of one name are joined as HTTP allows (cookies by '; ')."""
    out: dict[str, str] = {}
    size = 0
    for pair in pairs:
        name = pair.key.lower()
        value = pair.raw_value.decode("latin-1") or pair.value
        size += len(name) + len(value)
        if name in out:
            value = out[name] + ("; " if name == "cookie" else ", ") + value
        out[name] = value
    return out, size


def _modes(request: Any) -> tuple[Mode, Mode] | None:
    """HasField: with mode NONE the message is there and empty. Unknown numbers are a newer Envoy's: NONE."""
    if not request.HasField("protocol_config"):
        return None
    config = request.protocol_config
    return (
        _MODES.get(config.request_body_mode, Mode.NONE),
        _MODES.get(config.response_body_mode, Mode.NONE),
    )


def _attributes(by_filter: Any) -> Mapping[str, str]:
    return {
        name: value.string_value
        for struct in by_filter.values()
        for name, value in struct.fields.items()
        if value.string_value
    }


def _subset(request: Any) -> tuple[str, ...] | None:
    """The addresses a gateway allows: a list of strings, or one string with commas; of anything else, none.

    Metadata is Envoy's own: no client can write it.
    """
    if not request.HasField("metadata_context"):
        return None
    spaces = request.metadata_context.filter_metadata
    if names.SUBSET_METADATA not in spaces:
        return None
    fields = spaces[names.SUBSET_METADATA].fields
    if names.SUBSET not in fields:
        return None
    value = fields[names.SUBSET]
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "list_value":
            return subset.listed(each.string_value for each in value.list_value.values)
        case _:
            return subset.listed((value.string_value,))


def _passed(phase: Phase) -> bytes:
    """The empty answer of a phase; there are six, made once."""
    made = _PASSED.get(phase)
    if made is None:
        out = _Response()
        getattr(out, _FIELDS[phase]).SetInParent()
        made = _PASSED[phase] = out.SerializeToString()
    return made


def _common(out: Any, phase: Phase) -> Any:
    return getattr(out, _FIELDS[phase]).response


def _route(out: Any, route: Route) -> None:
    common = _common(out, route.phase)
    common.clear_route_cache = True
    mutation = common.header_mutation
    mutation.MergeFromString(b"".join([_line(name, value) for name, value in route.headers.items()]))
    if route.remove:
        mutation.remove_headers.extend(route.remove)
    if route.body is not None and route.phase is Phase.REQUEST_BODY:
        common.body_mutation.body = route.body
        _set(mutation, "content-length", str(len(route.body)))  # another length than Envoy's is a 500
    if route.unread:
        _keep_the_body(out.mode_override)
    lb = out.dynamic_metadata.fields[names.LB_METADATA].struct_value
    lb.fields[names.ENDPOINT].string_value = route.node


def _keep_the_body(mode: Any) -> None:
    """From here on send us nothing more. Every field is said: one that is not would be Envoy's own default, and its
    default for response headers is to send them. A gateway that allows no override takes no notice."""
    mode.request_header_mode, mode.response_header_mode = _SEND, _SKIP
    mode.request_trailer_mode = mode.response_trailer_mode = _SKIP
    mode.request_body_mode = mode.response_body_mode = Mode.NONE.value


def _undecided(out: Any, undecided: Undecided) -> None:
    common = _common(out, undecided.phase)
    common.SetInParent()
    common.header_mutation.remove_headers.extend(undecided.remove)


@lru_cache(maxsize=1024)
def _line(name: str, value: str) -> bytes:
    """A mutation that sets one header; joined they are the mutation that sets all. Most values come again."""
    mutation = _Mutation()
    _set(mutation, name, value)
    return bytes(mutation.SerializeToString())


def _set(mutation: Any, name: str, value: str) -> None:
    option = mutation.set_headers.add(append_action=_OVERWRITE)
    option.header.key = name
    option.header.raw_value = value.encode("latin-1", "replace")


def _chunk(out: Any, chunk: Chunk) -> None:
    piece = _common(out, chunk.phase).body_mutation.streamed_response
    piece.body = chunk.data
    piece.end_of_stream = chunk.ends
    piece.SetInParent()


def _refuse(out: Any, refuse: Refuse) -> None:
    reply = out.immediate_response
    reply.status.code = refuse.status
    reply.body = errors.openai(refuse.status, refuse.message, refuse.param)
    reply.details = f"isogloss_{refuse.reason}"
    _set(reply.headers, "content-type", "application/json")  # else Envoy says text/plain
    for name, value in refuse.headers.items():
        _set(reply.headers, name, value)
