// What the page has seen of the platform in the last hour. It is kept in the page, and gone with it.

import { type Sample, by, growth, parse, sum } from "./prometheus";
import { ask } from "./api";

export interface Point {
  time: number;
  values: Record<string, number>;
}

export interface Watched {
  points: Point[];
  gateway: Sample[];
  workers: Sample[];
  /** Events that tenants append each second, the most first. */
  busiest: [string, number][];
  error: string;
}

const EVERY = 5000;
/** Rates are taken over so many looks: workers report every 10 s. */
const OVER = 5;
const HOUR = 3600_000;

/** The series of the plots: a rate for each second, or a level. */
export const PLOTS: [string, string][] = [
  ["events", "Events folded / s"],
  ["requests", "Requests / s at this gateway"],
  ["behind", "Events behind"],
  ["seconds", "Seconds behind, worst partition"],
  ["due", "Conversations due for a summary"],
  ["dead", "Dead letters"],
];

class Watch {
  watched: Watched = { points: [], gateway: [], workers: [], busiest: [], error: "" };
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private admin = false;
  private looks: { time: number; gateway: Sample[]; workers: Sample[] }[] = [];

  /** Begin, and go on until `stop`: the plots go on while another view is open. */
  start(admin: boolean): void {
    this.admin = admin;
    if (this.timer === undefined) void this.look();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.watched = { points: [], gateway: [], workers: [], busiest: [], error: "" };
    this.looks = [];
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private async look(): Promise<void> {
    const timer = (this.timer = setTimeout(() => void this.look(), EVERY));
    try {
      const pages = ["metrics", ...(this.admin ? ["v1/workers/metrics"] : [])];
      const [gateway = [], workers = []] = await Promise.all(pages.map(async (path) => parse(await (await ask("GET", path)).text())));
      if (timer !== this.timer) return;
      this.add(gateway, workers);
    } catch (error) {
      this.watched = { ...this.watched, error: error instanceof Error ? error.message : String(error) };
    }
    for (const listener of this.listeners) listener();
  }

  private add(gateway: Sample[], workers: Sample[]): void {
    const { points } = this.watched;
    const now = Date.now();
    const then = this.looks[0] ?? { time: now, gateway, workers };
    this.looks = [...this.looks, { time: now, gateway, workers }].slice(-OVER);
    const passed = (now - then.time) / 1000;
    const rate = (grown: number): number => (passed ? grown / passed : 0);
    const seconds = workers.filter((one) => one.name === "threadfold_partition_seconds_behind").map((one) => one.value);
    const values: Record<string, number> = {
      requests: rate(growth(then.gateway, gateway, "threadfold_http_requests_total")),
      behind: sum(gateway, "threadfold_partition_behind"),
    };
    if (this.admin) {
      values["events"] = rate(growth(then.workers, workers, "threadfold_events_total", { outcome: "applied" }));
      values["seconds"] = Math.max(0, ...seconds);
      values["due"] = sum(workers, "threadfold_conversations_due");
      values["dead"] = sum(workers, "threadfold_dead_letters_total");
    }
    const tenants = by(workers, "threadfold_tenant_events_total", "tenant").map(([tenant]) => tenant);
    const appended = (tenant: string): number => rate(growth(then.workers, workers, "threadfold_tenant_events_total", { tenant }));
    const rates = tenants.map((tenant): [string, number] => [tenant, appended(tenant)]);
    const busiest = rates.filter(([, events]) => events > 0).sort((a, b) => b[1] - a[1]);
    const kept = points.filter((point) => point.time > now - HOUR);
    this.watched = { points: [...kept, { time: now, values }], gateway, workers, busiest, error: "" };
  }
}

export const watch = new Watch();
