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
export class ClientError extends Error {
  override name = "ClientError";
  readonly status: number = 0;
  readonly type: string = "";
  readonly title: string = "";
  readonly retryAfter: number | null = null;
  unknown = false;

  constructor(detail: string, failure?: Failure) {
    super(detail);
    Object.assign(this, failure);
  }

  get detail(): string {
    return this.message;
  }
}

/** 400: the request is not understood at all. */
export class Malformed extends ClientError {
  override name = "Malformed";
}

/** 401: no key or token, or one that is unknown, expired or revoked. */
export class Unauthenticated extends ClientError {
  override name = "Unauthenticated";
}

/** 403: the key lacks the scope, or the token the verb. */
export class NotAllowed extends ClientError {
  override name = "NotAllowed";
}

/** 404: no such conversation, turn or record, or it is not the caller's. */
export class NotFound extends ClientError {
  override name = "NotFound";
}

/**
 * 409: something else came first: an event after the expected position, another turn, the end of
 * the turn of a fencing token.
 *
 * `unknown` is true if an earlier attempt of the same call got no answer: then what came first may
 * be that attempt.
 */
export class Conflict extends ClientError {
  override name = "Conflict";
}

/** 410: the conversation was erased; this is final. */
export class Gone extends ClientError {
  override name = "Gone";
}

/** 413: the body or an event is over the limit. */
export class TooLarge extends ClientError {
  override name = "TooLarge";
}

/**
 * 422: an event, a name, a position or a parameter is not one that is allowed; the detail names it.
 */
export class Invalid extends ClientError {
  override name = "Invalid";
}

/** 429: the quota is used up for `retryAfter` seconds; nothing was done. */
export class RateLimited extends ClientError {
  override name = "RateLimited";
}

/**
 * 503, a broken connection, no answer in time, or one that cannot be used: cut, not JSON, another
 * form, a redirect. Of an append it is `unknown` whether it landed: repeat it with the same ids.
 */
export class Unavailable extends ClientError {
  override name = "Unavailable";
}

/** Any other answer: a fault of the service, or of something between it and the client. */
export class Fault extends ClientError {
  override name = "Fault";
}

/** The client was closed. */
export class ClientClosed extends ClientError {
  override name = "ClientClosed";
}

/** Whether another attempt may succeed: the service is away, or a quota is used up for a while. */
export function isPassing(error: unknown): error is Unavailable | RateLimited {
  return error instanceof Unavailable || error instanceof RateLimited;
}

const BY_STATUS: Record<number, typeof ClientError> = {
  400: Malformed,
  401: Unauthenticated,
  403: NotAllowed,
  404: NotFound,
  408: Unavailable,
  409: Conflict,
  410: Gone,
  412: Conflict,
  413: TooLarge,
  422: Invalid,
  429: RateLimited,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};
/** The problem types of a 5xx after which nothing was done. */
const NOTHING_DONE = ["overloaded", "not-connected"];

/** The error that an answer with a status from 400 means; a call without a method reads. */
export async function errorOf(response: Response, method?: string): Promise<ClientError> {
  const { status, statusText, headers } = response;
  // A proxy's page is no JSON, and then the status has to do.
  const problem = ((await response.json().catch(() => null)) ?? {}) as Record<string, unknown>;
  const type = `${problem["type"] ?? ""}`.replace("urn:threadfold:problem:", "");
  const title = `${problem["title"] ?? statusText}`;
  const asked = parseFloat(headers.get("retry-after") ?? "");
  return new (BY_STATUS[status] ?? Fault)(
    `${problem["detail"] ?? `it answered ${status} (${title})`}`,
    {
      status,
      type,
      title,
      retryAfter: asked >= 0 ? asked : null,
      unknown: !!method && status >= 500 && !NOTHING_DONE.includes(type),
    },
  );
}
