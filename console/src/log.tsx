// The log of a conversation, newest first, down to its first event.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { v1 } from "./api";
import { usePages } from "./load";
import { Notice, textOf, when } from "./parts";
import { Call, Text } from "./window";
import type { LoggedEvent } from "./types";

interface Page {
  events: LoggedEvent[];
  next_before: string | null;
}

/** Events that came since the conversation was opened are kept up to this number. */
export const KEPT = 2000;
const BESIDE = new Set(["type", "time", "position", "role", "content", "text", "tool_calls"]);

interface LogProps {
  conversation: string;
  /** The events that came since the conversation was opened, oldest first. */
  live: LoggedEvent[];
  /** Whether those are all that came: the stream was open. */
  joined: boolean;
}

export function LogView({ conversation, live, joined }: LogProps): JSX.Element {
  const path = (before?: string): string => v1(["conversations", conversation, "history"], { before, limit: 50 });
  const { first, items, more, again, renew, error } = usePages<Page, LoggedEvent>(
    path,
    (page) => page.events,
    (event) => event.position,
  );
  // A page that was read before the stream was open lacks what came between the two.
  const begun = useRef(joined);
  useEffect(() => {
    // Older pages that were asked for meanwhile stay.
    if (joined && !begun.current) renew();
  }, [joined]);
  const known = new Set(items.map((event) => event.position));
  const last = live.findLastIndex((event) => known.has(event.position));
  const fresh = first ? live.slice(last + 1).reverse() : [];
  const gap = live.length === KEPT && fresh.length === KEPT;
  return (
    <>
      <Notice error={error} />
      {gap ? (
        <p class="row">
          So many events came that some are not listed.
          <button type="button" onClick={again}>
            Read the log again
          </button>
        </p>
      ) : null}
      <ol class="messages" aria-label="Events, newest first">
        {[...fresh, ...items].map((event) => (
          <EventRow key={event.position} event={event} />
        ))}
      </ol>
      {more ? (
        <button type="button" onClick={more}>
          Show older events
        </button>
      ) : first ? (
        <p>This is the first event.</p>
      ) : null}
    </>
  );
}

/** The colour of an event: as of its message in the window. */
function laneOf({ type, role }: LoggedEvent): string {
  if (type === "summary") return "summary";
  if (type === "suspension") return "waiting";
  if (role === "system" || role === "developer") return "system";
  return type === "message" || type === "tool.result" ? "tail" : "none";
}

function EventRow({ event }: { event: LoggedEvent }): JSX.Element {
  const rest = Object.entries(event).filter(([name, value]) => !BESIDE.has(name) && value !== null);
  const text = textOf(event.content ?? event.text);
  const lines = rest.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const fields = <Text text={lines.join("\n")} />;
  const shown = text || event.tool_calls;
  return (
    <li class={`message lane-${laneOf(event)}`}>
      <p class="meta">
        <strong>{event.role ?? event.type}</strong>
        {event.role ? <span>{event.type}</span> : null}
        <small>{event.position}</small>
        <small>{when(event.time)}</small>
      </p>
      {text ? <Text text={text} /> : null}
      {event.tool_calls?.map((call) => <Call key={call.id} {...call} />)}
      {shown ? (
        <details>
          <summary>Other fields</summary>
          {fields}
        </details>
      ) : (
        fields
      )}
    </li>
  );
}
