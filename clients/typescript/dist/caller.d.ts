/**
 * Calls that are repeated while that is safe, and the paths, queries and headers they are made of.
 */
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
/** Sends calls and repeats those that fail for a while. */
export declare class Caller {
    #private;
    readonly http: Http;
    constructor(http: Http, retries?: Partial<Retries> | number);
    /** Read something. */
    get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T>;
    /** Send something; `more` are the call's other parts. */
    post<T>(path: string, body?: unknown, more?: Partial<Call>): Promise<T>;
    /** Delete something. */
    delete<T>(path: string, query?: Query): Promise<T>;
    /** Milliseconds to wait after the n-th failure in a row (from 1). */
    delay(failures: number, asked?: number | null): number;
    /**
     * The items of all pages of a list: a page is an object with one list, and `next_NAME` for the
     * parameter `NAME`.
     */
    pages<T>(path: string, filters: Query): AsyncGenerator<T, void, undefined>;
}
/** Wait; a signal ends it early, and throws its reason. */
export declare function pause(milliseconds: number, signal?: AbortSignal): Promise<void>;
/**
 * The path of a conversation; throws Invalid if it is not a name, or one that a URL cannot carry.
 */
export declare function conversationPath(conversation: string, below?: string): string;
/** The path of a user; throws Invalid if the user is empty, or one that a URL cannot carry. */
export declare function userPath(user: string): string;
/**
 * The options of a call; throws Invalid if one of them is not among `names` (with spaces between):
 * without types, a misspelt one would do nothing.
 */
export declare function known<O extends object>(options: O, names: string): O;
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
export declare function conditions({ expect, onlyIfNew, fence }: Conditions): Record<string, string>;
/** The header of a turn's fencing token, if any. */
export declare function fencing(fence: number | undefined): Record<string, string>;
/**
 * What `work` returns, once `end` has run after it, however it ended. `end`'s error is thrown only
 * where `work` had none.
 */
export declare function closing<T>(work: () => T | Promise<T>, end: () => Promise<unknown>): Promise<T>;
