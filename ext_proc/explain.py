"""`isogloss explain`: one decision, line by line."""

from collections.abc import Mapping

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ext_proc import names
from ext_proc.app import Parts
from ext_proc.config import Config
from ext_proc.protocol import Decide, Refuse
from ext_proc.router import Explained
from policy.types import Shed


async def ask(config: Config, *, path: str, headers: Mapping[str, str], body: bytes, address: str | None) -> Explained:
    """Build what the service is made of, read every pod's load once, and take the decision."""
    parts = Parts(config)
    try:
        await parts.scraper.once()
        attributes = {} if address is None else {names.SOURCE_ADDRESS: address}
        asked = Decide({":path": path, ":method": "POST", **headers}, attributes, None, body, rewritable=True)
        return await parts.router.explain(asked)
    finally:
        await parts.close()


def as_json(told: Explained) -> bytes:
    """Everything but the prompt's text."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "request": told.parsed.request,
                "session": {"id": told.session.id, "found_by": told.session.found_by},
                "features": told.features,
                "explanation": told.explanation,
                "answer": {"status": told.answer.status, "message": told.answer.message}
                if isinstance(told.answer, Refuse)
                else {"headers": getattr(told.answer, "headers", {})},
            }
        )
    )


def show(told: Explained, console: Console | None = None) -> None:
    """For people. Nothing printed is markup: an IPv6 address and a client's own words may hold brackets."""
    out = console or Console()
    _facts(told, out)
    _candidates(told, out)
    _outcome(told, out)


def _facts(told: Explained, out: Console) -> None:
    request, features, session = told.parsed.request, told.features, told.session
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "request",
        f"{request.method} {request.path}: {request.api or 'no model API'}, "
        f"model {request.model or '–'}, {request.modality}, about {request.prompt_tokens} tokens",
    )
    if told.parsed.malformed:
        table.add_row("", "the body is not what its path asks for: it goes to a pod untouched")
    intent = features.intent
    if intent is not None:
        named = intent.name or f"unsure, nearest {intent.nearest}"
        table.add_row("intent", f"{named} (confidence {intent.confidence:.2f}, similarity {intent.similarity:.2f})")
    else:
        table.add_row("intent", "unknown")
    place = features.place
    if place is None:
        table.add_row("place", "unknown")
    else:
        where = [place.zone, place.region, place.country, place.continent]
        if place.latitude is not None and place.longitude is not None:
            where.append(f"{place.latitude:.2f}, {place.longitude:.2f}")
        if place.asn is not None:
            where.append(f"AS{place.asn} {place.organisation or ''}".strip())
        table.add_row("place", f"{', '.join(filter(None, where))} (by {place.source})")
    bound = f"bound to {features.binding.node}" if features.binding is not None else "not bound yet"
    table.add_row("session", f"by {session.found_by}, {bound}")
    if request.hints:
        wishes = (f"{h.key}={h.value}" + (" (required)" if h.required else "") for h in request.hints)
        table.add_row("hints", ", ".join(wishes))
    if features.missing:
        table.add_row("missing", ", ".join(features.missing))
    out.print(table, markup=False)


def _candidates(told: Explained, out: Console) -> None:
    explanation = told.explanation
    for why, nodes in explanation.dropped.items():
        shown = ", ".join(nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
        out.print(f"dropped by {why}: {shown}", markup=False)
    if not explanation.candidates:
        return
    table = Table("node", *explanation.candidates[0].criteria, "points", box=None)
    for candidate in explanation.candidates[:12]:
        table.add_row(
            candidate.address,
            *(f"{points:.3f}" for points in candidate.criteria.values()),
            f"{candidate.points:.3f}",
        )
    out.print(table, markup=False)
    if len(explanation.candidates) > 12:
        out.print(f"… and {len(explanation.candidates) - 12} more")


def _outcome(told: Explained, out: Console) -> None:
    outcome = told.explanation.outcome
    if isinstance(outcome, Shed):
        status = told.answer.status if isinstance(told.answer, Refuse) else 503
        out.print(Text(f"→ answered by us: {status} {outcome.reason}", "bold"), outcome.detail, sep=": ", markup=False)
        return
    node = outcome.node
    out.print(
        Text(f"→ {node.address}", "bold"),
        f"(pool {node.pool}, region {node.region or '–'}), "
        f"tier {outcome.tier}, confidence {outcome.confidence:.2f}"
        + (f", model {outcome.model}" if outcome.model else ""),
        markup=False,
        soft_wrap=True,
    )
    for reason in told.explanation.because:
        out.print(f"  because {reason}", markup=False, soft_wrap=True)
    if outcome.fallbacks:
        out.print(f"  then {', '.join(fallback.address for fallback in outcome.fallbacks)}", markup=False)
