// What the platform does now, and did in the last hour.

import type { JSX } from "preact";
import { useEffect, useReducer } from "preact/hooks";
import { type Me, get, v1 } from "./api";
import { useLoaded } from "./load";
import { Notice, Table, Title, number } from "./parts";
import { type Sample, by, sum } from "./prometheus";
import type { Suspension } from "./types";
import { PLOTS, type Point, watch } from "./watch";

export function Overview({ me, admin }: { me: Me; admin: boolean }): JSX.Element {
  const [, draw] = useReducer<number, void>((n) => n + 1, 0);
  useEffect(() => watch.subscribe(() => draw()), []);
  const { points, gateway, workers, busiest, error } = watch.watched;
  const shown = PLOTS.filter(([name]) => points.at(-1)?.values[name] !== undefined);
  return (
    <>
      <Title more={<small>since this page was opened, an hour at most</small>}>Overview</Title>
      <Notice error={error} />
      <div class="plots">
        {shown.map(([name, title]) => (
          <Plot key={name} title={title} name={name} points={points} />
        ))}
      </div>
      <Own me={me} />
      {admin ? <Partitions gateway={gateway} workers={workers} /> : null}
      {admin ? <Busiest tenants={busiest.slice(0, 10)} /> : null}
      {admin ? <Quotas reported={workers} /> : null}
      {admin ? <Summaries workers={workers} /> : null}
    </>
  );
}

function Plot({ title, name, points }: { title: string; name: string; points: Point[] }): JSX.Element {
  const values = points.map((point) => point.values[name] ?? 0);
  const most = Math.max(...values, 1e-9);
  const [first, last] = [points[0]?.time ?? 0, points.at(-1)?.time ?? 1];
  const path = points
    .map((point, i) => {
      const x = last === first ? 300 : ((point.time - first) / (last - first)) * 300;
      return `${i ? "L" : "M"}${x.toFixed(1)} ${(60 - ((values[i] ?? 0) / most) * 56).toFixed(1)}`;
    })
    .join("");
  const now = number(values.at(-1) ?? 0);
  return (
    <figure class="plot">
      <figcaption>
        <span>{title}</span> <strong>{now}</strong>
      </figcaption>
      <svg viewBox="0 0 300 64" preserveAspectRatio="none" role="img" aria-label={`${title}: ${now} now, ${number(most)} at most`}>
        <path d={path} />
      </svg>
    </figure>
  );
}

/** The tenant's own: its quotas and what it has used of them, and who waits. */
function Own({ me }: { me: Me }): JSX.Element {
  const fresh = useLoaded<Me>((signal) => get("v1/me", signal), me.tenant, 10_000).value ?? me;
  const waiting = useLoaded<{ suspensions: Suspension[] }>(
    (signal) => get(v1(["suspensions"], { limit: 200 }), signal),
    me.tenant,
    10_000,
  );
  const used = fresh.used_today;
  const limits = Object.entries(fresh.quota).filter(([name, value]) => value && !name.endsWith("_burst") && name !== "summary_weight");
  return (
    <section aria-labelledby="own">
      <h2 id="own">Tenant {me.tenant}</h2>
      <dl class="facts">
        <div>
          <dt>Waiting for a person</dt>
          <dd>
            <a href="#/approvals">{waiting.value ? waiting.value.suspensions.length : "…"}</a>
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
          <dt>Quotas</dt>
          <dd>{limits.length ? limits.map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value ?? 0)}`).join(", ") : "no limit"}</dd>
        </div>
      </dl>
    </section>
  );
}

function share(value: number, limit: number | null | undefined): string {
  return limit ? `${number(value)} of ${number(limit)} (${Math.round((100 * value) / limit)} %)` : number(value);
}

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
      <Table label="Partitions" heads={["Partition", "Events behind", "Seconds behind", "Due for a summary", "State"]}>
        {partitions
          .sort((a, b) => Number(a) - Number(b))
          .map((partition) => (
            <tr key={partition}>
              <th scope="row">{partition}</th>
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
        <Table label="Tenants that append most" heads={["Tenant", "Events / s"]}>
          {tenants.map(([tenant, events]) => (
            <tr key={tenant}>
              <th scope="row">{tenant}</th>
              <td class="number">{number(events)}</td>
            </tr>
          ))}
        </Table>
      ) : (
        <p>Nobody has appended in the last half minute.</p>
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
        <Table label="Quotas used in the last 10 s" heads={["Tenant", "Quota", "Used in the last 10 s"]}>
          {most.map(([key, value]) => {
            const [tenant = "", quota = ""] = key.split("|");
            return (
              <tr key={key}>
                <th scope="row">{tenant}</th>
                <td>{quota.replaceAll("_", " ")}</td>
                <td class="number">{Math.round(100 * value)} %</td>
              </tr>
            );
          })}
        </Table>
      ) : (
        <p>No tenant has used any of a quota in the last 10 s.</p>
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
  const tenants = by(workers, "threadfold_summary_tokens_total", "tenant").slice(0, 10);
  const open = workers.filter((one) => one.name === "threadfold_model_breaker_open" && one.value);
  return (
    <section aria-labelledby="summaries">
      <h2 id="summaries">Summaries</h2>
      <p>{number(sum(workers, "threadfold_compactions_waiting"))} wait to be made. Counted since the workers began.</p>
      {open.map((one) => (
        <Notice key={one.labels["endpoint"]} error={`Circuit open: the endpoint ${one.labels["endpoint"]} is left alone after failures.`} />
      ))}
      <Table label="Compactions by reason and outcome" heads={["Reason", "Summariser", "Outcome", "Requests"]}>
        {[...rows].sort().map(([key, value]) => (
          <tr key={key}>
            {key.split("|").map((part, i) => (
              <td key={i}>{part}</td>
            ))}
            <td class="number">{number(value)}</td>
          </tr>
        ))}
      </Table>
      {tenants.length ? (
        <>
          <h2>Tenants whose summaries use most</h2>
          <Table label="Tenants whose summaries use most" heads={["Tenant", "Model tokens", "Cost"]}>
            {tenants.map(([tenant, tokens]) => (
              <tr key={tenant}>
                <th scope="row">{tenant}</th>
                <td class="number">{number(tokens)}</td>
                <td class="number">{number(sum(workers, "threadfold_summary_cost_total", { tenant }))}</td>
              </tr>
            ))}
          </Table>
        </>
      ) : null}
    </section>
  );
}
