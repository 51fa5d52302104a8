// The client against a real stack: THREADFOLD_URL and THREADFOLD_KEY say where it is
// (tests/integration/client).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { after, test } from "node:test";
import { Client, Conflict, NotAllowed, NotFound, Unauthenticated } from "../../dist/index.js";

const { THREADFOLD_URL: url, THREADFOLD_KEY: key } = process.env;
const client = new Client(url, key);
after(() => client.close());

const name = () => `ts-${randomUUID().slice(0, 12)}`;
const say = (content) => ({ type: "message", role: "user", content });
async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}
async function until(events, wanted, seen = []) {
  for (;;) {
    const { value, done } = await events.next();
    assert.ok(!done, "the stream ended");
    seen.push(value);
    if (wanted(value)) return value;
  }
}

test("what is appended is in the context, the history and the lists", async () => {
  const conversation = name();
  const first = await client.append(conversation, say("one"), { onlyIfNew: true });
  await assert.rejects(client.append(conversation, say("no"), { onlyIfNew: true }), Conflict);
  await client.appendMessages(conversation, [
    { role: "assistant", content: "two" },
    { role: "user", content: "three" },
  ]);
  const blocks = { role: "assistant", content: [{ type: "text", text: "four" }] };
  const last = await client.appendMessages(conversation, blocks, {
    format: "anthropic",
    wait: "applied",
  });
  assert.equal(last.events[0].status, "applied");
  const context = await client.context(conversation, { after: last.position });
  assert.deepEqual(
    context.messages.map((message) => message.content),
    ["one", "two", "three", "four"],
  );
  assert.ok(context.tokens > 0 && context.tokens < context.ceiling);
  const recorded = await client.recordCall(conversation, context, "a-model", { latencyMs: 12 });
  assert.equal(typeof recorded, "string");
  const shown = await client.context(conversation, { format: "anthropic" });
  assert.equal(shown.messages[0].role, "user");

  const { events, next_before } = await client.history(conversation, {
    limit: 2,
    types: ["message"],
    after: last.position,
  });
  assert.deepEqual(
    events.map((event) => event.content),
    ["four", "three"],
  );
  assert.ok(next_before);
  const past = await all(client.iterHistory(conversation, { page: 1, types: ["message"] }));
  // The log has what the window refused, too.
  assert.deepEqual(
    past.map((event) => event.content),
    ["four", "three", "two", "no", "one"],
  );
  const one = await client.event(conversation, first.position, { offset: 1, limit: 1 });
  assert.deepEqual([one.content, one.page.characters], ["n", 3]);

  await client.append(
    conversation,
    { type: "suspension", suspension_id: "s1", kind: "input", prompt: "Which one?" },
    { wait: "applied" },
  );
  const waiting = await all(client.suspensions());
  assert.deepEqual(
    waiting.filter((open) => open.conversation === conversation).map((open) => open.prompt),
    ["Which one?"],
  );
  assert.ok(
    (await all(client.conversations({ state: "awaiting_input" }))).some(
      (listed) => listed.conversation === conversation,
    ),
  );
  await client.rollback(conversation, first.position);
  assert.deepEqual(
    (await client.context(conversation)).messages.map((message) => message.content),
    ["one"],
  );
  assert.equal((await client.closeSession(conversation)).events.length, 1);
  const several = await client.appendMany(
    [
      { ...say("five"), conversation },
      { ...say("six"), conversation: name() },
    ],
    { wait: "applied" },
  );
  assert.equal(Object.keys(several.positions).length, 2);
});

test("a compaction's summary is on the stream of summaries and in the list", async () => {
  const conversation = name();
  const summaries = client.summaries();
  const coming = until(
    summaries,
    ({ event, data }) => event === "summary" && data.conversation === conversation,
  );
  const text =
    "The harvest of the northern field was good, and the barns were full before the rain. ".repeat(
      3,
    );
  await client.append(
    conversation,
    Array.from({ length: 12 }, (_, number) => say(`${number}: ${text}`)),
    { wait: "applied" },
  );
  const { data } = await coming;
  summaries.close();
  const listed = await all(client.summariesOf(conversation));
  assert.ok(listed.some((summary) => summary.summary_id === data.summary_id));
});

test("memories are saved, found, judged and deleted", async () => {
  const user = `u-${randomUUID()}`;
  const [saved] = await client.saveMemories({ text: "The parcel goes to Oslo.", user });
  assert.equal(saved.status, "created");
  const { results } = await client.searchMemories("parcel Oslo", { user });
  assert.equal(results[0].id, saved.id);
  assert.equal((await client.memory(saved.id)).text, "The parcel goes to Oslo.");
  assert.equal((await client.reportOutcome(saved.id, true)).use.succeeded, 1);
  assert.deepEqual(
    (await client.memoryTimeline(saved.id)).map(({ id }) => id),
    [saved.id],
  );
  assert.equal((await all(client.memories({ user }))).length, 1);
  assert.equal((await client.memoryStats(user)).records, 1);
  assert.equal((await client.memoryStats({ user })).records, 1);
  assert.equal((await client.memoryStats({ user, channel: "web" })).records, 0);
  const others = { user: `${user}-other` };
  await assert.rejects(client.memory(saved.id, others), NotFound);
  await assert.rejects(client.memoryTimeline(saved.id, others), NotFound);
  await assert.rejects(client.reportOutcome(saved.id, true, others), NotFound);
  await assert.rejects(client.deleteMemory(saved.id, others), NotFound);
  assert.equal((await client.memory(saved.id, { user })).id, saved.id);
  const skill = await client.saveSkill({
    intent: "refund an order",
    doc_markdown: "1. Ask why.",
    user,
  });
  assert.deepEqual(
    (await all(client.skills({ user }))).map(({ id }) => id),
    [skill.id],
  );
  await client.deleteMemory(saved.id);
  assert.equal((await all(client.memories({ user }))).length, 0);
});

test("a turn holds the conversation, and its token fences appends", async () => {
  const conversation = name();
  let fence = 0;
  await client.turn(conversation, { seconds: 30 }).run(async (turn) => {
    fence = turn.fencingToken;
    await assert.rejects(client.turn(conversation).begin(), Conflict);
    await turn.renew(60);
    assert.equal(await turn.check(), "active");
    assert.equal((await client.turns(conversation)).live.turn_id, turn.turnId);
    const queued = client.turn(conversation, { policy: "queue" });
    const begun = queued.begin();
    await client.append(conversation, say("within"), { fence });
    await turn.end();
    await begun;
    assert.equal(await turn.check(), "over");
    await queued.end();
  });
  await assert.rejects(client.append(conversation, say("too late"), { fence }), Conflict);
});

test("a turn whose beginning was aborted does not begin later", async () => {
  for (const policy of ["reject", "queue", "interrupt"]) {
    const conversation = name();
    const stop = new AbortController();
    let late;
    // As a gateway that stalls: it carries the beginning out after the end.
    const stalling = async (request) => {
      if (!new URL(request.url).pathname.endsWith("/turns")) return fetch(request);
      const { url, method, headers } = request;
      late = new Request(url, { method, headers, body: await request.text() });
      stop.abort(new Error("enough"));
      throw stop.signal.reason;
    };
    const other = new Client(url, key, { fetch: stalling });
    const turn = other.turn(conversation, { policy, signal: stop.signal });
    await assert.rejects(turn.begin(), { message: "enough" });
    assert.equal((await fetch(late)).status, 409);
    assert.deepEqual(await client.turns(conversation), { live: null, waiting: [] });
    other.close();
  }
});

// Passes connections on, and cuts them all when told to.
async function proxy() {
  const { hostname, port } = new URL(url);
  const open = new Set();
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ]) {
      open.add(from);
      from.pipe(to);
      from.on("error", () => undefined).on("close", () => (open.delete(from), to.destroy()));
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = () => open.forEach((socket) => socket.destroy());
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut,
    close: () => (cut(), server.close()),
  };
}

test("a stream survives broken connections and gives all once", async () => {
  const conversation = name();
  await client.append(conversation, say("zero"), { wait: "applied" });
  const between = await proxy();
  const reader = new Client(between.url, key, { retries: { base: 0.01, most: 0.05 } });
  const events = reader.subscribe(conversation);
  const seen = [];
  await until(events, ({ event }) => event === "state", seen);
  await client.partial(conversation, { interval: 0 }).run(async (writer) => {
    await writer.write("Der Käse 🧀 ");
    await until(events, ({ event }) => event === "partial", seen);
    between.cut();
    await writer.write("ist gut.");
    await until(
      events,
      ({ event, data }) => event === "partial" && data.delta?.endsWith("gut."),
      seen,
    );
    await client.append(conversation, say("meanwhile"));
    between.cut();
    await writer.finish();
  });
  await until(events, ({ data }) => data.role === "assistant", seen);
  for (let number = 0; number < 5; number += 1) {
    await client.append(conversation, say(`n${number}`));
    between.cut();
  }
  await until(events, ({ data }) => data.content === "n4", seen);
  events.close();
  reader.close();
  between.close();
  const said = seen.filter(({ event }) => event === "event").map(({ data }) => data.content);
  assert.deepEqual(said, ["meanwhile", "Der Käse 🧀 ist gut.", "n0", "n1", "n2", "n3", "n4"]);
  const typed = seen
    .filter(({ event, data }) => event === "partial" && data.delta)
    .map(({ data }) => data.delta)
    .join("");
  assert.equal(typed, "Der Käse 🧀 ist gut.");
});

test("an end user's token opens the user's own conversation, and is renewed", async () => {
  const [own, other] = [name(), name()];
  await client.append(own, { type: "conversation.opened", user: "ann" }, { wait: "applied" });
  await client.append(other, { type: "conversation.opened", user: "bob" }, { wait: "applied" });
  let minted = 0;
  const token = async () => {
    minted += 1;
    return (
      await client.mintToken({ user: "ann", verbs: ["read", "stream", "append"], expires_in: 2 })
    ).token;
  };
  const page = new Client(url, token);
  const events = page.subscribe(own);
  await until(events, ({ event }) => event === "state");
  await page.appendMessages(own, { role: "user", content: "Where is my order?" });
  await until(events, ({ data }) => data.content === "Where is my order?");
  assert.deepEqual(
    (await all(page.conversations())).map((listed) => listed.conversation),
    [own],
  );
  await assert.rejects(page.context(other), NotFound);
  await assert.rejects(page.turn(own).begin(), NotAllowed);
  const before = minted;
  await new Promise((resolve) => setTimeout(resolve, 2500)); // the token's end
  assert.equal((await page.history(own)).events.length, 2);
  assert.ok(minted > before);
  await client.append(own, say("still there"));
  await until(events, ({ data }) => data.content === "still there");
  page.close();
  await assert.rejects(new Client(url, "wrong").context(own), Unauthenticated);
});
