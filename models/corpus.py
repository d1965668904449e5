"""Texts for fitting and measuring: JSONL, a line `{"text": …, "intent": …}`; traffic needs no intent."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from models.bundle import NAME
from models.errors import BadLine


class Line(Struct, frozen=True):
    """One text; other keys of the line are ignored."""

    text: str
    intent: str = ""
    """Empty for traffic."""
    language: str = "en"


def read(path: Path, *, labelled: bool) -> list[Line]:
    """Every line of *path*; blank lines are skipped. Raises BadLine naming file, line number and fix."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise BadLine(f"{path}: {exc.strerror}") from exc
    lines = [_line(raw, f"{path}:{n}", labelled) for n, raw in enumerate(data.split(b"\n"), 1) if raw.strip()]
    if not lines:
        raise BadLine(f'{path}: no lines. Each line is a JSON object such as {{"text": "hello"}}')
    return lines


def _line(raw: bytes, where: str, labelled: bool) -> Line:
    try:
        line = msgspec.json.decode(raw, type=Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        fix = '{"text": "…", "intent": "…"}' if labelled else '{"text": "…"}'
        raise BadLine(f"{where}: {exc}. Write one JSON object on the line: {fix}") from exc
    if not line.text.strip():
        raise BadLine(f"{where}: the text is blank. Give it a text, or delete the line")
    if labelled and not line.intent:
        raise BadLine(f'{where}: no intent. Add "intent": "name", or move the line to the traffic file')
    if labelled and not NAME.fullmatch(line.intent):
        raise BadLine(f"{where}: intent {line.intent!r}. Use 1 to 64 of a-z, 0-9, - and _, and not 'unsure'")
    return line


def clinc150(directory: Path) -> dict[str, list[Line]]:
    """CLINC150 (Larson et al. 2019, CC BY 3.0) with its ten domains as intents: train, val, test."""
    domains: dict[str, list[str]] = msgspec.json.decode((directory / "clinc150_domains.json").read_bytes())
    domain_of = {intent: domain for domain, intents in domains.items() for intent in intents}
    splits: dict[str, Any] = msgspec.json.decode((directory / "clinc150_small.json").read_bytes())
    return {s: [Line(text, domain_of[intent]) for text, intent in splits[s]] for s in ("train", "val", "test")}


def banking77(directory: Path) -> list[Line]:
    """The test half of BANKING77 (Casanueva et al. 2020, CC BY 4.0), 77 intents of 40 texts."""

    with (directory / "banking77_test.csv").open(encoding="utf-8", newline="") as file:
        return [Line(row["text"], row["category"].lower().rstrip("?")) for row in csv.DictReader(file)]
