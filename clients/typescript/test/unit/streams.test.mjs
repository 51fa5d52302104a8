// Streams: their parser, and subscriptions that resume and give nothing twice.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../dist/index.js";
import { problem, sent, serving, stream } from "./server.mjs";

const TEXT =
  "\n: heartbeat\n\nevent: event\r\nid: 0-1\r\ndata: {\r\ndata:  }\r\n\r\ndata\rid:0-2\revent: é😀\r\rid: 0-3\n\nid: a\0b\nretry: 9\ndata: last\n\ndata: cut";
const EVENTS = [
  { event: "event", id: "0-1", data: "{\n }" },
  { event: "é😀", id: "0-2", data: "" },
  { event: "", id: "0-3", data: "" },
  { event: "message", id: null, data: "last" },
];

test("a stream may be cut anywhere", () => {
  assert.deepEqual(new SseParser().feed(TEXT), EVENTS);
  for (let size = 1; size < TEXT.length; size += 1) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size)
      found.push(...parser.feed(TEXT.slice(at, at + size)), ...parser.feed(""));
    assert.deepEqual(found, EVENTS, `in chunks of ${size}`);
  }
});

test("a stream without an end of event is refused", () => {
  const parser = new SseParser();
  const line = `data: ${"x".repeat(2 ** 20)}\n`;
  assert.throws(
    () => {
      for (let count = 0; count < 80; count += 1) parser.feed(line);
    },
    { name: "Fault" },
  );
});

async function take(subscription, count) {
  const found = [];
  for await (const event of subscription) if (found.push(event) === count) break;
  return found;
}

test("a subscription resumes after the last id and gives nothing twice", () => {
  const first = stream(
    sent("event", { n: 1 }, "0-1"),
    sent("event", { n: 2 }, "0-2"),
    "id: 0-3\nevent: event\ndata: {",
  );
  const second = stream(
    sent("event", { n: 2 }, "0-2"),
    sent("summary", { n: 3 }, "0-3"),
    ": heartbeat\n\n",
    sent("event", { n: 4 }, "0-4"),
  );
  return serving(
    [first, problem(503, "healing"), problem(500, "a-fault"), second],
    async (client, asked) => {
      const subscription = client.subscribe("c", "0-0");
      const events = await take(subscription, 4);
      assert.deepEqual(
        events.map(({ event, id, data }) => [event, id, data.n]),
        [
          ["event", "0-1", 1],
          ["event", "0-2", 2],
          ["summary", "0-3", 3],
          ["event", "0-4", 4],
        ],
      );
      assert.deepEqual(
        asked.map(({ headers }) => headers["last-event-id"]),
        ["0-0", "0-2", "0-2", "0-2"],
      );
      assert.equal(subscription.lastId, "0-4");
    },
  );
});

test("from now on is a place too once the state was sent", () =>
  serving(
    [
      stream(sent("state", { state: "active", position: "0-9" })),
      stream(sent("event", { n: 10 }, "0-10")),
    ],
    async (client, asked) => {
      await take(client.subscribe("c"), 2);
      assert.deepEqual(
        asked.map(({ headers }) => headers["last-event-id"]),
        [undefined, "0-9"],
      );
    },
  ));

test("of text in progress it gives what is new, counted in code points", () => {
  const part = (turn_id, offset, delta) => sent("partial", { turn_id, offset, delta });
  const answers = [
    stream(part("t", 0, "😀é"), part("t", 2, "b")),
    stream(
      part("t", 0, "😀éb"),
      part("t", 0, "😀ébc"),
      part("t", 2, "bcd"),
      sent("partial", { turn_id: "t", offset: 5, ended: "complete" }),
      part("t", 0, "x"),
    ),
  ];
  return serving(answers, async (client) => {
    const found = await take(client.subscribe("c"), 6);
    assert.deepEqual(
      found.map(({ data }) => [data.offset, data.delta ?? data.ended]),
      [
        [0, "😀é"],
        [2, "b"],
        [3, "c"],
        [4, "d"],
        [5, "complete"],
        [0, "x"],
      ],
    );
  });
});

test("the same summary under another cursor is given once", () => {
  const summary = (name, id) => sent("summary", { summary_id: name, text: "…" }, id);
  return serving(
    [
      stream(summary("s1", "c1")),
      stream(summary("s1", "c2"), sent("voided", { summary_id: "s1" }, "c3"), summary("s2", "c4")),
    ],
    async (client, asked) => {
      const found = await take(client.summaries({ fromBeginning: true }), 3);
      assert.deepEqual(
        found.map(({ event, id }) => [event, id]),
        [
          ["summary", "c1"],
          ["voided", "c3"],
          ["summary", "c4"],
        ],
      );
      assert.deepEqual(
        asked.map(({ url }) => url),
        ["/v1/summaries/stream?from=beginning", "/v1/summaries/stream"],
      );
    },
  );
});

test("a summary that a rollback put in force again comes again, and its voiding, too", () => {
  const summary = (id) => sent("summary", { summary_id: "s1", text: "…" }, id);
  const voided = (id) => sent("voided", { id: `v-${id}`, summary_id: "s1" }, id);
  return serving(
    [
      stream(summary("c1"), voided("c2"), voided("c3"), summary("c4")),
      stream(summary("c5"), voided("c6"), sent("summary", { summary_id: "s2" }, "c7")),
    ],
    async (client) => {
      const found = await take(client.summaries({ fromBeginning: true }), 5);
      assert.deepEqual(
        found.map(({ event, id }) => [event, id]),
        [
          ["summary", "c1"],
          ["voided", "c2"],
          ["summary", "c4"],
          ["voided", "c6"],
          ["summary", "c7"],
        ],
      );
    },
  );
});

test("what the topic of summaries has lost is given, and the stream goes on behind it", () => {
  const lost = { partition: 3, first: 12, last: 39 };
  return serving(
    [
      stream(sent("missing", lost, "c1")),
      stream(sent("missing", { ...lost, partition: 4 }, "c2"), sent("summary", { n: 1 }, "c3")),
    ],
    async (client, asked) => {
      const found = await take(client.summaries({ cursor: "c0" }), 3);
      assert.deepEqual(
        found.map(({ event, id, data }) => [event, id, data.partition]),
        [
          ["missing", "c1", 3],
          ["missing", "c2", 4],
          ["summary", "c3", undefined],
        ],
      );
      assert.deepEqual(
        asked.map(({ headers }) => headers["last-event-id"]),
        ["c0", "c1"],
      );
    },
  );
});

test("a stream goes on with a new token when the old one expired", async () => {
  let tokens = 0;
  const answers = [
    stream(sent("event", { n: 1 }, "0-1"), ": the token has expired\n\n"),
    problem(401, "unauthorized"),
    stream(sent("event", { n: 2 }, "0-2")),
  ];
  await serving(
    answers,
    async (client, asked) => {
      await take(client.subscribe("c"), 2);
      assert.deepEqual(
        asked.map(({ headers }) => headers.authorization),
        ["Bearer t1", "Bearer t1", "Bearer t2"],
      );
    },
    {},
    () => `t${(tokens += 1)}`,
  );
});

test("what is refused for good is thrown", async () => {
  await serving([problem(404, "unknown-conversation")], (client) =>
    assert.rejects(take(client.subscribe("c"), 1), { name: "NotFound" }),
  );
  await serving([(response) => response.end("hello")], (client) =>
    assert.rejects(take(client.subscribe("c"), 1), { name: "Fault" }),
  );
  await serving([stream("event: event\ndata: no\n\n")], (client) =>
    assert.rejects(take(client.subscribe("c"), 1), { name: "Fault" }),
  );
});

test("closing ends a subscription that waits, and its connection", () => {
  let left;
  const gone = new Promise((resolve) => (left = resolve));
  const open = (response) => {
    response
      .writeHead(200, { "Content-Type": "text/event-stream" })
      .write(sent("event", { n: 1 }, "0-1"));
    response.on("close", left);
  };
  return serving([open], async (client) => {
    const subscription = client.subscribe("c");
    assert.equal((await subscription.next()).value.id, "0-1");
    const next = subscription.next();
    subscription.close();
    assert.deepEqual(await next, { done: true, value: undefined });
    await gone;
  });
});
