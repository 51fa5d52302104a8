// Care: erasure with its receipt; for the operator also what is stuck.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Receipt } from "../../clients/typescript/dist/models.js";
import { type Me, get, send, v1 } from "./api";
import { newClient } from "./client";
import { useAction, useLoaded } from "./load";
import { Notice, Table, Title, when, words } from "./parts";

export function Care({ me }: { me: Me }): JSX.Element {
  return (
    <>
      <Title>Care</Title>
      {me.scopes.includes("admin") ? <DeadLetters /> : null}
      {me.scopes.includes("erase") ? <Erasure tenant={me.tenant} /> : <p>The key lacks the scope erase, so it erases nothing.</p>}
    </>
  );
}

interface Letters {
  halted: { partition: number; what: string }[];
  parked: { position: string; tenant: string; conversation: string; cause: string; waiting: number }[];
  records: { position: string; key: string; cause: string }[];
  all: boolean;
}

/** What could not be folded, and what an operator does with it. */
function DeadLetters(): JSX.Element {
  const { value, error, again } = useLoaded<Letters>((signal) => get("v1/dead-letters", signal), "letters", 15_000);
  const [done, setDone] = useState("");
  const action = useAction();
  const act = (position: string, name: "retry" | "drop", what: string) => (): void => {
    if (name === "drop" && !confirm(`Drop the event at ${position}? The fold passes over it from then on.`)) return;
    void action.run(async () => {
      setDone("");
      const path = v1(["dead-letters", position, name]);
      const answer = await send<{ parked: { position: string; cause: string } | null; applied?: boolean }>("POST", path);
      const still = answer.parked ? `parked at ${answer.parked.position}: ${answer.parked.cause}` : "done";
      setDone(`${what}: ${answer.applied === false ? "the drop is in the log, and no worker has folded it yet" : still}`);
      again();
    });
  };
  const row = (position: string, what: string, cause: string, waiting: number | null): JSX.Element => (
    <tr key={position}>
      <th scope="row">{what}</th>
      <td>{position}</td>
      <td>{cause}</td>
      <td class="number">{waiting}</td>
      <td>
        <span class="actions">
          <Inspect position={position} />
          {waiting === null ? null : (
            <button type="button" disabled={action.busy} onClick={act(position, "retry", what)} aria-label={`Retry ${position}`}>
              Retry
            </button>
          )}
          <button type="button" class="danger" disabled={action.busy} onClick={act(position, "drop", what)} aria-label={`Drop ${position}`}>
            Drop
          </button>
        </span>
      </td>
    </tr>
  );
  const any = value && value.parked.length + value.records.length > 0;
  return (
    <section aria-labelledby="letters">
      <h2 id="letters">Dead letters</h2>
      <Notice error={error || action.error} />
      {value?.halted.map((one) => (
        <Notice key={one.partition} error={one.what} />
      ))}
      {done ? <p role="status">{done}</p> : null}
      {value && !any ? <p>There are no dead letters.</p> : null}
      {any ? (
        <Table label="Dead letters" heads={["Conversation or key", "Position", "Cause", "Waiting", "Actions"]} numbers={["Waiting"]}>
          {value.parked.map((one) => row(one.position, `${one.tenant}/${one.conversation}`, one.cause, one.waiting))}
          {value.records.map((one) => row(one.position, `record of ${one.key || "no key"}`, one.cause, null))}
        </Table>
      ) : null}
      {value && !value.all ? <p>There are more: threadfold dead-letters list shows all.</p> : null}
    </section>
  );
}

function Inspect({ position }: { position: string }): JSX.Element {
  const [shown, setShown] = useState("");
  const { run, busy, error } = useAction();
  const look = (): void => {
    if (shown) setShown("");
    else void run(async () => setShown(JSON.stringify(await get(v1(["dead-letters", position])), null, 2)));
  };
  return (
    <>
      <button type="button" disabled={busy} aria-expanded={shown !== ""} onClick={look} aria-label={`Inspect ${position}`}>
        Inspect
      </button>
      {shown ? <span class="original">{shown}</span> : null}
      <Notice error={error} />
    </>
  );
}

function Erasure({ tenant }: { tenant: string }): JSX.Element {
  const [what, setWhat] = useState<"conversations" | "users">("conversations");
  const [name, setName] = useState("");
  const [typed, setTyped] = useState("");
  const [receipts, setReceipts] = useState<Receipt[] | null>(null);
  const { run, busy, error } = useAction();
  const erase = (event: Event): void => {
    event.preventDefault();
    void run(async () => {
      setReceipts(null);
      const client = newClient();
      setReceipts(what === "users" ? (await client.eraseUser(name)).conversations : [await client.erase(name)]);
      setTyped("");
    });
  };
  return (
    <section aria-labelledby="erasure">
      <h2 id="erasure">Erasure</h2>
      <p>An erasure is final. It reaches the conversations of tenant {tenant}.</p>
      <form class="card" onSubmit={erase}>
        <div class="row">
          <label>
            Erase
            <select value={what} onChange={(event) => setWhat(event.currentTarget.value as typeof what)}>
              <option value="conversations">a conversation</option>
              <option value="users">all conversations of a user</option>
            </select>
          </label>
          <label>
            Name
            <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
          <label>
            The name again
            <input required autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
          <button class="danger" disabled={busy || !name || typed !== name}>
            Erase for good
          </button>
        </div>
        <Notice error={error} />
      </form>
      {receipts ? <p role="status">{receipts.length ? "Erased. The receipt:" : "That user has no conversation."}</p> : null}
      {receipts?.map((receipt) => (
        <ReceiptView key={receipt.conversation} receipt={receipt} />
      ))}
    </section>
  );
}

function ReceiptView({ receipt }: { receipt: Receipt }): JSX.Element {
  return (
    <Table label={`Receipt for ${receipt.conversation}`} heads={["Store", "State", "Final by", "How"]}>
      {Object.entries(receipt.stores).map(([store, { state, deadline, how }]) => (
        <tr key={store}>
          <th scope="row">{words(store)}</th>
          <td>{state}</td>
          <td class="time">{when(deadline) || "now"}</td>
          <td>{how}</td>
        </tr>
      ))}
    </Table>
  );
}
