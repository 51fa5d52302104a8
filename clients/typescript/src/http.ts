/** One attempt of a call over HTTP, with `fetch` alone: the same in browsers and in Node. */

import {
  ClientClosed,
  ClientError,
  errorOf,
  Fault,
  Invalid,
  Unauthenticated,
  Unavailable,
} from "./errors.js";
import { SseParser, type ServerSent } from "./sse.js";

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

const JSON_TYPE = "application/json";
/**
 * Seconds without a byte after which a stream counts as broken: more than four heart-beats of 10 s.
 */
const SILENCE = 45;
/** What Node's fetch says where no connection was made: it is certain that nothing was done. */
const NO_CONNECTION = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

/**
 * A gateway at `url`, as the tenant or user of `credential`; an attempt may take `timeout` seconds.
 */
export function connect(
  url: string,
  credential: Credential,
  timeout: number,
  send?: typeof fetch,
): Http {
  if (!/^https?:\/\//.test(url)) throw new Invalid(`url is '${url}': try http://localhost:8080`);
  const base = url.replace(/\/+$/, "");
  const underWay = new Set<() => void>();
  let closed = false;
  let token: Promise<string> | null = null;

  /**
   * The token of now. A function is asked once for all calls that need a token at the same time.
   */
  async function tokenOfNow(): Promise<string> {
    if (typeof credential === "string") return credential;
    try {
      return await (token ??= Promise.resolve().then(credential));
    } catch (error) {
      token = null;
      // It may be asked again, unless it throws a ClientError of its own.
      throw error instanceof ClientError ? error : new Unavailable(`there is no token: ${error}`);
    }
  }

  /**
   * Sends a call, and gives the answer to `read` if it is below 400; after a 401 once more, if
   * there is a function to ask.
   */
  async function* answer<T>(
    call: Call,
    accept: string,
    seconds: number,
    read: Read<T>,
    again = true,
  ): AsyncGenerator<T, void, undefined> {
    const limit = limited(base, call, seconds, closed, underWay);
    let sent = "";
    try {
      sent = await tokenOfNow();
      const request = requestOf(base, call, accept, sent, limit.signal);
      limit.begin();
      // A browser's fetch works only as a method of its window.
      const response = await (send ? send(request) : fetch(request));
      if (response.status >= 400) throw await errorOf(response, call.method);
      yield* read(response, limit);
      return;
    } catch (error) {
      if (closed) throw new ClientClosed("the client is closed");
      if (call.signal?.aborted) throw call.signal.reason;
      if (!(error instanceof ClientError)) {
        const cause = (error as { cause?: { code?: string } }).cause?.code ?? "";
        throw failed(call, `${base} gave no usable answer (${cause || error})`, cause);
      }
      if (!again || !(error instanceof Unauthenticated) || typeof credential === "string")
        throw error;
      if ((await token?.catch(() => "")) === sent) token = null;
    } finally {
      limit.end();
    }
    yield* answer(call, accept, seconds, read, false);
  }

  return {
    async request(call) {
      const read = (response: Response) => jsonOf(response, call.has);
      for await (const value of answer(call, JSON_TYPE, timeout, read)) return value;
    },
    stream: (call) => answer(call, "text/event-stream", SILENCE, eventsOf),
    close() {
      closed = true;
      for (const abort of underWay) abort();
    },
  };
}

type Read<T> = (response: Response, limit: Limit) => AsyncGenerator<T, void, undefined>;

/** The object of an answer. What is thrown here counts as no answer. */
async function* jsonOf(
  response: Response,
  has: string | undefined,
): AsyncGenerator<object, void, undefined> {
  const value = response.ok && (await response.json());
  if (Object(value) !== value || Array.isArray(value) || (has && !(has in value)))
    throw response.status;
  yield value;
}

async function* eventsOf(
  { body, headers, status }: Response,
  limit: Limit,
): AsyncGenerator<ServerSent, void, undefined> {
  const kind = headers.get("content-type");
  if (!body || !kind?.startsWith("text/event-stream"))
    throw new Fault(`got ${kind} instead of a stream`, { status });
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  for (;;) {
    limit.begin();
    const { done, value } = await reader.read();
    limit.pause(); // who reads the events may take time
    if (done) return;
    yield* parser.feed(decoder.decode(value, { stream: true }));
  }
}

function requestOf(
  base: string,
  call: Call,
  accept: string,
  token: string,
  signal: AbortSignal,
): Request {
  const { method = "GET", path, query = {}, body } = call;
  try {
    const url = new URL(`${base}/v1${path}`);
    for (const [name, value] of Object.entries(query))
      if (value != null) url.searchParams.set(name, `${value}`);
    const headers = {
      Accept: accept,
      Authorization: `Bearer ${token}`,
      ...(body !== undefined && { "Content-Type": JSON_TYPE }),
      ...call.headers,
    };
    return new Request(url, {
      method,
      headers,
      body: JSON.stringify(body) ?? null, // without a body it makes no text
      signal,
      redirect: "manual",
      cache: "no-store",
    });
  } catch (error) {
    throw new Invalid(`${method} ${path} cannot be sent: ${error}`);
  }
}

/** What ends an attempt: one of the signals, or so many seconds without progress. */
type Limit = ReturnType<typeof limited>;

/** Each call is in `underWay`, which ends with the client: a listener each makes Node warn of many. */
function limited(
  base: string,
  call: Call,
  seconds: number,
  closed: boolean,
  underWay: Set<() => void>,
) {
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  let timer: ReturnType<typeof setTimeout> | undefined;
  underWay.add(abort);
  call.signal?.addEventListener("abort", abort);
  if (closed || call.signal?.aborted) abort();
  const pause = (): void => clearTimeout(timer);
  return {
    signal: stop.signal,
    pause,
    /** Count from now. */
    begin() {
      pause();
      const late = failed(call, `${base} did not answer in time`);
      timer = setTimeout(() => stop.abort(late), seconds * 1000);
    },
    /** Forget the signals, and do not read what is left of the answer. */
    end() {
      pause();
      underWay.delete(abort);
      call.signal?.removeEventListener("abort", abort);
      abort();
    },
  };
}

/** No answer came that can be used. A read does nothing, and without a connection nothing was done. */
function failed(call: Call, detail: string, cause = ""): Unavailable {
  const unknown = !!call.method && !NO_CONNECTION.includes(cause);
  return new Unavailable(detail + (unknown ? "; it may have taken effect" : ""), { unknown });
}
