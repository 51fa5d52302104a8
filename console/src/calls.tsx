// Recorded model calls: each is rendered again from the log on demand.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, v1 } from "./api";
import { useAction, useLoaded } from "./load";
import { Notice, Table, number, when } from "./parts";
import type { Call } from "./types";

interface Checked {
  agrees: boolean;
  why: string[];
}

const MOST = 100;

export function CallsView({ conversation }: { conversation: string }): JSX.Element {
  const { value, error } = useLoaded<{ renders: Call[] }>(
    (signal) => get(v1(["conversations", conversation, "renders"], { limit: MOST }), signal),
    conversation,
  );
  return (
    <>
      <Notice error={error} />
      {value && !value.renders.length ? <p>No model call of this conversation is recorded.</p> : null}
      {value?.renders.length ? (
        <Table label="Model calls" heads={["Model", "Does it agree?", "Time", "Position", "Tokens"]} numbers={["Tokens"]}>
          {value.renders.map((call) => (
            <CallRow key={call.id} call={call} />
          ))}
        </Table>
      ) : null}
      {value?.renders.length === MOST ? <p>These are the newest {MOST}.</p> : null}
    </>
  );
}

function CallRow({ call }: { call: Call }): JSX.Element {
  const [checked, setChecked] = useState<Checked | null>(null);
  const { run, busy, error } = useAction();
  const check = (): Promise<void> => run(async () => setChecked(await get<Checked>(v1(["renders", call.id]))));
  return (
    <tr>
      <th scope="row">{call.record.model}</th>
      <td>
        {checked === null ? (
          <button type="button" class="quiet" disabled={busy} onClick={check}>
            {busy ? "Rendering…" : "Render again"}
          </button>
        ) : (
          <span role="status">{checked.agrees ? "It agrees." : `It differs: ${checked.why.join("; ")}`}</span>
        )}
        <Notice error={error} />
      </td>
      <td class="time">{when(call.time)}</td>
      <td>{call.record.position}</td>
      <td class="number">{number(call.record.tokens)}</td>
    </tr>
  );
}
