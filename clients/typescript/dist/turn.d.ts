/** A turn on a conversation: begun with a lease, ended at the end of a run. */
import { type Caller } from "./caller.js";
import type { TurnInfo, TurnPolicy, TurnStatus } from "./models.js";
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
export declare class Turn {
    #private;
    readonly turnId: string;
    info: TurnInfo | null;
    constructor(caller: Caller, conversation: string, options: TurnOptions);
    /** The proof that this turn holds the conversation; throws Invalid before it began. */
    get fencingToken(): number;
    /** Begin it, run `work`, and end it, also where `work` throws; returns what `work` returns. */
    run<T>(work: (turn: this) => T | Promise<T>): Promise<T>;
    /**
     * Begin it; wait if it is queued. Throws Conflict if another turn holds the conversation, for
     * longer than `wait`. If that fails or its signal aborts, the turn leaves the queue, also if the
     * gateway gets the request to begin it later.
     */
    begin(): Promise<this>;
    /**
     * Let the lease run on: for `seconds` from now, or as many as it began with; throws Conflict when
     * the turn is over.
     */
    renew(seconds?: number): Promise<void>;
    /**
     * Ask how it stands now: `active`, `queued` or `over` (ended, interrupted, or its lease ran out).
     */
    check(): Promise<TurnStatus>;
    /** End it; calls it left open are dead. */
    end(): Promise<void>;
}
