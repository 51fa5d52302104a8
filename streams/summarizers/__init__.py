"""What turns a span of a conversation into a short text; the default one is deterministic and works offline."""
