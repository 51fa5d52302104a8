// Re-projection: another policy beside the live one on a sample, then build it, watch it, and switch.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { components } from "../../clients/typescript/types/openapi.js";
import { get, send, v1 } from "./api";
import { useAction, useLoaded } from "./load";
import { Notice, Table, Title, many, number, when } from "./parts";
import { SideBySide } from "./side-by-side";

type Comparison = components["schemas"]["Comparison"];
type Generation = components["schemas"]["ListedGeneration"];
type Sides = components["schemas"]["Sides"];
const EVERY = 2000;
const COUNTED = ["Events", "Tokens", "Messages", "Left out"];
const SAMPLES = [20, 50, 200];

export function Reprojection(): JSX.Element {
  const { value, error, again } = useLoaded<{ generations: Generation[] }>(
    (signal) => get("v1/generations", signal),
    "generations",
    EVERY,
  );
  const live = value?.generations.find((one) => one.stage === "live");
  return (
    <>
      <Title>Re-projection</Title>
      <Notice error={error} />
      <p>
        Another policy is folded into a new generation of windows beside the live one. Readers see it once it is switched to. The log does not
        change.
      </p>
      {live ? <Compare live={live} again={again} /> : null}
      {value ? <Generations all={value.generations} again={again} /> : null}
    </>
  );
}

function Compare({ live, again }: { live: Generation; again: () => void }): JSX.Element {
  const [text, setText] = useState(() => JSON.stringify(live.policy, null, 2));
  const [tenant, setTenant] = useState("");
  const [sample, setSample] = useState(50);
  const [price, setPrice] = useState("");
  const [found, setFound] = useState<{ of: string; comparison: Comparison } | null>(null);
  const [begun, setBegun] = useState("");
  const compare = useAction();
  const build = useAction();
  const policy = (): unknown => {
    try {
      return JSON.parse(text);
    } catch {
      throw new Error("The policy is no JSON: write an object such as {\"working_budget\": 20000}.");
    }
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    void compare.run(async () => {
      const wanted = { policy: policy(), conversations: sample, ...(tenant ? { tenant } : {}) };
      setFound({ of: text, comparison: await send("POST", "v1/generations/compare", wanted) });
    });
  };
  const start = (): void =>
    void build.run(async () => {
      setBegun("");
      const { generation, resumed } = await send<components["schemas"]["Begun"]>("POST", "v1/generations", { policy: policy() });
      setBegun(resumed ? `The build of generation ${generation} goes on.` : `Generation ${generation} is begun.`);
      again();
    });
  return (
    <section aria-labelledby="compare">
      <h2 id="compare">Compare two policies</h2>
      <form onSubmit={submit}>
        <div class="pair">
          <div>
            <h3 id="live-policy">Live: generation {live.number}{Object.keys(live.policy as object).length ? "" : ", with all defaults"}</h3>
            <pre class="text card" tabIndex={0} aria-labelledby="live-policy">
              {JSON.stringify(live.policy, null, 2)}
            </pre>
          </div>
          <label class="wide">
            Other policy of the deployment
            <textarea rows={8} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
        </div>
        <div class="row">
          <label>
            Conversations
            <select value={sample} onChange={(event) => setSample(Number(event.currentTarget.value))}>
              {SAMPLES.map((count) => (
                <option key={count}>{count}</option>
              ))}
            </select>
          </label>
          <label>
            Tenant (empty: all)
            <input value={tenant} onInput={(event) => setTenant(event.currentTarget.value.trim())} />
          </label>
          <label>
            Price of a million tokens
            <input type="number" min={0} step="any" value={price} onInput={(event) => setPrice(event.currentTarget.value)} />
          </label>
          <button class="main" disabled={compare.busy}>
            {compare.busy ? "Comparing…" : "Compare"}
          </button>
          <button type="button" disabled={build.busy} onClick={start}>
            Build a generation under it
          </button>
        </div>
      </form>
      <Notice error={compare.error || build.error} />
      {begun ? <p role="status">{begun}</p> : null}
      {found ? <Compared key={found.of} found={found.comparison} policy={JSON.parse(found.of)} stale={found.of !== text} price={Number(price)} /> : null}
    </section>
  );
}

interface ComparedProps {
  found: Comparison;
  /** The other policy that was compared. */
  policy: unknown;
  stale: boolean;
  price: number;
}

function Compared({ found, policy, stale, price }: ComparedProps): JSX.Element {
  const { conversations, tokens } = found;
  const [both, setBoth] = useState<{ tenant: string; conversation: string } | null>(null);
  const cost = (sum: number): number => (sum * price) / 1e6;
  const rows: [string, Sides][] = [
    ["Tokens of all contexts", { before: tokens.before.sum, after: tokens.after.sum }],
    ["Median", { before: tokens.before.p50, after: tokens.after.p50 }],
    ["95th percentile", { before: tokens.before.p95, after: tokens.after.p95 }],
    ["Largest", { before: tokens.before.max, after: tokens.after.max }],
    ["Messages", found.messages],
    ["Older messages left out", found.left_out],
    ["Conversations with a summary", found.summaries],
    ["Conversations due for a summary", found.due],
    ["Cannot be rendered", found.does_not_fit],
  ];
  if (price) rows.splice(1, 0, ["Cost of reading each context once", { before: cost(tokens.before.sum), after: cost(tokens.after.sum) }]);
  if (price && found.cost_of_a_summary !== null) {
    const each = found.cost_of_a_summary;
    rows.push(["Cost of the summaries that are due", { before: each * found.due.before, after: each * found.due.after }]);
  }
  return (
    <>
      <p role="status">
        Compared {number(conversations.compared)} of {many(conversations.known, "conversation")}, {many(found.events, "event")}
        {conversations.too_long ? `; too long for the sample: ${number(conversations.too_long)}` : ""}.
        {stale ? " The policy was changed since." : ""}
      </p>
      {found.lost ? (
        <Notice error={`${many(found.lost, "conversation")} would lose something that their windows hold: a switch has to accept that.`} />
      ) : (
        <p class="good">A switch would lose nothing that the windows of these conversations hold.</p>
      )}
      {found.callable_failures.map((one) => (
        <Notice
          key={`${one.name} ${one.why}`}
          error={`Callable ${one.name} ${one.why} in the gateway: in ${many(one.conversations, "conversation")} (${one.first} first) the default template is used. Workers may come to other windows.`}
        />
      ))}
      <Table label="Both policies" heads={["Measure", "Live", "Other", "Change"]} numbers={["Live", "Other", "Change"]}>
        {rows.map(([name, { before, after }]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{number(before)}</td>
            <td class="number">{number(after)}</td>
            <td class="number">{change(before, after)}</td>
          </tr>
        ))}
      </Table>
      <h3>By conversation</h3>
      <Table label="Conversations under both policies" heads={["Conversation", ...COUNTED, "Lost by a switch", "Windows"]} numbers={COUNTED} long>
        {found.windows.map((one) => (
          <tr key={`${one.tenant}/${one.conversation}`}>
            <th scope="row">{`${one.tenant}/${one.conversation}`}</th>
            <td class="number">{number(one.events)}</td>
            <td class="number">{`${shown(one.tokens.before)} → ${shown(one.tokens.after)}`}</td>
            <td class="number">{`${number(one.messages.before)} → ${number(one.messages.after)}`}</td>
            <td class="number">{`${number(one.left_out.before)} → ${number(one.left_out.after)}`}</td>
            <td>{one.lost ?? "nothing"}</td>
            <td>
              <button type="button" aria-label={`Show both windows of ${one.tenant}/${one.conversation}`} onClick={() => setBoth(one)}>
                Show both
              </button>
            </td>
          </tr>
        ))}
      </Table>
      {both ? <SideBySide key={`${both.tenant}/${both.conversation}`} {...both} policy={policy} close={() => setBoth(null)} /> : null}
    </>
  );
}

function shown(tokens: number | null): string {
  return tokens === null ? "does not fit" : number(tokens);
}

function change(before: number, after: number): string {
  if (before === after) return "none";
  const share = before ? ` (${after > before ? "+" : "−"}${Math.abs(Math.round((100 * (after - before)) / before))} %)` : "";
  return `${after > before ? "+" : "−"}${number(Math.abs(after - before))}${share}`;
}

function Generations({ all, again }: { all: Generation[]; again: () => void }): JSX.Element {
  const { run, busy, error } = useAction();
  const act = (method: string, path: (string | number)[], body?: unknown): void =>
    void run(async () => {
      await send(method, v1(path.map(String)), body);
      again();
    });
  const working = all.some((one) => one.task !== null && one.task.ended === null);
  return (
    <section aria-labelledby="generations">
      <h2 id="generations">Generations</h2>
      <Notice error={error} />
      <Table label="Generations" heads={["Generation", "Stage", "Begun", "Live since", "Progress", "Actions"]}>
        {all.map((one) => (
          <tr key={one.number}>
            <th scope="row">{one.number}</th>
            <td>{one.stage}</td>
            <td class="time">{when(one.created)}</td>
            <td class="time">{when(one.live_at)}</td>
            <td>
              <Progress of={one} />
            </td>
            <td>
              <GenerationActions of={one} disabled={busy || working} act={act} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

const DOING: Record<string, string> = { build: "is being built", switch: "is being switched to", drop: "is being dropped" };

function Losses({ of: { would_lose, lost, losses } }: { of: components["schemas"]["Task"] }): JSX.Element {
  return (
    <details>
      <summary>
        {many(lost, "conversation")} {would_lose ? "would lose something" : "lost something by the switch"}
      </summary>
      <ul>
        {losses.map((one) => (
          <li key={one.conversation}>
            {one.conversation}: {one.because}
          </li>
        ))}
      </ul>
      {lost > losses.length ? <p>{number(lost - losses.length)} more are not named here.</p> : null}
    </details>
  );
}

function Progress({ of: { left, task } }: { of: Generation }): JSX.Element {
  const going = task !== null && task.ended === null;
  return (
    <>
      <span role="status">
        {going ? (DOING[task.doing] ?? task.doing) : ""}
        {left === null ? "" : left ? `${going ? ", " : ""}${many(left, "event")} left` : `${going ? ", " : ""}all events folded`}
      </span>
      <Notice error={task?.error ?? ""} />
      {task?.lost ? <Losses of={task} /> : null}
    </>
  );
}

interface ActionsProps {
  of: Generation;
  disabled: boolean;
  act: (method: string, path: (string | number)[], body?: unknown) => void;
}

function GenerationActions({ of: one, disabled, act }: ActionsProps): JSX.Element {
  const button = (text: string, run: () => void, danger = false): JSX.Element => (
    <button type="button" class={danger ? "danger" : ""} disabled={disabled} onClick={run} aria-label={`${text} generation ${one.number}`}>
      {text}
    </button>
  );
  const accept = (): void => {
    if (confirm(`Switch to generation ${one.number}, although conversations lose something that they hold?`)) {
      act("POST", ["generations", one.number, "switch"], { accept_loss: true });
    }
  };
  const drop = (): void => {
    if (confirm(`Drop the windows of generation ${one.number}? The log stays.`)) act("DELETE", ["generations", one.number]);
  };
  if (one.stage === "live") return <></>;
  return (
    <span class="actions">
      {one.stage === "building"
        ? button("Go on building", () => act("POST", ["generations"], { policy: one.policy }))
        : button("Switch to", () => act("POST", ["generations", one.number, "switch"], {}))}
      {one.task?.would_lose ? button("Accept the loss and switch to", accept, true) : null}
      {button("Drop", drop, true)}
    </span>
  );
}
