"""What a body says, whichever API it is of."""

import re

import msgspec

from ext_proc.parse.words import Words
from policy.types import Modality

TELLING = 40
"""A turn of so many characters stands for itself; under it the turn before it is read too ("and in Rust?")."""
_MODALITIES = re.compile(
    rb'"type"\s*:\s*"(?:(image|image_url|input_image|image_pil|image_embeds|video_url|input_video)'
    rb'|(input_audio|audio_url|audio)|(file|input_file|document))"'
)


class Said(msgspec.Struct):
    """Everything a decision wants of a body."""

    model: str | None = None
    span: tuple[int, int] | None = None
    """Where the model stands; only looked for when it is to be changed."""
    quoted: bool = True
    """It stands there as a JSON string; a form has it as it is."""
    stream: bool = False
    user: str | None = None
    max_tokens: int | None = None
    modality: Modality = "text"
    tokens: int = 0
    text: str = ""
    asked: int = 0
    turns: int = 0
    cut: bool = False
    prompt: tuple[memoryview, ...] = ()
    """What the model reads, in order, as it came; empty where no two prompts share a beginning worth knowing."""

    def hear(self, words: Words, window: int) -> None:
        """Take the text to embed from a user's turns."""
        for text, cut in words:
            self.turns += 1
            if self.turns == 1:
                self.asked = len(text)
            if len(self.text) < TELLING:  # newest first: an older turn only helps one that says little by itself
                self.text = f"{self.text}\n{text}"[: 2 * window] if self.text else text
                self.cut |= cut
            elif self.turns > 1:
                break

    def weigh(self, *raws: memoryview) -> None:
        """Modality and size of what the model reads."""
        found = {match.lastindex for raw in raws for match in _MODALITIES.finditer(raw)}
        if 1 in found:
            self.modality = "image+text"
        elif 2 in found:
            self.modality = "audio+text"
        # Pictures and files are not prompt text.
        self.tokens = (len(self.text) if found else sum(map(len, raws))) // 4


def whole(text: str) -> int | None:
    """A number of at most 18 digits, else None."""
    return int(text) if 0 < len(text) <= 18 and text.isascii() and text.isdigit() else None
