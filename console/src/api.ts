// Requests to the gateway that served this page. The key is kept for this tab alone.

const KEY = "threadfold.key";

export interface Me {
  tenant: string;
  scopes: string[];
  quota: Record<string, number | null>;
  used_today: { summary_tokens: number; summary_cost: number } | null;
  /** In the units of the quotas of the same names. */
  used_last_minute: Record<string, number> | null;
  /** Of a token of an end user: whose it is. It reaches this user's conversations alone. */
  user?: string;
}

/** A problem document, or that the gateway does not answer (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function storedKey(): string | null {
  return sessionStorage.getItem(KEY);
}

export function storeKey(key: string | null): void {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

function authorization(): Record<string, string> {
  const key = storedKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** The answer of a request, if it is no problem document. Paths are relative to the page's folder. */
export async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = authorization();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request: RequestInit = { method, headers, cache: "no-store" };
  if (body !== undefined) request.body = JSON.stringify(body);
  if (signal) request.signal = signal;
  let answer: Response;
  try {
    answer = await fetch(path, request);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "the gateway does not answer");
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    return new Problem(answer.status, (JSON.parse(text) as { detail: string }).detail);
  } catch {
    return new Problem(answer.status, `${answer.status} ${answer.statusText}`);
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask("GET", path, undefined, signal)).json()) as T;
}

export async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await (await ask(method, path, body)).json()) as T;
}

/** A path below `v1`, with each part of it escaped, and the parameters that have a value. */
export function v1(parts: string[], parameters: Record<string, string | number | null | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `v1/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}
