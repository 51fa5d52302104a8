/**
 * Assistant text in progress: deltas are sent as the model gives them, and the whole becomes a
 * message at the end.
 */
import { type ClientError } from "./errors.js";
import type { Appended, NewMessage } from "./models.js";
/** How the text is sent, and how its message is appended. */
export interface PartialCalls {
    send(body: {
        turn_id: string;
        delta: string;
        offset: number;
    }): Promise<{
        offset: number;
    }>;
    append(message: NewMessage): Promise<Appended>;
}
/**
 * Writes one message in progress. Made by `client.partial`.
 *
 * `write` does not wait for the network. The first text goes at once. Then one request is under way
 * at a time, and one begins every `interval` seconds at most; text written meanwhile goes out with
 * the next one. Each request names its first character, so it may be repeated. While the service is
 * away, `trouble` holds the error and the text waits for the next request. Only a refusal of this
 * writer throws: its turn is over, or the conversation was erased.
 */
export declare class PartialWriter {
    #private;
    readonly turnId: string;
    /** Why text cannot be sent at the moment, or null. */
    trouble: ClientError | null;
    /** The answer to the append of its message, once it ended. */
    appended: Appended | null;
    constructor(calls: PartialCalls, turnId: string, interval: number);
    /** All that was written; half of a character without its other half is U+FFFD. */
    get text(): string;
    /** Add text; throws the ClientError with which an earlier part was refused for good. */
    write(delta: string): Promise<void>;
    /**
     * Wait until all text is sent, or `trouble` says why it cannot be sent now; throws like `write`.
     */
    flush(): Promise<void>;
    /**
     * End it with its message: the text written, with `fields` (model, usage, tool_calls); `content`
     * there takes the text's place. Throws a ClientError if the append failed; repeat it, which
     * changes nothing if it landed.
     */
    finish(fields?: Partial<NewMessage>): Promise<Appended>;
    /** End it as an interrupted message of the text so far; null without any. */
    interrupt(): Promise<Appended | null>;
    /**
     * Run `work`, and keep the text as an interrupted message if it ends or throws without `finish`.
     */
    run<T>(work: (writer: this) => T | Promise<T>): Promise<T>;
}
