// A subscriber of a tenant's summaries for Node 18 or newer, without dependencies: prints each accepted summary and voiding once, connects
// again by itself, and goes on where it was after a restart.
//
//   THREADFOLD_URL=http://localhost:8080 THREADFOLD_KEY=… node examples/subscriber.mjs [CURSOR_FILE]

import { existsSync, readFileSync, writeFileSync } from "node:fs";

const { THREADFOLD_URL: url, THREADFOLD_KEY: key } = process.env;
if (!url || !key) {
  console.error("THREADFOLD_URL and THREADFOLD_KEY have to be set: the gateway's address and the tenant's key");
  process.exit(2);
}
const cursorFile = process.argv[2];
const SILENCE = 45_000; // the service sends a heart-beat every 10 s: after four missed ones the connection is dead
const REMEMBERED = 4096;

let cursor = cursorFile && existsSync(cursorFile) ? readFileSync(cursorFile, "utf8").trim() : "";
let failures = 0;
const last = new Map(); // the kind of what came last of a summary

// Server-sent events from chunks that may be cut anywhere: lines end with LF, CR or CRLF, an empty line ends an event.
async function* events(body, alive) {
  const decoder = new TextDecoder("utf-8");
  let text = "";
  let event = {};
  for await (const chunk of body) {
    alive();
    text += decoder.decode(chunk, { stream: true });
    for (;;) {
      const end = text.search(/[\r\n]/);
      // A CR at the very end may be half of a CRLF: the next chunk tells.
      if (end < 0 || (text[end] === "\r" && end + 1 === text.length)) break;
      const line = text.slice(0, end);
      text = text.slice(end + (text.startsWith("\r\n", end) ? 2 : 1));
      if (line === "") {
        if (event.data !== undefined || event.id !== undefined) yield event;
        event = {};
        continue;
      }
      const [, name, value = ""] = /^([^:]*)(?:: ?(.*))?$/su.exec(line);
      if (name === "data") event.data = event.data === undefined ? value : `${event.data}\n${value}`;
      else if (name === "event") event.name = value;
      else if (name === "id") event.id = value;
    }
  }
}

function isNew(name, kind) {
  if (last.get(name) === kind) return false;
  last.delete(name); // the order of the map is that of use
  last.set(name, kind);
  if (last.size > REMEMBERED) last.delete(last.keys().next().value);
  return true;
}

function take(event) {
  if (event.data !== undefined) {
    const data = JSON.parse(event.data);
    // Delivery is at least once: the same summary may come again under another cursor. Behind its voiding it is no repeat:
    // a rollback of the rollback put it in force again.
    if (isNew(data.summary_id ?? event.id, event.name)) console.log(JSON.stringify({ event: event.name, ...data }));
  }
  if (event.id) {
    cursor = event.id;
    if (cursorFile) writeFileSync(cursorFile, cursor);
  }
}

async function connect() {
  const stop = new AbortController();
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(new Error("nothing was heard for too long")), SILENCE);
  };
  alive();
  try {
    const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream", ...(cursor ? { "last-event-id": cursor } : {}) };
    const query = cursor ? "" : "?from=beginning";
    const response = await fetch(`${url}/v1/summaries/stream${query}`, { headers, signal: stop.signal });
    if (response.status >= 400 && response.status < 500 && response.status !== 429) {
      console.error(`refused (${response.status}): ${await response.text()}`);
      process.exit(1);
    }
    if (!response.ok) {
      const wait = Number(response.headers.get("retry-after")) || 0;
      throw Object.assign(new Error(`the service answered ${response.status}`), { wait });
    }
    for await (const event of events(response.body, alive)) {
      failures = 0;
      take(event);
    }
    return 0;
  } finally {
    clearTimeout(timer);
  }
}

process.on("SIGTERM", () => process.exit(0));
process.on("SIGINT", () => process.exit(0));
for (;;) {
  let wait = 0;
  try {
    await connect();
  } catch (error) {
    console.error(`${error.message}: connecting again`);
    wait = error.wait ?? 0;
  }
  failures += 1;
  const jitter = Math.random() * Math.min(5000, 100 * 2 ** failures);
  await new Promise((resolve) => setTimeout(resolve, wait * 1000 + jitter));
}
