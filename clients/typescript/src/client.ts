/** The client: every call of the contract as a method. */

import {
  Caller,
  conditions,
  conversationPath,
  fencing,
  known,
  userPath,
  type Conditions,
  type Retries,
} from "./caller.js";
import { Invalid } from "./errors.js";
import { connect, type Credential, type Query } from "./http.js";
import { newId, withId } from "./ids.js";
import { MemoryCalls } from "./memories.js";
import type {
  Appended,
  AppendedOfSeveral,
  Context,
  ContextFormat,
  Filters,
  History,
  ListedConversation,
  ListedSuspension,
  LoggedEvent,
  MessageFormat,
  MintedToken,
  NewAnthropicMessage,
  NewEvent,
  NewOpenAIMessage,
  NewToken,
  Receipt,
  Receipts,
  StreamEvent,
  Summary,
  SummaryEvent,
  Turns,
  WorkingMemory,
} from "./models.js";
import { PartialWriter } from "./partial.js";
import { positionOf, Subscription, summaryOf } from "./subscription.js";
import { Turn, type TurnOptions } from "./turn.js";

/** How a client behaves. */
export interface ClientOptions {
  /**
   * Seconds one attempt may take; 20 by default. A call that waits for the window takes up to 10 of
   * them.
   */
  timeout?: number;
  /** How often to repeat; a number is that many attempts in all. */
  retries?: Partial<Retries> | number;
  /** What sends requests, in the place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** What a call takes that can be given up. */
export interface CallOptions {
  /** Ends the call when it aborts; the call then throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** What an append takes beside its events. */
export interface AppendOptions extends Conditions, CallOptions {
  /** `applied` answers once the window holds the events, each with a status. */
  wait?: "applied" | undefined;
  /**
   * Ids of events that have none are derived from it, so that calls of several processes are one.
   */
  idempotencyKey?: string | undefined;
}

type Appending = AppendOptions & { format?: MessageFormat };
/** The options of every append, and of one to a single conversation. */
const ANY = "wait idempotencyKey signal";
const ONE = `${ANY} expect onlyIfNew fence`;

/**
 * A tenant's conversations, or a user's, over HTTP.
 *
 * A call that fails for a while (503, 429, a broken connection, no answer that can be used) is
 * repeated as `retries` says. That is safe: every event has its id before it is first sent. Every method throws a
 * ClientError, by kind of problem. Nothing connects before the first call.
 *
 * `credential` is the tenant's key, a token of an end user, or a function that gets one: it is
 * asked again when a token expired.
 */
export class Client extends MemoryCalls {
  readonly #caller: Caller;

  constructor(url: string, credential: Credential, options: ClientOptions = {}) {
    const { timeout = 20, retries, fetch } = known(options, "timeout retries fetch");
    const caller = new Caller(connect(url, credential, timeout, fetch), retries);
    super(caller);
    this.#caller = caller;
  }

  /** End all calls and streams under way; later calls throw ClientClosed. */
  close(): void {
    this.#caller.http.close();
  }

  /**
   * Append one flat event, or a list of at most 500 in its order; all are checked before any is
   * appended.
   */
  async append(
    conversation: string,
    events: NewEvent | NewEvent[],
    options: AppendOptions = {},
  ): Promise<Appended> {
    return this.#append(conversationPath(conversation, "/events"), events, {}, options, ONE);
  }

  /** Append messages in OpenAI's chat format or Anthropic's; one may become several events. */
  appendMessages(
    conversation: string,
    messages: NewOpenAIMessage | NewOpenAIMessage[],
    options?: AppendOptions & { format?: "openai" },
  ): Promise<Appended>;
  appendMessages(
    conversation: string,
    messages: NewAnthropicMessage | NewAnthropicMessage[],
    options: AppendOptions & { format: "anthropic" },
  ): Promise<Appended>;
  async appendMessages(
    conversation: string,
    messages: object,
    options: Appending = {},
  ): Promise<Appended> {
    const { format } = options;
    const path = conversationPath(conversation, "/messages");
    return this.#append(path, messages, { format }, options, `${ONE} format`);
  }

  /** Append events of several conversations, each with `conversation`; in order within each. */
  appendMany(
    events: (NewEvent & { conversation: string })[],
    options: Pick<AppendOptions, "wait" | "idempotencyKey" | "signal"> = {},
  ): Promise<AppendedOfSeveral> {
    return this.#append("/events", events, {}, options, ANY);
  }

  /**
   * Go back to a position, or to the id of one of the last 1,024 events: the last that stays.
   * Answers once applied.
   */
  rollback(
    conversation: string,
    to: string,
    options: Conditions & CallOptions = {},
  ): Promise<Appended> {
    return this.append(conversation, { type: "rollback", to }, { ...options, wait: "applied" });
  }

  /** Close the conversation's session; the next message or tool result opens it again. */
  closeSession(conversation: string): Promise<Appended> {
    return this.append(conversation, { type: "session.closed", reason: "explicit" });
  }

  /**
   * What a model is sent. `maxTokens`: a limit of this reader's own. `after`: a position that the
   * window must include.
   */
  async context(
    conversation: string,
    options: { format?: ContextFormat; maxTokens?: number; after?: string } & CallOptions = {},
  ): Promise<Context> {
    const {
      format = "openai",
      maxTokens = null,
      after,
      signal,
    } = known(options, "format maxTokens after signal");
    const asked = { format, max_tokens: maxTokens };
    const found = await this.#caller.get<Context>(
      conversationPath(conversation, "/context"),
      { ...asked, after },
      signal,
    );
    return { ...found, ...asked };
  }

  /**
   * A page of events from the log, newest first. `types`: of this or these alone; `after`: a
   * position that it must be able to show.
   */
  async history(
    conversation: string,
    options: {
      before?: string | null;
      limit?: number;
      types?: string | string[];
      after?: string;
    } & CallOptions = {},
  ): Promise<History> {
    const { types, signal, ...place } = known(options, "before limit types after signal");
    const query = { ...place, type: joined(types) };
    return this.#caller.get(conversationPath(conversation, "/history"), query, signal);
  }

  /** All events, newest first; pages are read as they are needed. */
  iterHistory(
    conversation: string,
    options: { before?: string; page?: number; types?: string | string[] } = {},
  ): AsyncGenerator<LoggedEvent, void, undefined> {
    const { page: limit = 100, types, before } = known(options, "before page types");
    const query = { limit, before, type: joined(types) };
    return this.#caller.pages(conversationPath(conversation, "/history"), query);
  }

  /** One event whole; with `offset` or `limit` (characters) that page of its text as `content`. */
  async event(
    conversation: string,
    position: string,
    options: { offset?: number; limit?: number } & CallOptions = {},
  ): Promise<LoggedEvent> {
    const { signal, ...query } = known(options, "offset limit signal");
    return this.#caller.get(
      conversationPath(conversation, `/events/${encodeURIComponent(position)}`),
      query,
      signal,
    );
  }

  /** The conversations, page by page, last active first; a user's token lists the user's own. */
  conversations(
    filters: Filters<"/v1/conversations"> = {},
  ): AsyncGenerator<ListedConversation, void, undefined> {
    return this.#caller.pages("/conversations", filters);
  }

  /** The tenant's open suspensions, page by page. */
  suspensions(
    filters: Filters<"/v1/suspensions"> = {},
  ): AsyncGenerator<ListedSuspension, void, undefined> {
    return this.#caller.pages("/suspensions", filters);
  }

  /** The summaries of one conversation, page by page. */
  summariesOf(
    conversation: string,
    filters: Filters<"/v1/conversations/{conversation}/summaries"> = {},
  ): AsyncGenerator<Summary, void, undefined> {
    return this.#caller.pages(conversationPath(conversation, "/summaries"), filters);
  }

  /**
   * Events, summaries, text in progress and states of a conversation as they come; from now on, or
   * after a position.
   *
   * It connects again by itself, and neither skips nor repeats events. Of `partial` and `state` it
   * gives what is new.
   */
  subscribe(conversation: string, after?: string): Subscription<StreamEvent> {
    const path = conversationPath(conversation, "/stream");
    return new Subscription(this.#caller, { path, query: {}, nameOf: positionOf }, after);
  }

  /**
   * The tenant's accepted summaries, voidings and erasures as they come, each once. An event
   * `missing` says that earlier ones are lost.
   *
   * It begins now, after a cursor (the id of an event of this stream), or with the first there ever
   * was.
   */
  summaries(
    options: { cursor?: string; fromBeginning?: boolean } = {},
  ): Subscription<SummaryEvent> {
    const { cursor, fromBeginning } = known(options, "cursor fromBeginning");
    const query = { from: fromBeginning ? "beginning" : null };
    return new Subscription(
      this.#caller,
      { path: "/summaries/stream", query, nameOf: summaryOf },
      cursor,
    );
  }

  /**
   * A writer of text in progress, which its message ends. `interval`: seconds between two requests,
   * 0.25 by default.
   */
  partial(
    conversation: string,
    options: { turnId?: string; fence?: number; interval?: number } = {},
  ): PartialWriter {
    const { turnId, fence, interval } = known(options, "turnId fence interval");
    const path = conversationPath(conversation, "/partial");
    const calls = {
      send: (body: object) =>
        this.#caller.post<{ offset: number }>(path, body, { headers: fencing(fence) }),
      append: (message: NewEvent) => this.append(conversation, message, { fence }),
    };
    return new PartialWriter(calls, turnId ?? newId(), interval ?? 0.25);
  }

  /** A turn on the conversation, leased for its seconds; `run` it. */
  turn(conversation: string, options: TurnOptions = {}): Turn {
    return new Turn(this.#caller, conversation, options);
  }

  /** The active turn of the conversation, and those that wait for it. */
  async turns(conversation: string): Promise<Turns> {
    return this.#caller.get(conversationPath(conversation, "/turns"));
  }

  /** The conversation's summary and its last messages, within a limit of tokens. */
  async workingMemory(conversation: string): Promise<WorkingMemory> {
    return this.#caller.get(conversationPath(conversation, "/working-memory"));
  }

  /** Ask for a compaction now; a summary follows as an event. */
  async compact(conversation: string, options: { fence?: number } = {}): Promise<Appended> {
    const { fence } = known(options, "fence");
    const headers = { "Idempotency-Key": newId(), ...fencing(fence) };
    return this.#caller.post(conversationPath(conversation, "/compact"), undefined, { headers });
  }

  /**
   * Record in the ledger that a model was sent this context; returns the record's id, null where
   * the tenant keeps no ledger. It is repeated only where nothing can have been recorded, as a
   * record has no id of the caller's.
   */
  async recordCall(
    conversation: string,
    context: Context,
    model: string,
    options: { reportedUsage?: Record<string, unknown>; latencyMs?: number; policy?: string } = {},
  ): Promise<string | null> {
    const { policy, reportedUsage, latencyMs } = known(options, "reportedUsage latencyMs policy");
    const body = {
      model,
      render_digest: context.render_digest,
      position: context.position,
      format: context.format,
      tokens: context.tokens,
      summary_id: context.summary?.summary_id,
      max_tokens: context.max_tokens,
      policy,
      reported_usage: reportedUsage,
      latency_ms: latencyMs,
    };
    const path = conversationPath(conversation, "/renders");
    const found = await this.#caller.post<{ id?: string | null }>(path, body, {
      repeat: "refused",
    });
    return found.id ?? null;
  }

  /** Erase the conversation for good; answers the receipt: each store with its deadline. */
  async erase(conversation: string): Promise<Receipt> {
    return this.#caller.delete(conversationPath(conversation));
  }

  /** Erase all conversations that belong to this user now; answers a receipt for each. */
  async eraseUser(user: string): Promise<Receipts> {
    return this.#caller.delete(userPath(user));
  }

  /** Mint a token for an end user, with the tenant's key: on your server, never in a page. */
  mintToken(token: NewToken): Promise<MintedToken> {
    return this.#caller.post("/tokens", token);
  }

  async #append<T>(
    path: string,
    items: object,
    query: Query,
    options: Appending,
    names: string,
  ): Promise<T> {
    const { wait, idempotencyKey, signal } = known(options, names);
    if (items == null) throw new Invalid(`${items} cannot be appended: give an event or a list`);
    const listed: object[] = [items].flat();
    const headers = {
      ...conditions(options),
      ...(idempotencyKey !== undefined && { "Idempotency-Key": idempotencyKey }),
    };
    const body = idempotencyKey === undefined ? listed.map(withId) : listed;
    return this.#caller.post(path, body, {
      query: { ...query, wait },
      headers,
      signal,
      has: "events",
    });
  }
}

/** One type or several as a parameter; none is no filter. */
function joined(types?: string | string[]): string | null {
  return [types].flat().join() || null;
}
