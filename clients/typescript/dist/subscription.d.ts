/**
 * Subscriptions that outlive their connections: each resumes after the last id, skips nothing and
 * gives nothing twice.
 */
import { type Caller } from "./caller.js";
import type { Query } from "./http.js";
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
export declare class Subscription<E extends AnyEvent> implements AsyncIterableIterator<E> {
    #private;
    lastId: string | null;
    constructor(caller: Caller, source: Source, after: string | undefined);
    [Symbol.asyncIterator](): this;
    next(): Promise<IteratorResult<E, void>>;
    return(): Promise<IteratorResult<E, void>>;
    /** End it and its connection; a wait for the next event ends without one. */
    close(): void;
}
/** An event of a conversation is known by its position. */
export declare function positionOf({ event, id }: AnyEvent): string | null;
/**
 * Summaries are delivered at least once: a summary, voiding or erasure is known by its own id. After
 * its voiding a summary may come again: a rollback of the rollback put it in force.
 */
export declare function summaryOf({ id, data }: AnyEvent): string | null;
