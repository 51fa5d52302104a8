// Tenants for the operator: quotas, policies, keys, and a look into a tenant with a key for an hour.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, send, storeKey, v1 } from "./api";
import { useAction, useLoaded } from "./load";
import { Notice, Table, Title, link, number, when, words } from "./parts";

interface Key {
  id: string;
  name: string | null;
  scopes: string[];
  created: string | null;
  expires_at: string | null;
  expired: boolean;
}

interface Tenant {
  name: string;
  policy: Record<string, unknown>;
  next_policy: Record<string, unknown> | null;
  erasure: "opaque" | "kept";
  quota: Record<string, number>;
  quota_in_force: Record<string, number | null>;
  keys: Key[];
  used_today?: { summary_tokens: number; summary_cost: number } | null;
}

const SCOPES = ["append", "read", "subscribe", "tokens", "admin", "erase"];
const LOOK_SECONDS = 3600;

export function Tenants(): JSX.Element {
  const { value, error, again } = useLoaded<{ tenants: Tenant[] }>((signal) => get("v1/tenants", signal), "tenants");
  const [name, setName] = useState("");
  const [key, setKey] = useState("");
  const add = useAction();
  const submit = (event: Event): void => {
    event.preventDefault();
    void add.run(async () => {
      setKey((await send<{ key: string }>("POST", "v1/tenants", { name })).key);
      again();
    });
  };
  return (
    <>
      <Title>Tenants</Title>
      <Notice error={error} />
      <Table label="Tenants" heads={["Tenant", "Keys", "Own quotas", "Text in the log after an erasure"]} numbers={["Keys"]}>
        {value?.tenants.map((tenant) => (
          <tr key={tenant.name}>
            <th scope="row">
              <a href={link.tenant(tenant.name)}>{tenant.name}</a>
            </th>
            <td class="number">{tenant.keys.length}</td>
            <td>{Object.keys(tenant.quota).map(words).join(", ") || "none"}</td>
            <td>{tenant.erasure === "opaque" ? "unreadable" : "kept"}</td>
          </tr>
        ))}
      </Table>
      <h2>Add a tenant</h2>
      <form class="row" onSubmit={submit}>
        <label>
          Name
          <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <button disabled={add.busy}>Add</button>
      </form>
      <Notice error={add.error} />
      <Secret value={key} />
    </>
  );
}

function Secret({ value }: { value: string }): JSX.Element | null {
  return value ? (
    <p class="secret" role="status">
      The key, shown once: <code>{value}</code>
    </p>
  ) : null;
}

export function TenantPage({ name }: { name: string }): JSX.Element {
  const { value, error, again } = useLoaded<Tenant>((signal) => get(v1(["tenants", name]), signal), name);
  const look = useAction();
  const lookInto = (): Promise<void> =>
    look.run(async () => {
      const expires_at = new Date(Date.now() + LOOK_SECONDS * 1000).toISOString();
      const body = { scopes: ["read", "subscribe"], name: "console", expires_at };
      storeKey((await send<{ key: string }>("POST", v1(["tenants", name, "keys"]), body)).key);
      location.hash = "#/conversations";
      location.reload();
    });
  return (
    <>
      <Title>{name}</Title>
      <Notice error={error} />
      {value ? (
        <>
          <p>
            <button type="button" disabled={look.busy} onClick={lookInto}>
              Look at its conversations
            </button>{" "}
            <small>makes a key that reads for an hour, and signs in with it</small>
          </p>
          <Notice error={look.error} />
          <Keys tenant={value} again={again} />
          <Quotas tenant={value} again={again} />
          <h2>Policy</h2>
          {Object.keys(value.policy).length ? (
            <pre class="text card">{JSON.stringify(value.policy, null, 2)}</pre>
          ) : (
            <p>The tenant sets nothing: the deployment's policy is in force.</p>
          )}
          {value.next_policy ? (
            <>
              <h2>Policy of the next generation</h2>
              <pre class="text card">{JSON.stringify(value.next_policy, null, 2)}</pre>
            </>
          ) : null}
        </>
      ) : null}
    </>
  );
}

interface PartProps {
  tenant: Tenant;
  again: () => void;
}

function Keys({ tenant, again }: PartProps): JSX.Element {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["append", "read", "subscribe"]);
  const [key, setKey] = useState("");
  const { run, busy, error } = useAction();
  const add = (event: Event): void => {
    event.preventDefault();
    void run(async () => {
      const body = { scopes, ...(name ? { name } : {}) };
      setKey((await send<{ key: string }>("POST", v1(["tenants", tenant.name, "keys"]), body)).key);
      again();
    });
  };
  const revoke = (one: Key) => (): void => {
    if (confirm(`Revoke the key ${one.name ?? one.id}? It answers 401 from then on.`)) {
      void run(async () => {
        await send("DELETE", v1(["tenants", tenant.name, "keys", one.id]));
        again();
      });
    }
  };
  return (
    <section aria-labelledby="keys">
      <h2 id="keys">Keys</h2>
      <Table label="Keys" heads={["Key", "Scopes", "Made", "Expires", "Actions"]}>
        {tenant.keys.map((one) => (
          <tr key={one.id}>
            <th scope="row">{one.name ?? one.id}</th>
            <td>{one.scopes.join(", ")}</td>
            <td class="time">{when(one.created)}</td>
            <td class="time">{one.expired ? "expired" : when(one.expires_at) || "never"}</td>
            <td>
              <button type="button" class="danger" disabled={busy} onClick={revoke(one)} aria-label={`Revoke ${one.name ?? one.id}`}>
                Revoke
              </button>
            </td>
          </tr>
        ))}
      </Table>
      <form class="row" onSubmit={add}>
        <label>
          Name of a new key
          <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        {SCOPES.map((scope) => (
          <label key={scope} class="line">
            <input
              type="checkbox"
              checked={scopes.includes(scope)}
              onChange={() => setScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope])}
            />
            {scope}
          </label>
        ))}
        <button disabled={busy || !scopes.length}>Make a key</button>
      </form>
      <Notice error={error} />
      <Secret value={key} />
    </section>
  );
}

function Quotas({ tenant, again }: PartProps): JSX.Element {
  const [changed, setChanged] = useState<Record<string, string>>({});
  const { run, busy, error } = useAction();
  const save = (event: Event): void => {
    event.preventDefault();
    const quota = Object.fromEntries(Object.entries(changed).map(([name, text]) => [name, text === "" ? null : Number(text)]));
    void run(async () => {
      await send("PATCH", v1(["tenants", tenant.name]), { quota });
      setChanged({});
      again();
    });
  };
  const used = tenant.used_today;
  return (
    <section aria-labelledby="quotas">
      <h2 id="quotas">Quotas</h2>
      <p>
        {used ? `Used today by summaries of models: ${number(used.summary_tokens)} tokens, cost ${number(used.summary_cost)}. ` : ""}
        A field that is empty takes the deployment's default. 0 is no limit.
      </p>
      <form onSubmit={save}>
        <div class="fields">
          {Object.entries(tenant.quota_in_force).map(([name, value]) => (
            <label key={name}>
              {words(name)}
              <input
                type="number"
                min={0}
                step="any"
                placeholder={value === null ? "no limit" : String(value)}
                value={changed[name] ?? tenant.quota[name] ?? ""}
                onInput={(event) => setChanged({ ...changed, [name]: event.currentTarget.value })}
              />
            </label>
          ))}
        </div>
        <button disabled={busy || !Object.keys(changed).length}>Change quotas</button>
      </form>
      <Notice error={error} />
    </section>
  );
}
