// A real HTTP server that answers one request after the other as a test says.

import { once } from "node:events";
import { createServer } from "node:http";
import { Client } from "../../dist/index.js";

export const QUICK = { base: 0.001, most: 0.005 };
export const DONE = { events: [{ id: "e", position: "0-1" }], position: "0-1" };
export const SAY = { type: "message", role: "user", content: "hi" };

// Answers: `json`, `problem`, `lost` (no answer), `cut` (half of one), `stream` (events, then its
// end).
export const json =
  (status, body, headers = {}) =>
  (response) =>
    response
      .writeHead(status, { "Content-Type": "application/json", ...headers })
      .end(JSON.stringify(body));
export const problem = (status, type, headers = {}) =>
  json(
    status,
    { type: `urn:threadfold:problem:${type}`, title: "A title", status, detail: `about ${type}` },
    headers,
  );
export const lost = (response) => response.destroy();
export const cut = (response) => {
  response.writeHead(202, { "Content-Length": "500" });
  response.write("{", () => response.destroy());
};
export const stream =
  (...parts) =>
  (response) =>
    response.writeHead(200, { "Content-Type": "text/event-stream" }).end(parts.join(""));
export const sent = (event, data, id) =>
  `event: ${event}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify(data)}\n\n`;

// Runs `work` with a client of a server that gives these answers, the last one again and again.
// `asked` are the requests.
export async function serving(answers, work, options = {}, credential = "key") {
  const asked = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { method, url, headers } = request;
    asked.push({ method, url, headers, body: body ? JSON.parse(body) : null });
    await answers[Math.min(asked.length, answers.length) - 1](response, asked.at(-1));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new Client(`http://127.0.0.1:${server.address().port}`, credential, {
    retries: QUICK,
    ...options,
  });
  try {
    return await work(client, asked);
  } finally {
    client.close();
    server.closeAllConnections();
    server.close();
  }
}
