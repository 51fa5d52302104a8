/**
 * Server-sent events read from text: the parser of the HTML standard (section 9.2.6), without any
 * I/O.
 */
/**
 * One event of a stream: its name, the id that stood in it or null, and its data's lines joined.
 */
export interface ServerSent {
    event: string;
    id: string | null;
    data: string;
}
/**
 * Takes chunks of a stream as they come, split anywhere, and gives the events that are whole.
 *
 * A block with an id but no data is given with an empty name: it is where to resume. An event that
 * the stream's end cuts off is never given.
 */
export declare class SseParser {
    #private;
    /**
     * The events that this chunk completes, in order; throws Fault if one goes on beyond 64 Mi
     * characters.
     */
    feed(chunk: string): ServerSent[];
}
