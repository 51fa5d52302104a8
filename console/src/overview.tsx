// What the platform and the tenant do now, and did in the last hour.

import type { JSX } from "preact";
import { useEffect, useReducer } from "preact/hooks";
import type { components } from "../../clients/typescript/types/openapi.js";
import { type Me, get, v1 } from "./api";
import { type Hour, OF_PLATFORM, OF_TENANT, Plots } from "./hour";
import { useLoaded } from "./load";
import { Notice, Table, Title, number, words } from "./parts";
import { type Sample, by, sum } from "./prometheus";
import type { Suspension } from "./types";
import { watch } from "./watch";

type Platform = components["schemas"]["Platform"];
const EVERY = 10_000;

export function Overview({ me, admin }: { me: Me; admin: boolean }): JSX.Element {
  return (
    <>
      <Title more={<small>{admin ? "the platform's last hour" : "your last hour"}</small>}>Overview</Title>
      {admin ? <PlatformHour /> : <OwnHour />}
      {admin ? <Reported /> : null}
      <Own me={me} />
    </>
  );
}

function OwnHour(): JSX.Element {
  const { value, error } = useLoaded<{ hour: Hour }>((signal) => get("v1/me/hour", signal), "hour", EVERY);
  return (
    <>
      <Notice error={error} />
      {value ? <Plots hour={value.hour} shown={OF_TENANT} /> : null}
    </>
  );
}

function PlatformHour(): JSX.Element {
  const { value, error } = useLoaded<Platform>((signal) => get("v1/platform", signal), "platform", EVERY);
  return (
    <>
      <Notice error={error} />
      {value ? <Plots hour={value.hour} shown={OF_PLATFORM} /> : null}
      {value ? <Spent used={value.used_today} /> : null}
    </>
  );
}

/** What summaries by models used today: of all tenants. */
function Spent({ used }: { used: Platform["used_today"] }): JSX.Element {
  return (
    <section aria-labelledby="spent">
      <h2 id="spent">Models today, all tenants</h2>
      <dl class="facts">
        <div>
          <dt>Model cost since 00:00 UTC</dt>
          <dd>{used ? number(used.summary_cost) : "unknown"}</dd>
        </div>
        <div>
          <dt>Model tokens since 00:00 UTC</dt>
          <dd>{used ? number(used.summary_tokens) : "unknown"}</dd>
        </div>
      </dl>
      {used?.tenants.length ? (
        <Table label="Tenants whose summaries use most today" heads={["Tenant", "Tokens today", "Cost today"]} numbers={["Tokens today", "Cost today"]}>
          {used.tenants.map((one) => (
            <tr key={one.tenant}>
              <th scope="row">{one.tenant}</th>
              <td class="number">{number(one.summary_tokens)}</td>
              <td class="number">{number(one.summary_cost)}</td>
            </tr>
          ))}
        </Table>
      ) : null}
    </section>
  );
}

/** What gateway and workers report now. */
function Reported(): JSX.Element {
  const [, draw] = useReducer<number, void>((n) => n + 1, 0);
  useEffect(() => watch.subscribe(() => draw()), []);
  const { gateway, workers, busiest, error } = watch.watched;
  return (
    <>
      <Notice error={error} />
      <Summaries workers={workers} />
      <div class="beside-wide">
        <Busiest tenants={busiest.slice(0, 10)} />
        <Quotas reported={workers} />
      </div>
      <Partitions gateway={gateway} workers={workers} />
    </>
  );
}

/** The tenant's own: its quotas and what it has used of them, and who waits. */
function Own({ me }: { me: Me }): JSX.Element {
  const fresh = useLoaded<Me>((signal) => get("v1/me", signal), me.tenant, 10_000).value ?? me;
  const waiting = useLoaded<{ suspensions: Suspension[]; next_before: string | null }>(
    (signal) => get(v1(["suspensions"], { limit: 200 }), signal),
    me.tenant,
    10_000,
  );
  const used = fresh.used_today;
  const others = Object.entries(fresh.quota).filter(([name, value]) => value && OTHER_LIMITS.includes(name));
  return (
    <section aria-labelledby="own">
      <h2 id="own">Tenant {me.tenant}</h2>
      <dl class="facts">
        <div>
          <dt>Waiting for a person</dt>
          <dd>
            <a href="#/approvals">{waiting.value ? `${waiting.value.suspensions.length}${waiting.value.next_before ? " or more" : ""}` : "…"}</a>
          </dd>
        </div>
        <div>
          <dt>Model tokens of summaries today</dt>
          <dd>{used ? share(used.summary_tokens, fresh.quota["summary_tokens_per_day"]) : "unknown"}</dd>
        </div>
        <div>
          <dt>Model cost of summaries today</dt>
          <dd>{used ? share(used.summary_cost, fresh.quota["summary_cost_per_day"]) : "unknown"}</dd>
        </div>
        <div>
          <dt>Other limits</dt>
          <dd>{others.length ? others.map(([name, value]) => `${words(name)} ${number(value ?? 0)}`).join(", ") : "none"}</dd>
        </div>
      </dl>
      <Table label="Your quotas, and what was used in the last minute" heads={["Quota", "Limit", "Used in the last minute"]} numbers={["Limit", "Used in the last minute"]}>
        {RATES.map((name) => {
          const [limit, now] = [fresh.quota[name], fresh.used_last_minute?.[name]];
          return (
            <tr key={name}>
              <th scope="row">{words(name)}</th>
              <td class="number">{limit ? number(limit) : "no limit"}</td>
              <td class="number">{now === undefined ? "unknown" : share(now, limit)}</td>
            </tr>
          );
        })}
      </Table>
    </section>
  );
}

const RATES = ["requests_per_second", "events_per_second", "tokens_per_minute", "rollbacks_per_minute"];
const OTHER_LIMITS = ["concurrent_requests", "streams", "body_bytes"];

function share(value: number, limit: number | null | undefined): string {
  return limit ? `${number(value)} of ${number(limit)} (${Math.round((100 * value) / limit)} %)` : number(value);
}

const LEVELS = ["Events behind", "Seconds behind", "Due for a summary"];

function Partitions({ gateway, workers }: { gateway: Sample[]; workers: Sample[] }): JSX.Element {
  const at = (samples: Sample[], name: string, partition: string): number => sum(samples, name, { partition });
  const partitions = by(gateway, "threadfold_partition_behind", "partition").map(([name]) => name);
  const processes = new Set(workers.map((one) => one.labels["worker"]).filter(Boolean)).size;
  const seen = new Set(by(workers, "threadfold_partition_lag", "partition").map(([name]) => name));
  const reported = (name: string, partition: string): string => (seen.has(partition) ? number(at(workers, name, partition)) : "unknown");
  return (
    <section aria-labelledby="partitions">
      <h2 id="partitions">Partitions</h2>
      <p>
        {processes ? number(processes) : "No"} {processes > 1 ? "workers report" : "worker reports"}. Redis uses{" "}
        {number(sum(gateway, "threadfold_redis_used_bytes") / 1048576)} MiB
        {sum(gateway, "threadfold_redis_refuses_writes") ? " and takes no writes" : ""}.
      </p>
      <Table label="Partitions" heads={["Partition", ...LEVELS, "State"]} numbers={LEVELS}>
        {partitions
          .sort((a, b) => Number(a) - Number(b))
          .map((partition) => (
            <tr key={partition}>
              <th scope="row" class="short">
                {partition}
              </th>
              <td class="number">{number(at(gateway, "threadfold_partition_behind", partition))}</td>
              <td class="number">{reported("threadfold_partition_seconds_behind", partition)}</td>
              <td class="number">{reported("threadfold_conversations_due", partition)}</td>
              <td>
                {at(gateway, "threadfold_partition_halted", partition)
                  ? "halted"
                  : at(workers, "threadfold_partition_healing", partition)
                    ? "healing"
                    : seen.has(partition)
                      ? "folding"
                      : "no worker reports it"}
              </td>
            </tr>
          ))}
      </Table>
    </section>
  );
}

/** The tenants that append most, over all gateways. */
function Busiest({ tenants }: { tenants: [string, number][] }): JSX.Element {
  return (
    <section aria-labelledby="busiest">
      <h2 id="busiest">Tenants that append most</h2>
      {tenants.length ? (
        <Table label="Tenants that append most" heads={["Tenant", "Events / s"]} numbers={["Events / s"]}>
          {tenants.map(([tenant, events]) => (
            <tr key={tenant}>
              <th scope="row">{tenant}</th>
              <td class="number">{number(events)}</td>
            </tr>
          ))}
        </Table>
      ) : (
        <p>No tenant appended through a gateway in the last half minute.</p>
      )}
    </section>
  );
}

/** The quotas that tenants use most, over all gateways. */
function Quotas({ reported }: { reported: Sample[] }): JSX.Element {
  const used = new Map<string, number>();
  for (const { name, labels, value } of reported) {
    const key = `${labels["tenant"]}|${labels["quota"]}`;
    if (name === "threadfold_quota_used_ratio") used.set(key, (used.get(key) ?? 0) + value);
  }
  const most = [...used].sort((a, b) => b[1] - a[1]).slice(0, 10);
  return (
    <section aria-labelledby="used">
      <h2 id="used">Quotas used</h2>
      {most.length ? (
        <Table label="Quotas used in the last 10 s" heads={["Tenant", "Quota", "Used in the last 10 s"]} numbers={["Used in the last 10 s"]}>
          {most.map(([key, value]) => {
            const [tenant = "", quota = ""] = key.split("|");
            return (
              <tr key={key}>
                <th scope="row">{tenant}</th>
                <td>{words(quota)}</td>
                <td class="number">{Math.round(100 * value)} %</td>
              </tr>
            );
          })}
        </Table>
      ) : (
        <p>No tenant with a limit used any of it in the last 10 s.</p>
      )}
    </section>
  );
}

function Summaries({ workers }: { workers: Sample[] }): JSX.Element {
  const made = workers.filter((one) => one.name === "threadfold_compactions_total");
  const rows = new Map<string, number>();
  for (const { labels, value } of made) {
    const key = [labels["reason"], labels["summarizer"], labels["outcome"]].join("|");
    rows.set(key, (rows.get(key) ?? 0) + value);
  }
  const open = workers.filter((one) => one.name === "threadfold_model_breaker_open" && one.value);
  return (
    <section aria-labelledby="summaries">
      <h2 id="summaries">Summaries</h2>
      <p>
        {number(sum(workers, "threadfold_compactions_waiting"))} wait to be made.{" "}
        {rows.size ? "Requests are counted since the workers began." : "None was requested since the workers began."}
      </p>
      {open.map((one) => (
        <Notice key={one.labels["endpoint"]} error={`Circuit open: the endpoint ${one.labels["endpoint"]} failed, and is not called for a while.`} />
      ))}
      {rows.size ? (
        <Table label="Compactions by reason and outcome" heads={["Reason", "Summariser", "Outcome", "Requests"]} numbers={["Requests"]}>
          {[...rows].sort().map(([key, value]) => (
            <tr key={key}>
              {key.split("|").map((part, i) => (
                <td key={i}>{words(part)}</td>
              ))}
              <td class="number">{number(value)}</td>
            </tr>
          ))}
        </Table>
      ) : null}
    </section>
  );
}
