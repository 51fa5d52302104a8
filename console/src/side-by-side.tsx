// One conversation under two policies: both windows, message beside message, with what differs marked.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { components } from "../../clients/typescript/types/openapi.js";
import { send } from "./api";
import { useLoaded } from "./load";
import { Notice, many, number, words } from "./parts";

type TwoWindows = components["schemas"]["TwoWindows"];
type Row = components["schemas"]["SideRow"];
type Message = components["schemas"]["SideMessage"];

interface SideProps {
  tenant: string;
  conversation: string;
  policy: unknown;
  close: () => void;
}

export function SideBySide({ tenant, conversation, policy, close }: SideProps): JSX.Element {
  const [only, setOnly] = useState(false);
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => head.current?.focus(), []);
  const wanted = { tenant, conversation, policy };
  const { value, error } = useLoaded<TwoWindows>(() => send("POST", "v1/generations/compare/window", wanted), JSON.stringify(wanted));
  return (
    <section aria-labelledby="both-windows">
      <div class="title">
        <h3 id="both-windows" ref={head} tabIndex={-1}>
          Both windows of {tenant}/{conversation}
        </h3>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
      <Notice error={error} />
      {value ? <Windows found={value} only={only} setOnly={setOnly} /> : error ? null : <p role="status">Folding…</p>}
    </section>
  );
}

function Windows({ found, only, setOnly }: { found: TwoWindows; only: boolean; setOnly: (yes: boolean) => void }): JSX.Element {
  const rows = only ? found.rows.filter((row) => row.differs) : found.rows;
  return (
    <>
      <p role="status">
        Live {tokens(found.tokens.before)}, other {tokens(found.tokens.after)}. {many(found.differing, "message")} {found.differing === 1 ? "differs" : "differ"}.
        {found.more ? ` The newest are shown; ${number(found.more)} older rows are not.` : ""}
        {found.text ? "" : " Their text is shown to keys of this tenant alone."}
      </p>
      {found.lost ? <Notice error={`A switch would lose something that it holds: ${found.lost}.`} /> : null}
      <label class="line">
        <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} />
        Only what differs
      </label>
      <div class="sides-heads" aria-hidden="true">
        <strong>Live</strong>
        <strong>Other</strong>
      </div>
      <ol class="sides" aria-label="Messages of both windows">
        {rows.map((row, i) => (
          <li key={i} class={row.differs ? "differs" : ""}>
            <Side name="Live" message={row.before} mark={mark(row, "live")} />
            <Side name="Other" message={row.after} mark={mark(row, "other")} />
          </li>
        ))}
      </ol>
      {rows.length ? null : <p>The two windows are the same.</p>}
    </>
  );
}

function Side({ name, message, mark: text }: { name: string; message: Message | null; mark: string }): JSX.Element {
  if (message === null) return <div class="side missing">{name}: not there</div>;
  return (
    <div class={`side lane-${message.lane === "closing" ? "tail" : message.lane}`}>
      <p class="meta">
        <small class="side-name">{name}</small>
        <strong>{message.role}</strong>
        <small>{number(message.tokens)} tokens</small>
        {message.lane === "tail" ? null : <small>{message.lane === "omitted" ? "left out" : message.lane}</small>}
        {message.shortened.length ? <small>shortened by {message.shortened.map(words).join(", ")}</small> : null}
        {text ? <mark>{text}</mark> : null}
      </p>
      {message.text === null ? null : <p class="text">{message.text}</p>}
    </div>
  );
}

function mark(row: Row, side: string): string {
  if (!row.differs) return "";
  return row.before && row.after ? "differs" : `only ${side}`;
}

function tokens(count: number | null): string {
  return count === null ? "does not fit" : `${number(count)} tokens`;
}
