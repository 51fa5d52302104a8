// One open suspension, and what a person does with it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Me } from "./api";
import { newClient } from "./client";
import { useAction } from "./load";
import { Notice, link, when } from "./parts";
import type { Suspension } from "./types";

type Outcome = "approved" | "rejected" | "answered" | "cancelled";

interface Props {
  conversation: string;
  suspension: Suspension;
  /** Why who is signed in cannot answer; empty: it is possible. */
  cannot: string;
  done: () => void;
  named?: boolean;
}

/** Why this person cannot answer suspensions; empty: it is possible. */
export function cannotAnswer(me: Me): string {
  if (me.user !== undefined) return "A token of an end user cannot answer.";
  return me.scopes.includes("append") ? "" : "The key lacks the scope append, so it cannot answer.";
}

export function SuspensionCard({ conversation, suspension, cannot, done, named = false }: Props): JSX.Element {
  const [content, setContent] = useState("");
  const { run, busy, error } = useAction();
  const { suspension_id: id, kind } = suspension;
  const resolve = (outcome: Outcome) => (): Promise<void> =>
    run(async () => {
      const event = { type: "resolution" as const, suspension_id: id, outcome, ...(content ? { content } : {}) };
      await newClient().append(conversation, event, { wait: "applied" });
      done();
    });
  const approval = kind === "approval";
  return (
    <section class="card waiting" aria-label={`Suspension ${id}`}>
      <p>
        <strong>{approval ? "Waits for an approval" : `Waits for ${kind === "input" ? "an answer" : "something outside"}`}</strong>{" "}
        {named ? <a href={link.conversation(conversation)}>{conversation}</a> : null} <small>{id}</small>
        {suspension.expires_at ? <small> expires {when(suspension.expires_at)}</small> : null}
      </p>
      <p class="text">{suspension.prompt ?? `No prompt${suspension.tool_call_id ? `; the call is ${suspension.tool_call_id}` : ""}.`}</p>
      {cannot ? (
        <p>
          <small>{cannot}</small>
        </p>
      ) : (
        <div class="row">
          <label class="wide">
            {approval ? "Comment" : "Answer"}
            <textarea rows={1} value={content} onInput={(event) => setContent(event.currentTarget.value)} />
          </label>
          {approval ? (
            <button type="button" class="main" disabled={busy} onClick={resolve("approved")}>
              Approve
            </button>
          ) : (
            <button type="button" class="main" disabled={busy || !content} onClick={resolve("answered")}>
              Answer
            </button>
          )}
          <button type="button" disabled={busy} onClick={resolve(approval ? "rejected" : "cancelled")}>
            {approval ? "Reject" : "Cancel"}
          </button>
        </div>
      )}
      <Notice error={error} />
    </section>
  );
}
