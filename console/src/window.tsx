// A window as the model sees it: a bar of tokens, then message by message.

import { Component, type JSX } from "preact";
import { useState } from "preact/hooks";
import { get, v1 } from "./api";
import { messageOf } from "./load";
import { Notice, Table, number, textOf, words } from "./parts";
import type { Item, LoggedEvent, Shortening, ToolCall, WindowShown } from "./types";

type Lane = Item["lane"] | "tools" | "waiting";
const LANES: [Lane, string][] = [
  ["tools", "tool schemas"],
  ["system", "system lane"],
  ["summary", "summary"],
  ["pinned", "pinned results"],
  ["omitted", "left out"],
  ["tail", "tail"],
  ["waiting", "waiting calls"],
];
const LONG = 1500;
const PAGE = 20000;

function laneOf(item: Item): Lane {
  if (item.waiting) return "waiting";
  return item.lane === "closing" ? "tail" : item.lane;
}

/** Tokens by message against budget and ceiling. One path a lane: a window of 1,000 messages is seven elements. */
function TokenBar({ shown }: { shown: WindowShown }): JSX.Element {
  const whole = Math.max(shown.ceiling, shown.tokens, 1);
  const paths = new Map<Lane, string>();
  const sums = new Map<Lane, number>();
  let x = 0;
  // The budget is the tail's alone, so it is measured from where the tail begins.
  let tail: number | null = null;
  const add = (lane: Lane, tokens: number): void => {
    const [from, width] = [(x / whole) * 1000, (tokens / whole) * 1000];
    const gap = width > 3 ? 1 : 0;
    paths.set(lane, `${paths.get(lane) ?? ""}M${from.toFixed(2)} 0h${(width - gap).toFixed(2)}v24h-${(width - gap).toFixed(2)}z`);
    sums.set(lane, (sums.get(lane) ?? 0) + tokens);
    x += tokens;
  };
  if (shown.tools_tokens) add("tools", shown.tools_tokens);
  for (const item of shown.messages) {
    if (item.lane === "tail") tail ??= x;
    add(laneOf(item), item.tokens);
  }
  const budget = Math.min(1000, (((tail ?? x) + shown.budget) / whole) * 1000);
  const text = `${number(shown.tokens)} tokens of ${number(shown.ceiling)} (${Math.round((100 * shown.tokens) / shown.ceiling)} %)`;
  return (
    <figure class="bar">
      <svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label={`Tokens by message: ${text}`}>
        <rect class="lane-free" width="1000" height="24" />
        {LANES.map(([lane]) => (paths.has(lane) ? <path key={lane} class={`lane-${lane}`} d={paths.get(lane)} /> : null))}
        <line class="mark" x1={budget} x2={budget} y1="0" y2="24" />
      </svg>
      <figcaption>
        <span>
          <strong>{text}</strong>: the right end is the ceiling. The line is where the tail's budget of {number(shown.budget)} ends.
        </span>
        <span class="legend">
          {LANES.filter(([lane]) => sums.has(lane)).map(([lane, name]) => (
            <span key={lane}>
              <i class={`swatch lane-${lane}`} /> {name} {number(sums.get(lane) ?? 0)}
            </span>
          ))}
        </span>
      </figcaption>
    </figure>
  );
}

interface ViewProps {
  conversation: string;
  shown: WindowShown;
}

/** Drawn again only for another window: text in progress comes many times a second. */
export class WindowView extends Component<ViewProps> {
  override shouldComponentUpdate(next: ViewProps): boolean {
    return next.shown !== this.props.shown;
  }

  override render({ conversation, shown }: ViewProps): JSX.Element {
    return <Whole conversation={conversation} shown={shown} />;
  }
}

function Whole({ conversation, shown }: ViewProps): JSX.Element {
  return (
    <>
      <TokenBar shown={shown} />
      {shown.parked ? (
        <Notice
          error={`Parked at ${shown.parked.position}: ${shown.parked.cause} (${shown.parked.waiting} events wait behind it)`}
        />
      ) : null}
      {shown.guard ? <Notice error={`The tool ${shown.guard.tool} was called ${shown.guard.count} times in a row.`} /> : null}
      <Trace shown={shown} />
      <ol class="messages" aria-label="Messages of the window">
        {shown.messages.map((item, i) => (
          <MessageRow key={keyOf(item, i)} conversation={conversation} item={item} />
        ))}
      </ol>
      {shown.left_out.length ? (
        <details>
          <summary>{shown.left_out.length} messages are kept by the window and not sent</summary>
          <ul class="plain">
            {shown.left_out.map((one) => (
              <li key={one.position}>
                {one.position}, {number(one.full_tokens)} tokens, {one.shortened.map((step) => words(step.reducer)).join(", ")}{" "}
                <Original conversation={conversation} position={one.position} />
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </>
  );
}

function keyOf(item: Item, i: number): string {
  return item.position && item.lane === "tail" ? item.position : `${item.lane}${i}`;
}

function Trace({ shown }: { shown: WindowShown }): JSX.Element | null {
  return shown.trace.length ? (
    <details>
      <summary>Steps of the render: {shown.trace.map((step) => words(step.reducer)).join(", ")}</summary>
      <Table label="Steps of the render" heads={["Step", "Messages", "Tokens"]}>
        {shown.trace.map((step) => (
          <tr key={step.reducer}>
            <th scope="row">{words(step.reducer)}</th>
            <td>{`${number(step.messages_before)} → ${number(step.messages_after)}`}</td>
            <td>{`${number(step.tokens_before)} → ${number(step.tokens_after)}`}</td>
          </tr>
        ))}
      </Table>
    </details>
  ) : null;
}

interface RowProps {
  conversation: string;
  item: Item;
}

/** A row is drawn again only if its message changed: a live window grows at its end. */
class MessageRow extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    return next.conversation !== this.props.conversation || !same(next.item, this.props.item);
  }

  override render({ conversation, item }: RowProps): JSX.Element {
    return <Row conversation={conversation} item={item} />;
  }
}

function same(a: Item, b: Item): boolean {
  return a.position === b.position && a.tokens === b.tokens && a.waiting === b.waiting && textOf(a.message.content) === textOf(b.message.content);
}

function Row({ conversation, item }: RowProps): JSX.Element {
  const lane = laneOf(item);
  const text = textOf(item.message.content);
  return (
    <li class={`message lane-${lane}`}>
      <p class="meta">
        <strong>{item.lane === "summary" ? "summary" : item.message.role}</strong>
        {item.message.name ? <span>{item.message.name}</span> : null}
        {item.waiting ? <span class="badge">waiting</span> : null}
        {item.lane === "pinned" ? <span class="badge">pinned</span> : null}
        <span class="number">{number(item.tokens)} tokens</span>
        <small>{item.position}</small>
      </p>
      {text ? <Text text={text} /> : null}
      {item.message.tool_calls?.map((call) => <Call key={call.id} {...call.function} />)}
      {item.shortened ? <Shortened conversation={conversation} item={item} steps={item.shortened} /> : null}
    </li>
  );
}

function Shortened({ conversation, item, steps }: RowProps & { steps: Shortening[] }): JSX.Element {
  const names = steps.map((step) => `to ${number(step.tokens)} by ${words(step.reducer)}${step.at ? ` at ${step.at}` : ""}`).join(", then ");
  return (
    <p class="shortened">
      Shortened from {number(item.full_tokens ?? 0)} tokens {names}.{" "}
      {item.position ? <Original conversation={conversation} position={item.position} /> : null}
    </p>
  );
}

export function Call({ name, arguments: given }: ToolCall["function"]): JSX.Element {
  return (
    <p class="call">
      <code>
        {name}({given})
      </code>
    </p>
  );
}

export function Text({ text }: { text: string }): JSX.Element {
  const [whole, setWhole] = useState(false);
  return (
    <>
      <p class="text">{whole || text.length <= LONG ? text : `${text.slice(0, LONG)}…`}</p>
      {text.length > LONG ? (
        <button type="button" class="quiet" aria-expanded={whole} onClick={() => setWhole(!whole)}>
          {whole ? "Show less" : `Show all ${number(text.length)} characters`}
        </button>
      ) : null}
    </>
  );
}

/** The event as it is in the log; a long text comes in pages. */
/** A button that shows an event whole. */
export function Original({ conversation, position, what = "original" }: { conversation: string; position: string; what?: string }): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const [rest, setRest] = useState(false);
  const [error, setError] = useState("");
  const load = async (offset: number): Promise<void> => {
    try {
      const event = await get<LoggedEvent>(v1(["conversations", conversation, "events", position]));
      const all = textOf(event.content ?? JSON.stringify(event, null, 2));
      setText(all.slice(0, offset + PAGE));
      setRest(all.length > offset + PAGE);
      setError("");
    } catch (problem) {
      setError(messageOf(problem));
    }
  };
  return (
    <>
      <button
        type="button"
        class="quiet"
        aria-expanded={text !== null}
        onClick={() => (text === null ? load(0) : setText(null))}
      >
        {text === null ? `Show the ${what}` : `Hide the ${what}`}
      </button>
      {text === null ? null : <span class="original">{text}</span>}
      {text !== null && rest ? (
        <button type="button" class="quiet" onClick={() => load(text.length)}>
          Show more
        </button>
      ) : null}
      <Notice error={error} />
    </>
  );
}
