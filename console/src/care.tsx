// Care: erasure with its receipt; for the operator also what is stuck, and generations.

import type { JSX } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
import { type Me, get, send, v1 } from "./api";
import { useAction, useLoaded } from "./load";
import { Notice, Table, Title, number, when } from "./parts";
import { by, sum } from "./prometheus";
import { watch } from "./watch";

export function Care({ me }: { me: Me }): JSX.Element {
  return (
    <>
      <Title>Care</Title>
      {me.scopes.includes("admin") ? <Stuck /> : null}
      {me.scopes.includes("erase") ? <Erasure tenant={me.tenant} /> : <p>The key lacks the scope erase, so it erases nothing.</p>}
      {me.scopes.includes("admin") ? <Generations /> : null}
    </>
  );
}

/** What stands still, by the metrics. */
function Stuck(): JSX.Element {
  const [, draw] = useReducer<number, void>((n) => n + 1, 0);
  useEffect(() => watch.subscribe(() => draw()), []);
  const { gateway, workers, error } = watch.watched;
  const halted = by(gateway, "threadfold_partition_halted", "partition").filter(([, value]) => value);
  const kinds = by(workers, "threadfold_dead_letters_total", "kind");
  return (
    <section aria-labelledby="stuck">
      <h2 id="stuck">Dead letters</h2>
      <Notice error={error} />
      {halted.length ? <Notice error={`Halted partitions: ${halted.map(([name]) => name).join(", ")}. threadfold doctor says why.`} /> : null}
      <p>
        Since the workers began: {kinds.map(([kind, value]) => `${kind} ${number(value)}`).join(", ") || "none"}. Records that are nobody's
        events: {number(sum(gateway, "threadfold_records_set_aside"))}.
      </p>
    </section>
  );
}

interface Receipt {
  conversation: string;
  erased_at: string;
  stores: Record<string, { state: string; deadline: string | null; how: string }>;
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
      const answer = await send<Receipt | { conversations: Receipt[] }>("DELETE", v1([what, name]));
      setReceipts("conversations" in answer ? answer.conversations : [answer]);
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
          <th scope="row">{store}</th>
          <td>{state}</td>
          <td>{when(deadline) || "now"}</td>
          <td>{how}</td>
        </tr>
      ))}
    </Table>
  );
}

interface Generation {
  number: number;
  stage: string;
  partitions: number;
  created: string | null;
  live_at: string | null;
}

function Generations(): JSX.Element {
  const { value, error } = useLoaded<{ generations: Generation[] }>((signal) => get("v1/generations", signal), "generations", 10_000);
  return (
    <section aria-labelledby="generations">
      <h2 id="generations">Generations</h2>
      <Notice error={error} />
      <Table label="Generations" heads={["Generation", "Stage", "Partitions", "Begun", "Live since"]}>
        {value?.generations.map((one) => (
          <tr key={one.number}>
            <th scope="row">{one.number}</th>
            <td>{one.stage}</td>
            <td class="number">{one.partitions}</td>
            <td>{when(one.created)}</td>
            <td>{when(one.live_at)}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
