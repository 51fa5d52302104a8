// The log of a conversation, newest first, down to its first event.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, v1 } from "./api";
import { messageOf, useLoaded } from "./load";
import { Notice, textOf, when } from "./parts";
import { Text } from "./window";
import type { LoggedEvent } from "./types";

interface Page {
  events: LoggedEvent[];
  next_before: string | null;
}

const BESIDE = new Set(["id", "type", "time", "position", "role", "content", "text", "traceparent"]);

/** `live` are the events that came since the view was opened, oldest first. */
export function LogView({ conversation, live }: { conversation: string; live: LoggedEvent[] }): JSX.Element {
  const path = (before?: string): string => v1(["conversations", conversation, "history"], { before, limit: 50 });
  const first = useLoaded<Page>((signal) => get(path(), signal), conversation);
  const [older, setOlder] = useState<LoggedEvent[]>([]);
  const [cursor, setCursor] = useState<string | null | undefined>(undefined);
  const [error, setError] = useState("");
  const next = cursor === undefined ? first.value?.next_before : cursor;
  const more = async (): Promise<void> => {
    try {
      const page = await get<Page>(path(next ?? undefined));
      setOlder([...older, ...page.events]);
      setCursor(page.next_before);
      setError("");
    } catch (problem) {
      setError(messageOf(problem));
    }
  };
  const loaded = first.value?.events ?? [];
  const known = new Set(loaded.map((event) => event.position));
  const fresh = first.value ? live.filter((event) => !known.has(event.position)).reverse() : [];
  return (
    <>
      <Notice error={first.error || error} />
      <ol class="messages" aria-label="Events, newest first">
        {[...fresh, ...loaded, ...older].map((event) => (
          <EventRow key={event.position} event={event} />
        ))}
      </ol>
      {next ? (
        <button type="button" onClick={more}>
          Show older events
        </button>
      ) : first.value ? (
        <p>This is the first event.</p>
      ) : null}
    </>
  );
}

function EventRow({ event }: { event: LoggedEvent }): JSX.Element {
  const rest = Object.fromEntries(Object.entries(event).filter(([name]) => !BESIDE.has(name)));
  const text = textOf(event.content ?? event.text);
  return (
    <li class={`message event-${event.type.split(".")[0]}`}>
      <p class="meta">
        <strong>{event.role ?? event.type}</strong>
        {event.role ? <span>{event.type}</span> : null}
        <small>{event.position}</small>
        <small>{when(event.time)}</small>
      </p>
      {text ? <Text text={text} /> : null}
      {Object.keys(rest).length ? <Text text={JSON.stringify(rest)} /> : null}
    </li>
  );
}
