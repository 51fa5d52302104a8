// Plots of the last hour. The gateways keep it, so it is there when the page is opened.

import type { JSX } from "preact";
import type { components } from "../../clients/typescript/types/openapi.js";
import { clock, number } from "./parts";

export type Hour = components["schemas"]["Plots"];

export interface Shown {
  name: string;
  title: string;
  /** The caption has the hour's sum, not the last value. */
  adds?: boolean;
}

export const OF_PLATFORM: Shown[] = [
  { name: "events", title: "Events folded / s" },
  { name: "requests", title: "Requests / s" },
  { name: "behind", title: "Events behind" },
  { name: "seconds_behind", title: "Seconds behind, worst partition" },
  { name: "due", title: "Conversations due for a summary" },
  { name: "dead_letters", title: "Dead letters of this hour", adds: true },
];

export const OF_TENANT: Shown[] = [
  { name: "requests_per_second", title: "Requests / s" },
  { name: "events_per_second", title: "Events appended / s" },
  { name: "tokens_per_minute", title: "Tokens appended / min" },
  { name: "rollbacks_per_minute", title: "Rollbacks of this hour", adds: true },
];

export function Plots({ hour, shown }: { hour: Hour; shown: Shown[] }): JSX.Element {
  return (
    <div class="plots">
      {shown.map((one) => (
        <Plot key={one.name} {...one} hour={hour} />
      ))}
    </div>
  );
}

function Plot({ name, title, adds, hour }: Shown & { hour: Hour }): JSX.Element {
  const values = hour.figures[name] ?? [];
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const last = values.at(-1) ?? null;
  const now = adds ? known.reduce((sum, value) => sum + value, 0) : last;
  const text = now === null ? "unknown" : number(now);
  const label = known.length ? `${title}: ${text} ${adds ? "in all" : "now"}, ${number(Math.max(...known))} at most` : `${title}: unknown`;
  return (
    <figure class="plot">
      <figcaption>
        <span>{title}</span> <strong>{text}</strong>
      </figcaption>
      <svg viewBox="0 0 300 64" preserveAspectRatio="none" role="img" aria-label={label}>
        <path d={line(values, most)} />
      </svg>
      <small class="ends">
        <time dateTime={hour.begins}>{clock(at(hour.begins, 0), false)}</time>
        <span>{known.length ? `at most ${number(Math.max(...known))}` : ""}</span>
        <time>{clock(at(hour.begins, values.length * hour.every), false)}</time>
      </small>
    </figure>
  );
}

/** A path through the values; it breaks where one is unknown. */
function line(values: (number | null)[], most: number): string {
  const step = 300 / Math.max(1, values.length - 1);
  return values
    .map((value, i) => {
      if (value === null) return "";
      const begins = i === 0 || values[i - 1] === null;
      const at = `${(i * step).toFixed(1)} ${(60 - (value / most) * 56).toFixed(1)}`;
      // One value between unknown ones is a dot.
      return begins ? `M${at}h.5` : `L${at}`;
    })
    .join("");
}

function at(begins: string, seconds: number): Date {
  return new Date(Date.parse(begins) + seconds * 1000);
}
