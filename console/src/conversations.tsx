// The tenant's conversations, newest first, and the open suspensions of all of them.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, v1 } from "./api";
import { messageOf, useLoaded } from "./load";
import { Notice, Table, Title, link, number, when } from "./parts";
import { SuspensionCard } from "./suspensions";
import type { Listed, Suspension } from "./types";

const STATES = ["active", "awaiting_input", "awaiting_approval", "idle", "closed"];
const EVERY = 5000;

interface Page {
  conversations: Listed[];
  next_before: string | null;
}

/** `own`: an end user sees the own conversations alone, so there is no user to choose. */
export function Conversations({ own }: { own: boolean }): JSX.Element {
  const [state, setState] = useState("");
  const [user, setUser] = useState("");
  const [older, setOlder] = useState<Listed[]>([]);
  const [cursor, setCursor] = useState<string | null | undefined>(undefined);
  const [error, setError] = useState("");
  const path = (before?: string): string => v1(["conversations"], { state, user, before, limit: 50 });
  const first = useLoaded<Page>((signal) => get(path(), signal), `${state}/${user}`, EVERY);
  const next = cursor === undefined ? first.value?.next_before : cursor;
  const listed = first.value?.conversations ?? [];
  const seen = new Set(listed.map((one) => one.conversation));
  const forget = (): void => {
    setOlder([]);
    setCursor(undefined);
  };
  const more = async (): Promise<void> => {
    try {
      const page = await get<Page>(path(next ?? undefined));
      setOlder([...older, ...page.conversations]);
      setCursor(page.next_before);
      setError("");
    } catch (problem) {
      setError(messageOf(problem));
    }
  };
  return (
    <>
      <Title>Conversations</Title>
      <form class="row" onSubmit={(event) => event.preventDefault()}>
        <label>
          State
          <select value={state} onChange={(event) => (forget(), setState(event.currentTarget.value))}>
            <option value="">any</option>
            {STATES.map((name) => (
              <option key={name} value={name}>
                {name.replace("_", " ")}
              </option>
            ))}
          </select>
        </label>
        {own ? null : (
          <label>
            User
            <input value={user} onChange={(event) => (forget(), setUser(event.currentTarget.value.trim()))} />
          </label>
        )}
        <OpenByName />
      </form>
      <Notice error={first.error || error} />
      {first.value && !listed.length ? <p>No conversation matches.</p> : null}
      <Table label="Conversations" heads={["Conversation", "State", "Events", "Tokens", "User", "Active", "Last message"]}>
        {[...listed, ...older.filter((one) => !seen.has(one.conversation))].map((one) => (
          <tr key={one.conversation}>
            <th scope="row">
              <a href={link.conversation(one.conversation)}>{one.title ?? one.conversation}</a>
              {one.title ? <small> {one.conversation}</small> : null}
            </th>
            <td>{one.state.replace("_", " ")}</td>
            <td class="number">{counted(one, one.count)}</td>
            <td class="number">{counted(one, one.tokens)}</td>
            <td>{one.user}</td>
            <td>{when(one.active_at)}</td>
            <td class="cut">{one.last_message ? `${one.last_message.role}: ${one.last_message.text}` : ""}</td>
          </tr>
        ))}
      </Table>
      {next ? (
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
  return (
    <label>
      Open by name
      <input
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && name.trim()) location.hash = link.conversation(name.trim());
        }}
      />
    </label>
  );
}

export function Approvals({ mayAnswer }: { mayAnswer: boolean }): JSX.Element {
  const { value, error, again } = useLoaded<{ suspensions: (Suspension & { conversation: string })[]; unreadable?: string[] }>(
    (signal) => get(v1(["suspensions"], { limit: 100 }), signal),
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
          mayAnswer={mayAnswer}
          done={again}
          named
        />
      ))}
    </>
  );
}
