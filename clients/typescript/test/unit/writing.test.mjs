// Text in progress, and turns.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Conflict } from "../../dist/index.js";
import { DONE, json, lost, problem, serving } from "./server.mjs";

// A service that has text in progress, as the contract says; `away` fails so many of its requests.
function service({ away = 0, forgets = false } = {}) {
  const state = { text: "", requests: 0, appended: [] };
  const answer = (response, { url, body, headers }) => {
    if (!url.endsWith("/partial")) {
      state.appended.push(body[0]);
      return json(202, DONE)(response);
    }
    state.requests += 1;
    state.fence = headers["fencing-token"];
    if ((away -= 1) >= 0) return problem(503, "redis-unavailable")(response);
    if (forgets && state.requests === 3) state.text = "";
    const characters = Array.from(state.text);
    if (body.offset > characters.length) return problem(409, "conflict")(response);
    state.text = [...characters.slice(0, body.offset), body.delta].join("");
    return json(202, { turn_id: body.turn_id, offset: Array.from(state.text).length })(response);
  };
  return [state, answer];
}

test("a writer sends everything in few requests and ends with its message", () => {
  const [state, answer] = service();
  const words = Array.from({ length: 200 }, (_, number) => `wörd😀${number} `);
  return serving([answer], async (client) => {
    await client.partial("c", { turnId: "t1", fence: 7, interval: 0.02 }).run(async (writer) => {
      for (const word of words) await writer.write(word);
      await writer.flush();
      assert.equal(state.text, words.join(""));
      assert.equal(writer.text, words.join(""));
      await writer.finish({ model: "m1" });
    });
    assert.ok(state.requests < 60, `${state.requests} requests`);
    assert.equal(state.fence, "7");
    assert.deepEqual(
      state.appended.map(({ content, model, role }) => [content, model, role]),
      [[words.join(""), "m1", "assistant"]],
    );
  });
});

test("an interval that is no number of seconds is refused", () =>
  serving([], async (client) => {
    for (const interval of [-1, NaN, Infinity, "x"]) {
      assert.throws(() => client.partial("c", { interval }), { name: "Invalid" });
    }
  }));

test("a character that is cut in two goes out whole", () => {
  const [state, answer] = service();
  return serving([answer], async (client) => {
    const writer = client.partial("c", { interval: 0 });
    for (const half of Array.from("a😀b").flatMap((character) => character.split(""))) {
      await writer.write(half);
      await writer.flush();
      assert.doesNotMatch(state.text, /[\uD800-\uDFFF]$(?<![\uD800-\uDBFF][\uDC00-\uDFFF])/);
    }
    assert.equal(state.text, "a😀b");
  });
});

test("half a character that stays alone does not cost the text", () => {
  const [state, answer] = service();
  return serving([answer], async (client) => {
    for (const end of ["finish", "interrupt"]) {
      const writer = client.partial("c", { interval: 0 });
      for (const part of ["a\ud83d", "b\ude00", "c\ud83d"]) await writer.write(part);
      await writer.flush();
      assert.equal(state.text, "a\ufffdb\ufffdc");
      await writer[end]();
      assert.equal(state.appended.at(-1).content, "a\ufffdb\ufffdc\ufffd");
    }
  });
});

test("while the service is away the text waits, and what it lost is sent again", async () => {
  const [waits, away] = service({ away: 2 });
  await serving(
    [away],
    async (client) => {
      const writer = client.partial("c", { interval: 0 });
      await writer.write("hello ");
      await writer.flush();
      assert.equal(writer.trouble.name, "Unavailable");
      await writer.write("you");
      await writer.flush();
      assert.equal(writer.trouble.name, "Unavailable");
      await writer.flush();
      assert.equal(writer.trouble, null);
      assert.equal(waits.text, "hello you");
    },
    { retries: 1 },
  );
  const [state, answer] = service({ forgets: true });
  await serving([answer], async (client) => {
    const writer = client.partial("c", { interval: 0 });
    for (const part of ["one ", "two ", "three ", "four"]) {
      await writer.write(part);
      await writer.flush();
    }
    assert.equal(state.text, "one two three four");
  });
});

test("a writer that is refused throws, and keeps the text as interrupted", () => {
  const appended = [];
  const answer = (response, { url, body }) => {
    if (url.endsWith("/partial")) return problem(409, "conflict")(response);
    appended.push(body[0]);
    return json(202, DONE)(response);
  };
  return serving([answer], async (client) => {
    const run = client.partial("c").run(async (writer) => {
      await writer.write("so far");
      await writer.flush();
    });
    await assert.rejects(run, { name: "Conflict" });
    assert.deepEqual(
      appended.map(({ content, status }) => [content, status]),
      [["so far", "interrupted"]],
    );
  });
});

test("a failed end is repeated as the same message", () =>
  serving(
    [lost, json(202, DONE)],
    async (client, asked) => {
      const writer = client.partial("c");
      await assert.rejects(writer.finish({ content: "whole" }), {
        name: "Unavailable",
        unknown: true,
      });
      await writer.finish({ content: "whole" });
      assert.equal(asked[0].body[0].id, asked[1].body[0].id);
    },
    { retries: 1 },
  ));

test("an interruption after an end that failed is of the same message", () =>
  serving(
    [json(202, { turn_id: "t", offset: 4 }), lost, json(202, DONE)],
    async (client, asked) => {
      const writer = client.partial("c");
      await writer.write("said");
      await writer.flush();
      await assert.rejects(writer.finish({ id: "msg_1" }), { name: "Unavailable" });
      await writer.interrupt();
      const ends = asked.slice(1).map(({ body }) => [body[0].id, body[0].status]);
      assert.deepEqual(ends, [
        ["msg_1", undefined],
        ["msg_1", "interrupted"],
      ]);
    },
    { retries: 1 },
  ));

test("a turn that waits in the queue begins when it may, and ends", () => {
  const turn = (status, fencing_token) =>
    json(202, { turn_id: "t", status, fencing_token, position: "0-1" });
  return serving(
    [
      turn("queued", null),
      turn("queued", null),
      turn("started", 9),
      json(202, { turn_id: "t", position: "0-2" }),
    ],
    async (client, asked) => {
      const result = await client
        .turn("c", { policy: "queue", turnId: "t" })
        .run((run) => run.fencingToken + 1);
      assert.equal(result, 10);
      assert.deepEqual(
        asked.map(({ url }) => url.split("/conversations/c")[1]),
        ["/turns", "/turns", "/turns", "/turns/t/end"],
      );
      assert.equal(asked[3].headers["fencing-token"], "9");
      assert.ok(asked[0].body.wait > 9 && asked[0].body.wait <= 10);
    },
  );
});

const QUEUED = json(202, { turn_id: "t", status: "queued", fencing_token: null, position: "0-1" });

test("a turn that waited too long leaves the queue", () =>
  serving([QUEUED], async (client, asked) => {
    await assert.rejects(client.turn("c", { policy: "queue", turnId: "t", wait: 0.05 }).begin(), {
      name: "Conflict",
    });
    assert.match(asked.at(-1).url, /\/turns\/t\/end$/);
  }));

test("a turn whose signal aborts while it waits leaves the queue", () => {
  const stop = new AbortController();
  const never = () => stop.abort(new Error("enough"));
  return serving([QUEUED, never, json(202, DONE)], async (client, asked) => {
    const turn = client.turn("c", { policy: "queue", turnId: "t", signal: stop.signal });
    await assert.rejects(turn.begin(), { message: "enough" });
    assert.deepEqual(
      asked.map(({ url }) => url.replace(/.*\/conversations\/c/, "")),
      ["/turns", "/turns", "/turns/t/end"],
    );
    const keys = asked.map(({ headers }) => headers["idempotency-key"]);
    assert.ok(keys[0], "the gateway knows a late request to begin it by its key");
    assert.deepEqual(keys, [keys[0], keys[0], keys[0]]);
  });
});

test("a turn of which it is unknown whether it began is ended", () =>
  serving([lost], async (client, asked) => {
    const begun = client.turn("c", { turnId: "t" }).begin();
    await assert.rejects(begun, { name: "Unavailable", unknown: true });
    assert.match(asked.at(-1).url, /\/turns\/t\/end$/);
  }));

test("a turn that was refused is ended if an earlier request to begin it got no answer", () =>
  serving([lost, problem(401, "unauthorized")], async (client, asked) => {
    const begun = client.turn("c", { turnId: "t" }).begin();
    await assert.rejects(begun, { name: "Unauthenticated", unknown: true });
    assert.match(asked.at(-1).url, /\/turns\/t\/end$/);
  }));

test("a turn leaves the queue whatever reason its signal has", async () => {
  const queued = { turn_id: "t", status: "queued", place: 1, position: "0-1" };
  const ending = new AbortController();
  await serving([json(202, queued)], async (client, asked) => {
    const options = { turnId: "t", policy: "queue", wait: 30, signal: ending.signal };
    const begun = client.turn("c", options).begin();
    ending.abort(new Conflict("stopped by a user"));
    await assert.rejects(begun, { name: "Conflict" });
    assert.match(asked.at(-1).url, /\/turns\/t\/end$/);
  });
});

test("a turn that was refused is not ended", () =>
  serving([problem(409, "conflict")], async (client, asked) => {
    await assert.rejects(client.turn("c", { turnId: "t" }).begin(), { name: "Conflict" });
    assert.deepEqual(
      asked.map(({ method }) => method),
      ["POST"],
    );
  }));

test("what a run throws is thrown, also where its turn cannot be ended", () =>
  serving(
    [
      json(202, { turn_id: "t", status: "started", fencing_token: 1, position: "0-1" }),
      problem(409, "conflict"),
    ],
    async (client) => {
      await assert.rejects(
        client.turn("c").run(() => Promise.reject(new Error("mine"))),
        { message: "mine" },
      );
      assert.throws(() => client.turn("c").fencingToken, { name: "Invalid" });
    },
  ));
