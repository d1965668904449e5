"""Speech as a form: its fields are read around a file that is passed over."""

import os
import time
import tracemalloc

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import parse
from ext_proc.protocol import Decide

MIB = 1024 * 1024
BOUNDARY = "----WebKitFormBoundary7MA4YWxk"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
MARK = f"--{BOUNDARY}".encode()
PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


def part(name: str, value: bytes, more: str = "") -> bytes:
    """One part of a form."""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def sound(data: bytes) -> bytes:
    """The file's part."""
    return part("file", data, '; filename="a.wav"\r\nContent-Type: audio/wav')


def form(*parts: bytes) -> bytes:
    """A whole form."""
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def read(body: bytes, path: str = PATHS[0], content_type: str = TYPE) -> parse.Parsed:
    headers = {":method": "POST", ":path": path, "content-type": content_type}
    return parse.read(Decide(headers, {}, None, body, rewritable=True), turn=1, auto_model="auto", window=512)


MODEL, PROMPT = part("model", b"whisper"), part("prompt", "Ångström, Curie".encode())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("order", ["model first", "model last"])
def test_the_fields_of_a_twenty_megabyte_file_are_read_before_and_behind_it(path, order):
    file = sound(os.urandom(20 * MIB))
    body = form(MODEL, PROMPT, file) if order == "model first" else form(file, PROMPT, MODEL)
    tracemalloc.start()
    began = time.process_time()
    found = read(body, path)
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.request.model, found.text, found.request.modality) == ("whisper", "Ångström, Curie", "audio+text")
    assert found.request.api == path.rpartition("/")[2]
    assert took < 0.25
    assert peak < MIB  # the file is not copied


def test_without_a_prompt_there_is_nothing_to_embed():
    found = read(form(sound(b"RIFF"), MODEL))
    assert (found.text, found.request.prompt_tokens, found.malformed) == ("", 0, False)


def test_the_other_fields():
    fields = part("stream", b"true"), part("max_completion_tokens", b"7"), part("language", b"de")
    request = read(form(MODEL, *fields, sound(b"x"))).request
    assert (request.stream, request.max_tokens) == (True, 7)
    request = read(form(MODEL, part("stream", b"no"), part("max_completion_tokens", b"-7"))).request
    assert (request.stream, request.max_tokens) == (False, None)


def test_auto_is_spliced_and_not_a_byte_else():
    file = sound(os.urandom(1000))
    body = form(file, part("model", b"auto"), PROMPT)
    found = read(body)
    assert found.request.auto
    assert found.with_model(body, "whisper") == form(file, MODEL, PROMPT)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\r\n", b"\r", MARK, b"x\r\n" + MARK + b"x", b"\r\n" + MARK[:-1], b"\n" + MARK + b"\n",
        b"\r\n\r\n" * 100, (b"\r\n" + MARK + b"x") * 20,
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", ["model first", "model last"])
def test_a_boundary_is_one_only_on_a_line_of_its_own(data, order):
    body = form(MODEL, sound(data)) if order == "model first" else form(sound(data), MODEL)
    assert read(body).request.model == "whisper"


def test_a_file_by_the_name_of_a_field_is_no_field():
    assert read(form(part("model", b"nope", '; filename="model"'), MODEL)).request.model == "whisper"
    assert read(form(MODEL, part("model", b"nope", '; filename="model"'))).request.model == "whisper"


@pytest.mark.parametrize("name", ["é.wav", "🦊.wav", 'a\\"b.wav', "a;name=model.wav", "C:\\a.wav", ""])
def test_a_file_may_be_called_anything(name):
    file = part("file", b"RIFF", f'; filename="{name}"')
    assert read(form(file, MODEL)).request.model == "whisper"
    assert not read(form(file)).malformed


def test_of_two_models_the_last_counts():
    assert read(form(part("model", b"a"), part("model", b"b"))).request.model == "b"


def test_an_empty_or_endless_model_is_none():
    assert read(form(part("model", b""))).request.model is None
    assert read(form(part("model", b"x" * 2000))).request.model is None
    assert read(form(part("model", b"\xff\xfe"))).request.model == "\ufffd\ufffd"


@pytest.mark.parametrize(
    "content_type",
    [
        TYPE, f'multipart/form-data; boundary="{BOUNDARY}"',
        f"Multipart/Form-Data;charset=utf-8;Boundary={BOUNDARY}",
    ],
)  # fmt: skip
def test_the_boundary_is_read_however_it_is_written(content_type):
    assert read(form(MODEL), content_type=content_type).request.model == "whisper"


def test_a_preamble_an_epilogue_and_padding_are_allowed():
    assert read(b"hello\r\n" + form(MODEL) + b"bye").request.model == "whisper"
    line = f"--{BOUNDARY}".encode()
    assert read(form(MODEL).replace(line + b"\r\n", line + b" \t\r\n")).request.model == "whisper"


BAD = {
    "another boundary": (form(MODEL), "multipart/form-data; boundary=other"),
    "no boundary": (form(MODEL), "multipart/form-data"),
    "an endless boundary": (form(MODEL), "multipart/form-data; boundary=" + "x" * 300),
    "a boundary of no letters": (form(MODEL), 'multipart/form-data; boundary="é"'),
    "no form": (b'{"model": "whisper"}', "application/json"),
    "a form of another kind": (b"model=whisper", "application/x-www-form-urlencoded"),
    "no type": (form(MODEL), ""),
    "nothing": (b"", TYPE),
    "cut off": (form(MODEL)[:-10], TYPE),
    "cut off in the file": (form(sound(b"x" * 100))[:150], TYPE),
    "no end of headers": (f"--{BOUNDARY}\r\nx".encode(), TYPE),
    "endless headers": (form(part("x", b"", "; y=" + "z" * 9000)), TYPE),
    "an endless field": (form(part("prompt", b"x" * 100_000)), TYPE),
    "many parts": (form(*[MODEL] * 100), TYPE),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_form_is_malformed_and_raises_nothing(name):
    body, content_type = BAD[name]
    found = read(body, content_type=content_type)
    assert found.malformed
    assert (found.request.api, found.request.model, found.text) == ("transcriptions", None, "")


@pytest.mark.parametrize(
    "body",
    [
        form(sound((f"\r\n--{BOUNDARY}x").encode() * (8 * MIB // 40)), MODEL),
        form(*[part("x", b"")] * (8 * MIB // 80)),
        f"--{BOUNDARY}".encode() + b" " * 8 * MIB + b"\r\n" + form(MODEL),
        form(part("x", b"", "\r\na: b" * MIB)),
        form(sound(b"\r\n--" * (2 * MIB)), MODEL),
        b"-" * 16 * MIB,
    ],
    ids=["false boundaries", "parts", "padding", "headers", "almost", "dashes"],
)
def test_no_form_holds_up_the_others(body):
    began = time.process_time()
    read(body)
    assert time.process_time() - began < 0.3


def test_no_header_holds_up_the_others():
    began = time.process_time()
    for endless in ('; a="' + ";" * 60_000, '; a="' + ";" * 2_000, ";" * 60_000, '; a="' + '\\"' * 1_000):
        read(form(MODEL), content_type=TYPE + endless)
        read(form(*[part("x", b"", endless[:2_000])] * 63, MODEL))
    assert time.process_time() - began < 0.5


@given(
    data=st.binary(max_size=300),
    prompt=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    model_first=st.booleans(),
)
def test_what_a_common_client_writes_is_read(data, prompt, model_first):
    """httpx chooses its own boundary and order: fields first."""
    fields = {"model": "whisper", "prompt": prompt}
    request = httpx.Request("POST", "http://a/", data=fields, files={"file": ("a.wav", data)})
    found = read(request.read(), content_type=request.headers["content-type"])
    assert (found.request.model, found.text) == ("whisper", prompt.strip())


@given(st.binary(max_size=300), st.text(max_size=40))
def test_no_bytes_and_no_type_raise(body, content_type):
    read(body, content_type=content_type)
    read(f"--{BOUNDARY}\r\n".encode() + body + b"\r\n\r\nx" + form())
