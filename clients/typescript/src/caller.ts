/**
 * Calls that are repeated while that is safe, and the paths, queries and headers they are made of.
 */

import { ClientError, Invalid, isPassing } from "./errors.js";
import type { Call, Http, Query } from "./http.js";

/**
 * How often a call is repeated: at most `attempts` in all, none begun later than `total` seconds
 * after the first.
 *
 * Between two, a random time up to `base` × 2ⁿ seconds, `most` at most ("full jitter", AWS
 * Architecture Blog, 2015), and never less than what the service asked for with `Retry-After`.
 */
export interface Retries {
  attempts: number;
  total: number;
  base: number;
  most: number;
}

const RETRIES: Retries = { attempts: 6, total: 30, base: 0.1, most: 5 };

/** Sends calls and repeats those that fail for a while. */
export class Caller {
  readonly http: Http;
  readonly #retries: Retries;

  constructor(http: Http, retries: Partial<Retries> | number = {}) {
    this.http = http;
    this.#retries = {
      ...RETRIES,
      ...(typeof retries === "number"
        ? { attempts: retries }
        : known(retries, "attempts total base most")),
    };
  }

  /** The answer's JSON object; throws a ClientError. */
  async #call<T>(call: Call): Promise<T> {
    const begun = Date.now();
    let lost = false;
    for (let failures = 1; ; failures += 1) {
      try {
        return (await this.http.request(call)) as T;
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        // What an earlier attempt did, this refusal did not undo.
        if (call.method !== undefined) error.unknown ||= lost;
        lost ||= error.unknown;
        const delay = this.delay(failures, error.retryAfter);
        const late = Date.now() - begun + delay > this.#retries.total * 1000;
        // Of the 4xx only 429 is repeated.
        const harmless = isPassing(error) && !(call.repeat && error.unknown);
        if (late || failures >= this.#retries.attempts || !harmless) throw error;
        await pause(delay, call.signal);
      }
    }
  }

  /** Read something. */
  get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
    return this.#call({ path, query, signal });
  }

  /** Send something; `more` are the call's other parts. */
  post<T>(path: string, body?: unknown, more?: Partial<Call>): Promise<T> {
    return this.#call({ method: "POST", path, body, ...more });
  }

  /** Delete something. */
  delete<T>(path: string, query?: Query): Promise<T> {
    return this.#call({ method: "DELETE", path, query });
  }

  /** Milliseconds to wait after the n-th failure in a row (from 1). */
  delay(failures: number, asked?: number | null): number {
    const { base, most } = this.#retries;
    const jitter = Math.random() * Math.min(most, base * 2 ** failures);
    return 1000 * (asked == null ? jitter : asked + Math.min(jitter, 0.25 * asked + base));
  }

  /**
   * The items of all pages of a list: a page is an object with one list, and `next_NAME` for the
   * parameter `NAME`.
   */
  async *pages<T>(path: string, filters: Query): AsyncGenerator<T, void, undefined> {
    for (let query: Query | null = filters; query;) {
      const page: Record<string, T[] | string | null> = await this.get(path, query);
      let next: Query | null = null;
      for (const [name, value] of Object.entries(page)) {
        if (Array.isArray(value)) yield* value;
        else if (name.startsWith("next_") && value) next = { ...query, [name.slice(5)]: value };
      }
      query = next;
    }
  }
}

/** Wait; a signal ends it early, and throws its reason. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/**
 * The path of a conversation; throws Invalid if it is not a name, or one that a URL cannot carry.
 */
export function conversationPath(conversation: string, below = ""): string {
  check(
    isText(conversation) && /^(?!\.\.?$)[\w.:-]{1,128}$/.test(conversation),
    `conversation '${conversation}' is not a name: 1 to 128 of A-Z a-z 0-9 . _ : -, not . or ..`,
  );
  return `/conversations/${conversation}${below}`;
}

/** The path of a user; throws Invalid if the user is empty, or one that a URL cannot carry. */
export function userPath(user: string): string {
  check(isText(user) && !/^\.{0,2}$/.test(user), `user '${user}' fits in no URL`);
  return `/users/${encodeURIComponent(user)}`;
}

/** Whether a value is a text: without types, a forgotten id would be the name "undefined". */
function isText(value: unknown): boolean {
  return typeof value === "string";
}

function check(fits: boolean, error: string): void {
  if (!fits) throw new Invalid(error, { status: 422, type: "invalid-name" });
}

/**
 * The options of a call; throws Invalid if one of them is not among `names` (with spaces between):
 * without types, a misspelt one would do nothing.
 */
export function known<O extends object>(options: O, names: string): O {
  const allowed = names.split(" ");
  const other = Object.keys(Object(options)).find((name) => !allowed.includes(name));
  if (other !== undefined)
    throw new Invalid(`option '${other}' is unknown: use ${allowed.join(", ")}`);
  return options;
}

/** The conditions of an append. */
export interface Conditions {
  /** A position; Conflict if anything was appended after it. */
  expect?: string | undefined;
  /** Conflict if the conversation has an event already. */
  onlyIfNew?: boolean | undefined;
  /** A turn's fencing token; refused when that turn is over. */
  fence?: number | undefined;
}

/**
 * The headers of an append's conditions; throws Invalid if both `expect` and `onlyIfNew` are given.
 */
export function conditions({ expect, onlyIfNew, fence }: Conditions): Record<string, string> {
  if (expect !== undefined && onlyIfNew) {
    throw new Invalid("give expect or onlyIfNew, not both");
  }
  return {
    ...fencing(fence),
    ...(expect !== undefined && { "If-Match": `"${expect}"` }),
    ...(onlyIfNew && { "If-None-Match": "*" }),
  };
}

/** The header of a turn's fencing token, if any. */
export function fencing(fence: number | undefined): Record<string, string> {
  return fence === undefined ? {} : { "Fencing-Token": `${fence}` };
}

/**
 * What `work` returns, once `end` has run after it, however it ended. `end`'s error is thrown only
 * where `work` had none.
 */
export async function closing<T>(
  work: () => T | Promise<T>,
  end: () => Promise<unknown>,
): Promise<T> {
  let done = false;
  try {
    const result = await work();
    done = true;
    return result;
  } finally {
    await end().catch((error: unknown) => {
      if (done) throw error;
    });
  }
}
