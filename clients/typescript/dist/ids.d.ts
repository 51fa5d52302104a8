/** Ids the client makes, so that a repeated call repeats its events. */
/**
 * A new id in the form of a version 7 UUID (RFC 9562): 48 bits of Unix time in ms, then random
 * bits.
 */
export declare function newId(): string;
/**
 * A copy of the event or message, with a new id if it has none. A value that is not an object is
 * returned unchanged.
 */
export declare function withId<T extends {
    id?: unknown;
}>(item: T): T;
