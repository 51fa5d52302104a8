"""A store of one window, for tests of what is written and read back."""

from __future__ import annotations

from projections.storage.card import CARD
from projections.storage.layout import BASE, HEAD
from projections.storage.records import NOTHING, Stored, StoreMark, Write, write_of
from projections.window.window import Window


class Fields:
    """A store of one window, as simple as can be."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.id_blocks: dict[bytes, bytes] = {}
        self.mark: StoreMark = NOTHING
        self.written = 0

    def write(self, window: Window) -> Write:
        change = write_of(window, self.mark)
        if change.reset:
            self.fields.clear()
        for there, put, gone in (
            (self.fields, change.put, change.gone),
            (self.id_blocks, change.id_blocks_put, change.id_blocks_gone),
        ):
            there.update(put)
            for name in gone:
                del there[name]
            self.written += sum(len(value) for _, value in put)
        self.mark = change.after
        return change

    @property
    def stored(self) -> Stored:
        return Stored(self.fields, self.id_blocks)

    @property
    def chunks(self) -> list[bytes]:
        return [name for name in self.fields if name not in (HEAD, BASE, CARD)]
