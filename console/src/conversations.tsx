// The tenant's conversations, newest first, and the open suspensions of all of them.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Me, get, v1 } from "./api";
import { useLoaded, usePages } from "./load";
import { Notice, Table, Title, link, number, when, words } from "./parts";
import { SuspensionCard, cannotAnswer } from "./suspensions";
import type { Listed, Suspension } from "./types";

const STATES = ["active", "awaiting_input", "awaiting_approval", "idle", "closed"];
const EVERY = 5000;
/** Conversations whose suspensions are listed. */
const MOST = 200;

interface Waiting {
  suspensions: (Suspension & { conversation: string })[];
  unreadable?: string[];
  next_before: string | null;
}

interface Page {
  conversations: Listed[];
  next_before: string | null;
}

/** `own`: an end user sees the own conversations alone, so there is no user to choose. */
export function Conversations({ own }: { own: boolean }): JSX.Element {
  const [state, setState] = useState("");
  const [user, setUser] = useState("");
  const path = (before?: string): string => v1(["conversations"], { state, user, before, limit: 50 });
  const { first, items, more, error } = usePages<Page, Listed>(
    path,
    (page) => page.conversations,
    (one) => one.conversation,
    EVERY,
  );
  return (
    <>
      <Title>Conversations</Title>
      <div class="row">
        <label>
          State
          <select value={state} onChange={(event) => setState(event.currentTarget.value)}>
            <option value="">any</option>
            {STATES.map((name) => (
              <option key={name} value={name}>
                {words(name)}
              </option>
            ))}
          </select>
        </label>
        {own ? null : (
          <label>
            User
            <input value={user} onChange={(event) => setUser(event.currentTarget.value.trim())} />
          </label>
        )}
        <OpenByName />
      </div>
      <Notice error={error} />
      {first && !items.length ? <p>No conversation matches.</p> : null}
      <Table label="Conversations" heads={["Conversation", "State", "Events", "Tokens", "User", "Active", "Last message"]} numbers={["Events", "Tokens"]}>
        {items.map((one) => (
          <tr key={one.conversation}>
            <th scope="row">
              <a href={link.conversation(one.conversation)}>{one.title ?? one.conversation}</a>
              {one.title ? <small> {one.conversation}</small> : null}
            </th>
            <td>{words(one.state)}</td>
            <td class="number">{counted(one, one.count)}</td>
            <td class="number">{counted(one, one.tokens)}</td>
            <td>{one.user}</td>
            <td class="time">{when(one.active_at)}</td>
            <td class="cut">{one.last_message ? `${one.last_message.role}: ${one.last_message.text}` : ""}</td>
          </tr>
        ))}
      </Table>
      {more ? (
        <p>
          <button type="button" onClick={more}>
            Show older
          </button>
        </p>
      ) : null}
    </>
  );
}

/** Of a window that cannot be read nothing is counted. */
function counted(listed: Listed, count: number): string {
  return listed.position === null ? "" : number(count);
}

function OpenByName(): JSX.Element {
  const [name, setName] = useState("");
  const open = (event: Event): void => {
    event.preventDefault();
    if (name.trim()) location.hash = link.conversation(name.trim());
  };
  return (
    <form class="beside" onSubmit={open}>
      <label>
        Open by name
        <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <button>Open</button>
    </form>
  );
}

export function Approvals({ me }: { me: Me }): JSX.Element {
  const { value, error, again } = useLoaded<Waiting>(
    (signal) => get(v1(["suspensions"], { limit: MOST }), signal),
    "suspensions",
    EVERY,
  );
  return (
    <>
      <Title>Approvals</Title>
      <Notice error={error} />
      <Notice error={value?.unreadable?.length ? `These conversations cannot be read, and may wait: ${value.unreadable.join(", ")}.` : ""} />
      {value && !value.suspensions.length ? <p>Nobody waits for an approval or an answer.</p> : null}
      {value?.suspensions.map((one) => (
        <SuspensionCard
          key={`${one.conversation}/${one.suspension_id}`}
          conversation={one.conversation}
          suspension={one}
          cannot={cannotAnswer(me)}
          done={again}
          named
        />
      ))}
      {value?.next_before ? <p>More conversations wait. They are listed once some of these are answered.</p> : null}
    </>
  );
}
