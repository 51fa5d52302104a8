// Small parts that all views use.

import type { ComponentChildren, JSX } from "preact";
import type { Message, Part } from "./types";

export function Notice({ error }: { error: string }): JSX.Element | null {
  return error ? (
    <p class="notice" role="alert">
      {error}
    </p>
  ) : null;
}

interface TableProps {
  label: string;
  heads: string[];
  /** The heads of columns of numbers: they stand at the right, as their cells do. */
  numbers?: string[];
  /** Of many rows: it scrolls, so that what comes after it is in reach. */
  long?: boolean;
  children: ComponentChildren;
}

/** A wide table: it scrolls by itself, also by keyboard. */
export function Table({ label, heads, numbers = [], long = false, children }: TableProps): JSX.Element {
  return (
    <div class={long ? "table long" : "table"} role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head} scope="col" class={numbers.includes(head) ? "number" : undefined}>
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export function number(value: number): string {
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(2) : Math.round(value).toLocaleString("en");
}

/** So many of what a word names. */
export function many(count: number, word: string): string {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

export function when(time: string | null): string {
  // Of Swedish: year, month, day, as nobody reads in another order.
  return time ? new Date(time).toLocaleString("sv") : "";
}

/** The time of a day. */
export function clock(time: Date | null, seconds = true): string {
  const parts: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit" };
  return time ? time.toLocaleTimeString("en-GB", seconds ? { ...parts, second: "2-digit" } : parts) : "";
}

export function Title({ children, more }: { children: ComponentChildren; more?: ComponentChildren }): JSX.Element {
  return (
    <div class="title">
      <h1>{children}</h1>
      {more}
    </div>
  );
}

/** The text of a message. Pictures and files are named, not loaded: this page asks no other host. */
export function textOf(content: Message["content"]): string {
  if (typeof content === "string") return content;
  return (content ?? []).map(partText).join("\n");
}

function partText(part: Part): string {
  if (part.text !== undefined) return part.text;
  const url = (part["image_url"] as { url?: string } | undefined)?.url;
  return `[${part.type}${url ? `: ${url.slice(0, 200)}` : ""}]`;
}

/** A name of the API in words. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export const link = {
  conversation: (name: string, tab = ""): string => `#/conversations/${encodeURIComponent(name)}${tab && `/${tab}`}`,
  tenant: (name: string): string => `#/tenants/${encodeURIComponent(name)}`,
};
