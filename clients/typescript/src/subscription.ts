/**
 * Subscriptions that outlive their connections: each resumes after the last id, skips nothing and
 * gives nothing twice.
 */

import { pause, type Caller } from "./caller.js";
import { ClientClosed, ClientError, Fault, isPassing } from "./errors.js";
import type { Call, Query } from "./http.js";
import type { PartialText, StreamState } from "./models.js";
import type { ServerSent } from "./sse.js";

/** Events back within which a repeat is noticed. */
const REMEMBERED = 4096;
/**
 * Messages in progress whose length is remembered; of one more, a new connection may give the
 * beginning again.
 */
const MAX_TURNS = 256;
/** Milliseconds after which a connection is steady: its failure counts as the first one. */
const STEADY = 5000;

/** An event of any stream. */
export interface AnyEvent {
  event: string;
  id: string | null;
  data: unknown;
}

/**
 * What makes a stream: where it is, the query with which it begins, and the name of what an event
 * is about: the second of two of a kind that come after each other of it is a repeat. One without
 * a name is always new.
 */
export interface Source {
  path: string;
  query: Query;
  nameOf(event: AnyEvent): string | null;
}

/**
 * One subscription; iterate it with `for await`. `lastId` is where another may resume.
 *
 * It connects again by itself when a connection ends, breaks or is refused for a while (429, 5xx),
 * until it is closed or its loop is left. Iterating throws a ClientError if the subscription is
 * refused for good.
 */
export class Subscription<E extends AnyEvent> implements AsyncIterableIterator<E> {
  lastId: string | null;
  readonly #caller: Caller;
  readonly #source: Source;
  readonly #stop = new AbortController();
  readonly #seen = new Map<string, string>();
  readonly #lengths = new Map<string, number>();
  readonly #events: AsyncGenerator<E, void, undefined>;

  constructor(caller: Caller, source: Source, after: string | undefined) {
    this.#caller = caller;
    this.#source = source;
    this.lastId = after ?? null;
    this.#events = this.#run();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<E, void>> {
    return this.#events.next();
  }

  return(): Promise<IteratorResult<E, void>> {
    this.close();
    return this.#events.return();
  }

  /** End it and its connection; a wait for the next event ends without one. */
  close(): void {
    this.#stop.abort();
  }

  async *#run(): AsyncGenerator<E, void, undefined> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted;) {
      const begun = Date.now();
      let failure: ClientError | null = null;
      try {
        for await (const sent of this.#caller.http.stream(this.#call())) {
          const event = this.#event(sent);
          if (event) yield event;
        }
      } catch (error) {
        if (signal.aborted || error instanceof ClientClosed) return;
        if (!(isPassing(error) || (error instanceof ClientError && error.status === 500)))
          throw error;
        failure = error;
      }
      failures = Date.now() - begun > STEADY ? 1 : failures + 1;
      await pause(this.#caller.delay(failures, failure?.retryAfter), signal).catch(() => undefined);
    }
  }

  #call(): Call {
    const { path, query } = this.#source;
    const place = this.lastId === null ? { query } : { headers: { "Last-Event-ID": this.lastId } };
    return { path, signal: this.#stop.signal, ...place };
  }

  /** The event to give for a sent one, null for a repeat; `lastId` moves on with every id. */
  #event(sent: ServerSent): E | null {
    if (sent.id !== null) this.lastId = sent.id || null;
    if (!sent.event) return null;
    let data: unknown;
    try {
      data = JSON.parse(sent.data);
    } catch {
      throw new Fault(`the stream's event '${sent.event}' is not JSON`);
    }
    // Joined without a place: a break before the first event resumes at the state's.
    if (sent.event === "state") this.lastId ??= (data as StreamState).position;
    if (sent.event === "partial") {
      const part = this.#newPart(data as PartialText);
      return part && ({ ...sent, data: part } as unknown as E);
    }
    const event = { ...sent, data } as unknown as E;
    const name = this.#source.nameOf(event);
    if (name !== null) {
      if (this.#seen.get(name) === sent.event) return null;
      this.#seen.delete(name); // the order of the map is that of use
      this.#seen.set(name, sent.event);
      if (this.#seen.size > REMEMBERED) dropFirst(this.#seen);
    }
    return event;
  }

  /**
   * The part of a delta that is new, null where nothing is: a new connection gets a message in
   * progress from its beginning. A delta that begins beyond what is known comes as it is.
   */
  #newPart(part: PartialText): PartialText | null {
    const { turn_id: turn, offset, delta = "" } = part;
    const known = this.#lengths.get(turn);
    this.#lengths.delete(turn); // the order of the map is that of use
    if (part.ended) return part;
    const characters = Array.from(delta); // offsets count code points
    const end = offset + characters.length;
    this.#lengths.set(turn, Math.max(known ?? 0, end));
    if (this.#lengths.size > MAX_TURNS) dropFirst(this.#lengths);
    if (known === undefined || offset >= known) return part;
    return end > known
      ? { ...part, offset: known, delta: characters.slice(known - offset).join("") }
      : null;
  }
}

/** An event of a conversation is known by its position. */
export function positionOf({ event, id }: AnyEvent): string | null {
  return id === null ? null : `${event} ${id}`;
}

/**
 * Summaries are delivered at least once: a summary, voiding or erasure is known by its own id. After
 * its voiding a summary may come again: a rollback of the rollback put it in force.
 */
export function summaryOf({ id, data }: AnyEvent): string | null {
  const { summary_id: summary, id: own } = data as { summary_id?: string; id?: string };
  return summary ?? own ?? id;
}

function dropFirst(all: Map<string, unknown>): void {
  for (const key of all.keys()) return void all.delete(key);
}
