// What was learnt in a conversation, each memory with the events that taught it.

import type { JSX } from "preact";
import { get, v1 } from "./api";
import { useLoaded } from "./load";
import { Notice, when } from "./parts";

interface Memory {
  id: string;
  kind: string;
  type: string;
  text: string;
  user: string | null;
  trust: string;
  origin: string;
  positions: string[];
  created: string;
  superseded_by: string | null;
  expired_at: string | null;
}

export function MemoriesView({ conversation }: { conversation: string }): JSX.Element {
  const { value, error } = useLoaded<{ memories: Memory[]; next_before: string | null }>(
    (signal) => get(v1(["memories"], { conversation, limit: 200 }), signal),
    conversation,
  );
  return (
    <>
      <Notice error={error} />
      {value && !value.memories.length ? <p>Nothing was learnt in this conversation.</p> : null}
      <ul class="messages" aria-label="Memories">
        {value?.memories.map((memory) => (
          <li key={memory.id} class="message">
            <p class="meta">
              <strong>{memory.type}</strong>
              <span>{memory.user}</span>
              <small>said by the {memory.trust}</small>
              <small>{memory.origin}</small>
              <small>{when(memory.created)}</small>
              {memory.superseded_by ? <span class="badge">superseded</span> : null}
              {memory.expired_at ? <span class="badge">expired</span> : null}
            </p>
            <p class="text">{memory.text}</p>
            <p>
              <small>{memory.positions.length ? `Learnt from ${memory.positions.join(", ")}` : "Saved without an event."}</small>
            </p>
          </li>
        ))}
      </ul>
      {value?.next_before ? <p>These are the newest 200.</p> : null}
    </>
  );
}
