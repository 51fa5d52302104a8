// What was learnt in a conversation, each memory with the events that taught it.

import type { JSX } from "preact";
import type { Memory } from "../../clients/typescript/dist/models.js";
import { newClient } from "./client";
import { useLoaded } from "./load";
import { Notice, when } from "./parts";
import { Original } from "./window";

const MOST = 200;
const FOUND: Record<Memory["origin"], string> = { explicit: "saved by a service", rules: "found by rules", model: "found by a model" };

async function newest(conversation: string): Promise<Memory[]> {
  const found: Memory[] = [];
  for await (const memory of newClient().memories({ conversation, limit: MOST })) {
    if (found.push(memory) === MOST) break;
  }
  return found;
}

export function MemoriesView({ conversation }: { conversation: string }): JSX.Element {
  const { value, error } = useLoaded(() => newest(conversation), conversation);
  return (
    <>
      <Notice error={error} />
      {value && !value.length ? <p>Nothing was learnt in this conversation.</p> : null}
      <ul class="messages" aria-label="Memories">
        {value?.map((memory) => (
          <li key={memory.id} class="message">
            <p class="meta">
              <strong>{memory.type}</strong>
              <span>{memory.user}</span>
              <small>said by the {memory.trust}</small>
              <small>{FOUND[memory.origin]}</small>
              <small>{when(memory.created)}</small>
              {memory.superseded_by ? <span class="badge">superseded</span> : null}
              {memory.expired_at ? <span class="badge">expired</span> : null}
            </p>
            <p class="text">{memory.text}</p>
            {memory.positions.length ? null : (
              <p>
                <small>Saved without an event.</small>
              </p>
            )}
            {memory.positions.map((position) => (
              <p key={position}>
                <small>Learnt from {position}</small> <Original conversation={conversation} position={position} what="event" />
              </p>
            ))}
          </li>
        ))}
      </ul>
      {value?.length === MOST ? <p>These are the newest {MOST}.</p> : null}
    </>
  );
}
