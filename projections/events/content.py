"""What a message is made of: parts of its content, tool calls, and the usage that its model
reported.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
"""A whole number that a window may keep: JSON's go on for ever, and storage does not hold them."""


class TextPart(Struct, tag_field="type", tag="text", omit_defaults=True):
    text: str


class ImageUrl(Struct, omit_defaults=True):
    url: str
    detail: str | None = None


class ImagePart(Struct, tag_field="type", tag="image_url", omit_defaults=True):
    image_url: ImageUrl


class FilePart(Struct, tag_field="type", tag="file", omit_defaults=True):
    file: dict[str, Any]


class ReasoningPart(Struct, tag_field="type", tag="reasoning", omit_defaults=True):
    """A model's reasoning; ``signature`` is opaque and only ever goes back to the provider that
    made it.
    """

    text: str | None = None
    signature: str | None = None
    provider: str | None = None


Part = TextPart | ImagePart | FilePart | ReasoningPart
Content = str | list[Part] | None


def text_of(content: Content) -> str:
    """The text of a content, without its other parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


class ToolCall(Struct, omit_defaults=True):
    id: str
    name: str
    arguments: str


class Usage(Struct, omit_defaults=True):
    """Tokens that a model reported of one call: ``prompt_tokens`` and ``completion_tokens``, or
    ``input_tokens`` and ``output_tokens``.
    """

    prompt_tokens: Number | None = None
    completion_tokens: Number | None = None
    input_tokens: Number | None = None
    output_tokens: Number | None = None
    total_tokens: Number | None = None

    @property
    def sent(self) -> int:
        """Tokens of what the model was sent, 0 where it does not say."""
        return max(0, self.prompt_tokens or self.input_tokens or 0)
