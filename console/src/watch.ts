// What gateway and workers report now, for the tables of the overview. The plots are kept by the gateways (hour.tsx).

import { type Sample, by, growth, parse } from "./prometheus";
import { ask } from "./api";

export interface Watched {
  gateway: Sample[];
  workers: Sample[];
  /** Events that tenants append each second, the most first. */
  busiest: [string, number][];
  error: string;
}

const EVERY = 5000;
/** Rates are taken over so many looks: workers report every 10 s. */
const OVER = 5;

class Watch {
  watched: Watched = { gateway: [], workers: [], busiest: [], error: "" };
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private looks: { time: number; gateway: Sample[]; workers: Sample[] }[] = [];

  /** Begin, and go on until `stop`, while another view is open, too: the rates are of some looks. */
  start(): void {
    if (this.timer === undefined) void this.look();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.watched = { gateway: [], workers: [], busiest: [], error: "" };
    this.looks = [];
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private async look(): Promise<void> {
    const timer = (this.timer = setTimeout(() => void this.look(), EVERY));
    try {
      const pages = ["metrics", "v1/workers/metrics"];
      const [gateway = [], workers = []] = await Promise.all(pages.map(async (path) => parse(await (await ask("GET", path)).text())));
      if (timer !== this.timer) return;
      this.add(gateway, workers);
    } catch (error) {
      this.watched = { ...this.watched, error: error instanceof Error ? error.message : String(error) };
    }
    for (const listener of this.listeners) listener();
  }

  private add(gateway: Sample[], workers: Sample[]): void {
    const now = Date.now();
    const then = this.looks[0] ?? { time: now, gateway, workers };
    this.looks = [...this.looks, { time: now, gateway, workers }].slice(-OVER);
    const passed = (now - then.time) / 1000;
    const rate = (grown: number): number => (passed ? grown / passed : 0);
    const tenants = by(workers, "threadfold_tenant_events_total", "tenant").map(([tenant]) => tenant);
    const appended = (tenant: string): number => rate(growth(then.workers, workers, "threadfold_tenant_events_total", { tenant }));
    const rates = tenants.map((tenant): [string, number] => [tenant, appended(tenant)]);
    const busiest = rates.filter(([, events]) => events > 0).sort((a, b) => b[1] - a[1]);
    this.watched = { gateway, workers, busiest, error: "" };
  }
}

export const watch = new Watch();
