/** One attempt of a call over HTTP, with `fetch` alone: the same in browsers and in Node. */
import { type ServerSent } from "./sse.js";
/**
 * A key or token, or a function that gets a token: called when there is none yet, and when the last
 * one expired.
 */
export type Credential = string | (() => string | Promise<string>);
/** One call: path and query under `/v1`, `body` as a JSON value. */
export interface Call {
    method?: "POST" | "DELETE";
    path: string;
    query?: Query | undefined;
    body?: unknown;
    headers?: Record<string, string>;
    /** Repeat it only after a refusal: another attempt would act twice. */
    repeat?: "refused";
    /** A field that the answer must have. */
    has?: string;
    signal?: AbortSignal | undefined;
}
/** Parameters of a query; those that are null or undefined are left out. */
export type Query = Record<string, string | number | boolean | null | undefined>;
/** How calls reach the gateway, one attempt each. */
export interface Http {
    /**
     * The answer's JSON object; throws the ClientError its problem document means, and Unavailable
     * if it is something else.
     */
    request(call: Call): Promise<unknown>;
    /** The events of one connection, until it ends; throws Unavailable when it breaks. */
    stream(call: Call): AsyncGenerator<ServerSent, void, undefined>;
    /** End all calls and streams under way; later ones fail. */
    close(): void;
}
/**
 * A gateway at `url`, as the tenant or user of `credential`; an attempt may take `timeout` seconds.
 */
export declare function connect(url: string, credential: Credential, timeout: number, send?: typeof fetch): Http;
