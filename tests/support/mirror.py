"""A store holds of one window what the writes gave it."""

from __future__ import annotations

from dataclasses import dataclass, field

from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.records import NOTHING, Stored, StoreMark, write_of
from projections.window.window import Window

KEY = Key("acme", "story")


@dataclass
class Mirror:
    """What a store holds of a window, by the writes it was given."""

    fields: dict[bytes, bytes] = field(default_factory=dict)
    id_blocks: dict[bytes, bytes] = field(default_factory=dict)
    mark: StoreMark = NOTHING

    def write(self, window: Window) -> None:
        """Bring the store to where the window is."""
        write = write_of(window, self.mark)
        if write.reset:
            self.fields.clear()
        self.fields.update(write.put)
        for name in write.gone:
            self.fields.pop(name, None)
        self.id_blocks.update(write.id_blocks_put)
        for name in write.id_blocks_gone:
            self.id_blocks.pop(name, None)
        self.mark = write.after

    def read(self, rules: Rules) -> Window:
        """The window as it is read back; the mark goes on from there."""
        window, self.mark = Stored(dict(self.fields), dict(self.id_blocks)).open(KEY, 0, rules)
        return window
