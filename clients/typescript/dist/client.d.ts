/** The client: every call of the contract as a method. */
import { type Conditions, type Retries } from "./caller.js";
import { type Credential } from "./http.js";
import { MemoryCalls } from "./memories.js";
import type { Appended, AppendedOfSeveral, Context, ContextFormat, Filters, History, ListedConversation, ListedSuspension, LoggedEvent, MintedToken, NewAnthropicMessage, NewEvent, NewOpenAIMessage, NewToken, Receipt, Receipts, StreamEvent, Summary, SummaryEvent, Turns, WorkingMemory } from "./models.js";
import { PartialWriter } from "./partial.js";
import { Subscription } from "./subscription.js";
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
export declare class Client extends MemoryCalls {
    #private;
    constructor(url: string, credential: Credential, options?: ClientOptions);
    /** End all calls and streams under way; later calls throw ClientClosed. */
    close(): void;
    /**
     * Append one flat event, or a list of at most 500 in its order; all are checked before any is
     * appended.
     */
    append(conversation: string, events: NewEvent | NewEvent[], options?: AppendOptions): Promise<Appended>;
    /** Append messages in OpenAI's chat format or Anthropic's; one may become several events. */
    appendMessages(conversation: string, messages: NewOpenAIMessage | NewOpenAIMessage[], options?: AppendOptions & {
        format?: "openai";
    }): Promise<Appended>;
    appendMessages(conversation: string, messages: NewAnthropicMessage | NewAnthropicMessage[], options: AppendOptions & {
        format: "anthropic";
    }): Promise<Appended>;
    /** Append events of several conversations, each with `conversation`; in order within each. */
    appendMany(events: (NewEvent & {
        conversation: string;
    })[], options?: Pick<AppendOptions, "wait" | "idempotencyKey" | "signal">): Promise<AppendedOfSeveral>;
    /**
     * Go back to a position, or to the id of one of the last 1,024 events: the last that stays.
     * Answers once applied.
     */
    rollback(conversation: string, to: string, options?: Conditions & CallOptions): Promise<Appended>;
    /** Close the conversation's session; the next message or tool result opens it again. */
    closeSession(conversation: string): Promise<Appended>;
    /**
     * What a model is sent. `maxTokens`: a limit of this reader's own. `after`: a position that the
     * window must include.
     */
    context(conversation: string, options?: {
        format?: ContextFormat;
        maxTokens?: number;
        after?: string;
    } & CallOptions): Promise<Context>;
    /**
     * A page of events from the log, newest first. `types`: of this or these alone; `after`: a
     * position that it must be able to show.
     */
    history(conversation: string, options?: {
        before?: string | null;
        limit?: number;
        types?: string | string[];
        after?: string;
    } & CallOptions): Promise<History>;
    /** All events, newest first; pages are read as they are needed. */
    iterHistory(conversation: string, options?: {
        before?: string;
        page?: number;
        types?: string | string[];
    }): AsyncGenerator<LoggedEvent, void, undefined>;
    /** One event whole; with `offset` or `limit` (characters) that page of its text as `content`. */
    event(conversation: string, position: string, options?: {
        offset?: number;
        limit?: number;
    } & CallOptions): Promise<LoggedEvent>;
    /** The conversations, page by page, last active first; a user's token lists the user's own. */
    conversations(filters?: Filters<"/v1/conversations">): AsyncGenerator<ListedConversation, void, undefined>;
    /** The tenant's open suspensions, page by page. */
    suspensions(filters?: Filters<"/v1/suspensions">): AsyncGenerator<ListedSuspension, void, undefined>;
    /** The summaries of one conversation, page by page. */
    summariesOf(conversation: string, filters?: Filters<"/v1/conversations/{conversation}/summaries">): AsyncGenerator<Summary, void, undefined>;
    /**
     * Events, summaries, text in progress and states of a conversation as they come; from now on, or
     * after a position.
     *
     * It connects again by itself, and neither skips nor repeats events. Of `partial` and `state` it
     * gives what is new.
     */
    subscribe(conversation: string, after?: string): Subscription<StreamEvent>;
    /**
     * The tenant's accepted summaries, voidings and erasures as they come, each once. An event
     * `missing` says that earlier ones are lost.
     *
     * It begins now, after a cursor (the id of an event of this stream), or with the first there ever
     * was.
     */
    summaries(options?: {
        cursor?: string;
        fromBeginning?: boolean;
    }): Subscription<SummaryEvent>;
    /**
     * A writer of text in progress, which its message ends. `interval`: seconds between two requests,
     * 0.25 by default.
     */
    partial(conversation: string, options?: {
        turnId?: string;
        fence?: number;
        interval?: number;
    }): PartialWriter;
    /** A turn on the conversation, leased for its seconds; `run` it. */
    turn(conversation: string, options?: TurnOptions): Turn;
    /** The active turn of the conversation, and those that wait for it. */
    turns(conversation: string): Promise<Turns>;
    /** The conversation's summary and its last messages, within a limit of tokens. */
    workingMemory(conversation: string): Promise<WorkingMemory>;
    /** Ask for a compaction now; a summary follows as an event. */
    compact(conversation: string, options?: {
        fence?: number;
    }): Promise<Appended>;
    /**
     * Record in the ledger that a model was sent this context; returns the record's id, null where
     * the tenant keeps no ledger. It is repeated only where nothing can have been recorded, as a
     * record has no id of the caller's.
     */
    recordCall(conversation: string, context: Context, model: string, options?: {
        reportedUsage?: Record<string, unknown>;
        latencyMs?: number;
        policy?: string;
    }): Promise<string | null>;
    /** Erase the conversation for good; answers the receipt: each store with its deadline. */
    erase(conversation: string): Promise<Receipt>;
    /** Erase all conversations that belong to this user now; answers a receipt for each. */
    eraseUser(user: string): Promise<Receipts>;
    /** Mint a token for an end user, with the tenant's key: on your server, never in a page. */
    mintToken(token: NewToken): Promise<MintedToken>;
}
