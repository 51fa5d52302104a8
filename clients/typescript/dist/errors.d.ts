/** The errors of the client: one class for each kind of problem document. */
/** What is known of a failed call. */
export interface Failure {
    status?: number;
    type?: string;
    title?: string;
    retryAfter?: number | null;
    unknown?: boolean;
}
/**
 * A call that failed.
 *
 * `status` is the HTTP status (0 where no answer came), `type` the problem's short name like
 * `invalid-event`, `title` and `detail` its texts, `retryAfter` the seconds the service asked to
 * wait, or null. `unknown` is true if the call may have taken effect: repeat it with the same ids.
 */
export declare class ClientError extends Error {
    name: string;
    readonly status: number;
    readonly type: string;
    readonly title: string;
    readonly retryAfter: number | null;
    unknown: boolean;
    constructor(detail: string, failure?: Failure);
    get detail(): string;
}
/** 400: the request is not understood at all. */
export declare class Malformed extends ClientError {
    name: string;
}
/** 401: no key or token, or one that is unknown, expired or revoked. */
export declare class Unauthenticated extends ClientError {
    name: string;
}
/** 403: the key lacks the scope, or the token the verb. */
export declare class NotAllowed extends ClientError {
    name: string;
}
/** 404: no such conversation, turn or record, or it is not the caller's. */
export declare class NotFound extends ClientError {
    name: string;
}
/**
 * 409: something else came first: an event after the expected position, another turn, the end of
 * the turn of a fencing token.
 *
 * `unknown` is true if an earlier attempt of the same call got no answer: then what came first may
 * be that attempt.
 */
export declare class Conflict extends ClientError {
    name: string;
}
/** 410: the conversation was erased; this is final. */
export declare class Gone extends ClientError {
    name: string;
}
/** 413: the body or an event is over the limit. */
export declare class TooLarge extends ClientError {
    name: string;
}
/**
 * 422: an event, a name, a position or a parameter is not one that is allowed; the detail names it.
 */
export declare class Invalid extends ClientError {
    name: string;
}
/** 429: the quota is used up for `retryAfter` seconds; nothing was done. */
export declare class RateLimited extends ClientError {
    name: string;
}
/**
 * 503, a broken connection, no answer in time, or one that cannot be used: cut, not JSON, another
 * form, a redirect. Of an append it is `unknown` whether it landed: repeat it with the same ids.
 */
export declare class Unavailable extends ClientError {
    name: string;
}
/** Any other answer: a fault of the service, or of something between it and the client. */
export declare class Fault extends ClientError {
    name: string;
}
/** The client was closed. */
export declare class ClientClosed extends ClientError {
    name: string;
}
/** Whether another attempt may succeed: the service is away, or a quota is used up for a while. */
export declare function isPassing(error: unknown): error is Unavailable | RateLimited;
/** The error that an answer with a status from 400 means; a call without a method reads. */
export declare function errorOf(response: Response, method?: string): Promise<ClientError>;
