"""An API of the operator's own: any JSON, read by two pointers into it."""

from collections.abc import Mapping

from ext_proc import jsonbody
from ext_proc.parse.said import Said
from ext_proc.parse.words import said
from ext_proc.pointer import Pointer


class Own:
    """One such API."""

    name = "own"

    def __init__(self, text: str, model: str | None) -> None:
        """JSON pointers to the user's words and to the model's name. Raises ValueError as `Pointer` does."""
        self._text = Pointer(text)
        self._model = None if model is None else Pointer(model)

    def read(self, headers: Mapping[str, str], body: bytes, window: int, auto: str | None) -> Said:
        """As in `apis.Api`."""
        found = jsonbody.scan(body)
        whole = memoryview(found.raw)
        out = Said()
        if self._model is not None:
            model = self._model.of(whole)
            out.model = jsonbody.text(model, 256)
            if auto is not None and out.model == auto:
                out.span = found.span(model, self._model.keys)
        raw = self._text.of(whole)
        out.hear(said(raw, window), window)
        out.weigh(raw)
        return out
