/** A turn on a conversation: begun with a lease, ended at the end of a run. */

import { closing, conversationPath, fencing, known, type Caller } from "./caller.js";
import { ClientError, Conflict, Invalid } from "./errors.js";
import { newId } from "./ids.js";
import type { TurnInfo, TurnPolicy, Turns, TurnStatus } from "./models.js";

/** Seconds that one request waits for a queued turn to begin. */
const MOST_WAIT = 10;

/** How a turn is asked for. */
export interface TurnOptions {
  /**
   * What happens while another turn holds the conversation: `reject` (the default), `queue`, or
   * `interrupt` it.
   */
  policy?: TurnPolicy;
  /** Seconds of its lease; 60 by default. */
  seconds?: number;
  model?: string;
  turnId?: string;
  /** Seconds to wait in the queue; 60 by default. */
  wait?: number;
  /** Ends the wait when it aborts; the turn leaves the queue, and the signal's reason is thrown. */
  signal?: AbortSignal | undefined;
}

/**
 * A turn; `info` and `fencingToken` are there once it began. Give the token to appends and partial
 * text.
 *
 * The lease ends after its seconds: `renew` it for a longer run. With the policy `queue`, beginning
 * waits until the turns before it are over, at most `wait` seconds.
 */
export class Turn {
  readonly turnId: string;
  info: TurnInfo | null = null;
  readonly #caller: Caller;
  readonly #path: string;
  readonly #body: {
    turn_id: string;
    policy: TurnPolicy;
    seconds: number;
    model: string | undefined;
  };
  readonly #wait: number;
  readonly #signal: AbortSignal | undefined;
  /** Requests with the same key begin the turn once, and not after it was ended with it. */
  #key: Record<string, string> = {};

  constructor(caller: Caller, conversation: string, options: TurnOptions) {
    const {
      turnId = newId(),
      policy = "reject",
      seconds = 60,
      wait = 60,
      model,
      signal,
    } = known(options, "policy seconds model turnId wait signal");
    this.#caller = caller;
    this.#path = conversationPath(conversation, "/turns");
    this.turnId = turnId;
    this.#body = { turn_id: turnId, policy, seconds, model };
    this.#wait = wait;
    this.#signal = signal;
  }

  /** The proof that this turn holds the conversation; throws Invalid before it began. */
  get fencingToken(): number {
    const token = this.info?.fencing_token;
    if (token == null) throw new Invalid("the turn has not begun");
    return token;
  }

  /** Begin it, run `work`, and end it, also where `work` throws; returns what `work` returns. */
  async run<T>(work: (turn: this) => T | Promise<T>): Promise<T> {
    await this.begin();
    const end = (): Promise<unknown> =>
      this.end().catch((error: unknown) => {
        // A Conflict: it was interrupted, or its lease ended; later appends were refused. Else it
        // ends with its lease.
        if (!(error instanceof Conflict)) throw error;
      });
    return closing(() => work(this), end);
  }

  /**
   * Begin it; wait if it is queued. Throws Conflict if another turn holds the conversation, for
   * longer than `wait`. If that fails or its signal aborts, the turn leaves the queue, also if the
   * gateway gets the request to begin it later.
   */
  async begin(): Promise<this> {
    this.info = null;
    this.#key = { "Idempotency-Key": newId() };
    try {
      await this.#waitToBegin();
    } catch (error) {
      // The reason of a signal may be any error: it says nothing of the request.
      const refused = error instanceof ClientError && !error.unknown && !this.#signal?.aborted;
      // Where it cannot leave, its place or its lease ends by itself: the first error says more.
      if (this.info || !refused) await this.end().catch(() => undefined);
      throw error;
    }
    return this;
  }

  async #waitToBegin(): Promise<void> {
    const deadline = Date.now() + this.#wait * 1000;
    for (;;) {
      const left = (deadline - Date.now()) / 1000;
      const wait =
        this.#body.policy === "queue" ? Math.max(0.05, Math.min(left, MOST_WAIT)) : undefined;
      this.info = await this.#caller.post<TurnInfo>(
        this.#path,
        { ...this.#body, wait },
        { has: "turn_id", signal: this.#signal, headers: this.#key },
      );
      if (this.info.status !== "queued") return;
      if (Date.now() >= deadline) {
        throw new Conflict(
          `turn ${this.turnId} was queued for ${this.#wait} s: another one holds the conversation`,
          { status: 409 },
        );
      }
    }
  }

  /**
   * Let the lease run on: for `seconds` from now, or as many as it began with; throws Conflict when
   * the turn is over.
   */
  async renew(seconds = this.#body.seconds): Promise<void> {
    this.info = await this.#post("renew", this.fencingToken, { seconds });
  }

  /**
   * Ask how it stands now: `active`, `queued` or `over` (ended, interrupted, or its lease ran out).
   */
  async check(): Promise<TurnStatus> {
    const { live, waiting } = await this.#caller.get<Turns>(this.#path);
    if (live?.turn_id === this.turnId) return "active";
    return waiting.includes(this.turnId) ? "queued" : "over";
  }

  /** End it; calls it left open are dead. */
  async end(): Promise<void> {
    const token = this.info?.fencing_token ?? undefined;
    // Without a token, a request to begin it may be under way, and come after this one.
    await this.#post("end", token, undefined, token === undefined ? this.#key : {});
  }

  #post<T>(
    what: string,
    fence: number | undefined,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<T> {
    return this.#caller.post(`${this.#path}/${encodeURIComponent(this.turnId)}/${what}`, body, {
      headers: { ...fencing(fence), ...headers },
    });
  }
}
