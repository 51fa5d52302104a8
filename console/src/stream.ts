// Server-sent events by fetch, because an EventSource sends no Authorization header.

import { Problem, authorization, problemOf } from "./api";

export interface Received {
  event: string;
  data: unknown;
}

const PAUSES = [500, 1000, 2000, 5000, 10000];

/** Follow a stream until the signal aborts. It reconnects after a pause, and resumes after the last id. */
export async function follow(
  path: string,
  take: (received: Received) => void,
  connected: (yes: boolean) => void,
  signal: AbortSignal,
): Promise<void> {
  let last = "";
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      const headers: Record<string, string> = { ...authorization(), Accept: "text/event-stream" };
      if (last) headers["Last-Event-ID"] = last;
      const answer = await fetch(path, { headers, signal, cache: "no-store" });
      if (!answer.ok || !answer.body) throw await problemOf(answer);
      connected(true);
      failures = 0;
      for await (const block of blocks(answer.body)) {
        const { event, data, id } = fields(block);
        if (id) last = id;
        if (data) take({ event, data: JSON.parse(data) });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && [401, 403, 404, 410, 422].includes(error.status)) throw error;
    }
    connected(false);
    await pause(PAUSES[Math.min(failures, PAUSES.length - 1)] ?? 1000, signal);
  }
}

async function* blocks(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop() ?? "";
    yield* parts;
  }
}

function fields(block: string): { event: string; data: string; id: string } {
  const found = { event: "message", data: "", id: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    const name = line.slice(0, colon);
    const value = line.slice(colon + 2);
    if (name === "data") found.data += value;
    else if (name === "event") found.event = value;
    else if (name === "id") found.id = value;
  }
  return found;
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
