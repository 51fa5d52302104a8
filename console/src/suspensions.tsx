// One open suspension, and what a person does with it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { newClient } from "./client";
import { useAction } from "./load";
import { Notice, link, when } from "./parts";
import type { Suspension } from "./types";

type Outcome = "approved" | "rejected" | "answered" | "cancelled";

interface Props {
  conversation: string;
  suspension: Suspension;
  mayAnswer: boolean;
  done: () => void;
  named?: boolean;
}

export function SuspensionCard({ conversation, suspension, mayAnswer, done, named = false }: Props): JSX.Element {
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
      {suspension.prompt ? <p class="text">{suspension.prompt}</p> : null}
      {mayAnswer ? (
        <>
          <label class="wide">
            {approval ? "Comment" : "Answer"}
            <textarea rows={2} value={content} onInput={(event) => setContent(event.currentTarget.value)} />
          </label>
          <p class="row">
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
          </p>
        </>
      ) : (
        <p>
          <small>The key lacks the scope append, so it cannot answer.</small>
        </p>
      )}
      <Notice error={error} />
    </section>
  );
}
