// What the client does when the service fails, breaks off or says to wait.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import * as threadfold from "../../dist/index.js";
import { cut, DONE, json, lost, problem, SAY, serving } from "./server.mjs";

test("an append is repeated with the same ids until it lands", () =>
  serving(
    [problem(503, "kafka-unavailable", { "Retry-After": "0.02" }), lost, cut, json(202, DONE)],
    async (client, asked) => {
      assert.deepEqual(await client.append("c", [SAY, { ...SAY, id: "mine" }], { fence: 7 }), DONE);
      assert.equal(asked.length, 4);
      for (const { body } of asked) assert.deepEqual(body, asked[0].body);
      const [first, second] = asked[0].body;
      assert.match(
        first.id,
        /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      );
      assert.ok(
        Math.abs(Number.parseInt(first.id.replace("-", "").slice(0, 12), 16) - Date.now()) < 60_000,
      );
      assert.equal(second.id, "mine");
      assert.equal(asked[0].headers["fencing-token"], "7");
      assert.equal(asked[0].headers.authorization, "Bearer key");
    },
  ));

test("with an idempotency key the service makes the ids", () =>
  serving([json(202, DONE)], async (client, asked) => {
    await client.append("c", SAY, { idempotencyKey: "k1", wait: "applied" });
    assert.deepEqual(asked[0].body, [SAY]);
    assert.equal(asked[0].headers["idempotency-key"], "k1");
    assert.equal(asked[0].url, "/v1/conversations/c/events?wait=applied");
  }));

test("Retry-After is waited for, and 429 is repeated", () =>
  serving(
    [problem(429, "quota-exceeded", { "Retry-After": "0.3" }), json(202, DONE)],
    async (client) => {
      const begun = Date.now();
      await client.append("c", SAY);
      assert.ok(Date.now() - begun >= 295);
    },
  ));

test("what would take longer than allowed is thrown at once", () =>
  serving([problem(429, "quota-exceeded", { "Retry-After": "60" })], async (client, asked) => {
    await assert.rejects(client.append("c", SAY), {
      name: "RateLimited",
      status: 429,
      type: "quota-exceeded",
      retryAfter: 60,
    });
    assert.equal(asked.length, 1);
  }));

test("each problem is an error of its class, with the problem's fields", async () => {
  const classes = {
    400: "Malformed",
    401: "Unauthenticated",
    403: "NotAllowed",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    413: "TooLarge",
    422: "Invalid",
    429: "RateLimited",
    500: "Fault",
    503: "Unavailable",
  };
  for (const [status, name] of Object.entries(classes)) {
    await serving(
      [problem(Number(status), "a-type")],
      async (client) => {
        await assert.rejects(client.context("c"), (error) => {
          assert.ok(
            error instanceof threadfold[name] && error instanceof threadfold.ClientError,
            `${status}: ${error}`,
          );
          const { status: own, type, title, detail, message } = error;
          assert.deepEqual(
            [own, type, title, detail, message],
            [Number(status), "a-type", "A title", "about a-type", "about a-type"],
          );
          return true;
        });
      },
      { retries: 1 },
    );
  }
});

test("a proxy's page is an error by its status", () =>
  serving(
    [(response) => response.writeHead(502).end("<html>")],
    async (client) => {
      await assert.rejects(client.context("c"), {
        name: "Unavailable",
        status: 502,
        unknown: false,
      });
    },
    { retries: 1 },
  ));

test("a conflict after a lost answer may be the lost attempt", async () => {
  await serving([lost, problem(409, "conflict")], (client) =>
    assert.rejects(client.append("c", SAY, { expect: "0-1" }), { name: "Conflict", unknown: true }),
  );
  await serving([problem(409, "conflict")], async (client, asked) => {
    await assert.rejects(client.append("c", SAY, { expect: "0-1" }), {
      name: "Conflict",
      unknown: false,
    });
    assert.equal(asked[0].headers["if-match"], '"0-1"');
    await assert.rejects(client.append("c", SAY, { expect: "0-1", onlyIfNew: true }), {
      name: "Invalid",
    });
  });
});

test("what would act twice is repeated only after a refusal", async () => {
  const context = {
    render_digest: "d",
    position: "0-1",
    format: "openai",
    tokens: 3,
    summary: null,
    max_tokens: null,
  };
  await serving([lost], async (client, asked) => {
    await assert.rejects(client.recordCall("c", context, "m"), {
      name: "Unavailable",
      unknown: true,
    });
    assert.equal(asked.length, 1);
  });
  await serving([problem(503, "overloaded"), json(202, { id: "r1" })], async (client) =>
    assert.equal(await client.recordCall("c", context, "m"), "r1"),
  );
});

test("no answer in time is unavailable, and who was not reached did nothing", async () => {
  await serving(
    [() => new Promise(() => undefined)],
    (client) =>
      assert.rejects(client.context("c"), {
        name: "Unavailable",
        unknown: false,
        message: /did not answer in time$/,
      }),
    { timeout: 0.05, retries: 1 },
  );
  const nobody = new threadfold.Client("http://127.0.0.1:1", "key", {
    retries: 1,
    fetch: (request) => fetch(request),
  });
  // Port 1 is refused by fetch itself ("bad port"); a closed port of a server that ended is refused
  // by the system.
  await assert.rejects(nobody.context("c"), { name: "Unavailable" });
  let url = "";
  await serving([json(200, {})], async (client, asked) => {
    await client.context("c");
    url = `http://${asked[0].headers.host}`;
  });
  await assert.rejects(new threadfold.Client(url, "key", { retries: 1 }).append("c", SAY), {
    name: "Unavailable",
    unknown: false,
  });
});

test("of a call that got no answer, only one that writes may have taken effect", async () => {
  const maybe = /; it may have taken effect$/;
  for (const [answer, options] of [
    [lost, { retries: 1 }],
    [() => new Promise(() => undefined), { retries: 1, timeout: 0.05 }],
    [problem(503, "kafka-unavailable"), { retries: 1 }],
  ]) {
    await serving(
      [answer],
      async (client) => {
        const [written, read] = await Promise.all(
          [client.append("c", SAY), client.context("c")].map((call) =>
            call.catch((error) => error),
          ),
        );
        assert.deepEqual([written.unknown, read.unknown], [true, false]);
        assert.equal(maybe.test(written.message), !written.status);
        assert.doesNotMatch(read.message, maybe);
      },
      options,
    );
  }
});

test("an error that nobody caught is shown with a short line of the client", async () => {
  const module = new URL("../../dist/index.js", import.meta.url);
  const lines = (await readFile(module, "utf8")).split("\n");
  const longest = Math.max(...lines.map((line) => line.length));
  assert.ok(longest < 800, `a line of ${longest} characters would be printed`);
});

test("a name that a URL cannot carry, and an address that is none, are refused", async () => {
  const client = new threadfold.Client("http://127.0.0.1:1/", "key");
  for (const name of ["", ".", "..", "a/b", "ä", "x".repeat(129), undefined, null, 5]) {
    await assert.rejects(client.append(name, SAY), { name: "Invalid", status: 422 });
  }
  for (const user of ["", ".", "..", undefined, null]) {
    await assert.rejects(client.eraseUser(user), { name: "Invalid", status: 422 });
  }
  await assert.rejects(client.append("c", SAY, { idempotencyKey: "a\nb" }), { name: "Invalid" });
  assert.throws(() => new threadfold.Client("localhost:8080", "key"), { name: "Invalid" });
});

test("an option of another name is refused, and the right ones are named", async () => {
  const client = new threadfold.Client("http://127.0.0.1:1/", "key", { retries: 1 });
  const calls = {
    append: [["c", SAY], "wait idempotencyKey signal expect onlyIfNew fence"],
    appendMessages: [["c", SAY], "wait idempotencyKey signal expect onlyIfNew fence format"],
    appendMany: [[[SAY]], "wait idempotencyKey signal"],
    context: [["c"], "format maxTokens after signal"],
    history: [["c"], "before limit types after signal"],
    iterHistory: [["c"], "before page types"],
    event: [["c", "0-1"], "offset limit signal"],
    summaries: [[], "cursor fromBeginning"],
    partial: [["c"], "turnId fence interval"],
    turn: [["c"], "policy seconds model turnId wait signal"],
    compact: [["c"], "fence"],
    recordCall: [["c", {}, "m"], "reportedUsage latencyMs policy"],
    saveMemories: [[{ text: "t" }], "wait"],
    saveSkill: [[{}], "wait"],
  };
  for (const [name, [given, names]] of Object.entries(calls)) {
    const message = `option 'max_tokens' is unknown: use ${names.split(" ").join(", ")}`;
    await assert.rejects(
      async () => client[name](...given, { max_tokens: 5 }),
      { name: "Invalid", message },
      name,
    );
  }
  await assert.rejects(client.rollback("c", "0-1", { only_if_new: true }), { name: "Invalid" });
  for (const options of [{ timeuot: 1 }, { retries: { attemps: 2 } }])
    assert.throws(() => new threadfold.Client("http://a", "key", options), /is unknown: use /);
});

test("one type of history may be a text, and none is no filter", () =>
  serving([json(200, { events: [], next_before: null })], async (client, asked) => {
    for (const types of ["message", ["message"], ["message", "rollback"], [], undefined]) {
      await client.history("c", { types });
      for await (const _ of client.iterHistory("c", { types, page: 2 }));
    }
    const wanted = ["message", "message", "message,rollback", null, null].flatMap((t) => [t, t]);
    const found = asked.map(({ url }) => new URL(url, "http://a").searchParams.get("type"));
    assert.deepEqual(found, wanted);
  }));

test("an append of nothing is refused, and the service refuses what is not an object", () =>
  serving([json(202, DONE)], async (client, asked) => {
    for (const nothing of [undefined, null])
      for (const options of [{}, { idempotencyKey: "k" }])
        await assert.rejects(client.append("c", nothing, options), {
          name: "Invalid",
          message: `${nothing} cannot be appended: give an event or a list`,
        });
    await client.append("c", [null, "hi", 5]);
    assert.deepEqual(
      asked.map(({ body }) => body),
      [[null, "hi", 5]],
    );
  }));

test("a token is asked for once, and again when it expired", async () => {
  let asked = 0;
  const token = async () => `t${(asked += 1)}`;
  const answer = (response, { headers }) =>
    (headers.authorization === "Bearer t1" && expired
      ? problem(401, "unauthorized")
      : json(200, { tokens: 1 }))(response);
  let expired = false;
  await serving(
    [answer],
    async (client) => {
      await Promise.all([client.context("c"), client.context("c"), client.context("c")]);
      assert.equal(asked, 1);
      expired = true;
      await Promise.all([client.context("c"), client.context("c")]);
      assert.equal(asked, 2);
    },
    {},
    token,
  );
  await serving(
    [problem(401, "unauthorized")],
    async (client, requests) => {
      await assert.rejects(client.context("c"), { name: "Unauthenticated" });
      assert.equal(requests.length, 2);
    },
    {},
    token,
  );
});

test("a token that cannot be had for a while is asked for again", async () => {
  let failures = 2;
  const token = () => {
    if ((failures -= 1) >= 0) throw new Error("the page's server is away");
    return "t";
  };
  await serving([json(200, {})], (client) => client.context("c"), {}, token);
  await serving(
    [json(200, {})],
    (client) => assert.rejects(client.context("c"), { name: "Unavailable", message: /always/ }),
    { retries: 2 },
    () => Promise.reject(new Error("always")),
  );
  const out = new threadfold.Unauthenticated("signed out");
  await serving(
    [json(200, {})],
    (client) => assert.rejects(client.context("c"), out),
    {},
    () => Promise.reject(out),
  );
});

test("a call ends by its signal, and all calls when the client is closed", async () => {
  const never = () => new Promise(() => undefined);
  await serving([never], async (client) => {
    const stop = new AbortController();
    const call = client.context("c", { signal: stop.signal });
    stop.abort(new Error("not needed any more"));
    await assert.rejects(call, { message: "not needed any more" });
  });
  await serving([never], async (client) => {
    const call = client.context("c");
    client.close();
    await assert.rejects(call, { name: "ClientClosed" });
    await assert.rejects(client.context("c"), { name: "ClientClosed" });
  });
});

test("lists are read page by page", () =>
  serving(
    [
      json(200, { conversations: [{ conversation: "a" }], next_before: "x" }),
      json(200, { conversations: [{ conversation: "b" }], next_before: null }),
    ],
    async (client, asked) => {
      const found = [];
      for await (const { conversation } of client.conversations({ user: "u" }))
        found.push(conversation);
      assert.deepEqual(found, ["a", "b"]);
      assert.deepEqual(
        asked.map(({ url }) => url),
        ["/v1/conversations?user=u", "/v1/conversations?user=u&before=x"],
      );
    },
  ));

test("an answer that cannot be used is like none", async () => {
  const raw =
    (status, body, headers = {}) =>
    (response) =>
      response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(body);
  const spoilt = {
    cut: raw(202, '{"events": [{"id": "x", "posi'),
    empty: raw(202, ""),
    page: raw(200, "<html>hi</html>", { "Content-Type": "text/html" }),
    list: json(200, []),
    "another form": json(200, { ok: true }),
    redirect: raw(302, "", { Location: "/login" }),
    "a redirect with an object": json(307, DONE, { Location: "/login" }),
  };
  for (const [name, answer] of Object.entries(spoilt)) {
    await serving([answer, json(202, DONE)], async (client, asked) => {
      assert.deepEqual(await client.append("c", SAY), DONE, name);
      assert.equal(asked.length, 2);
      assert.deepEqual(asked[1].body, asked[0].body);
    });
    await serving([answer], async (client, asked) => {
      const lost = { name: "Unavailable", unknown: true, message: /; it may have taken effect$/ };
      await assert.rejects(client.append("c", SAY), lost, name);
      await assert.rejects(client.saveMemories({ text: "t" }), lost, name);
      assert.equal(asked.length, 12);
      if (name === "another form") return; // the form of these is not checked
      await assert.rejects(client.reportOutcome("m", true), lost, name);
      assert.equal(asked.length, 13);
      await assert.rejects(client.history("c"), { name: "Unavailable", unknown: false }, name);
    });
  }
  await serving([spoilt.empty, problem(409, "conflict")], (client) =>
    assert.rejects(client.append("c", SAY, { expect: "0-1" }), { name: "Conflict", unknown: true }),
  );
});

test("many calls at a time give no warning", async () => {
  const warnings = [];
  const note = (warning) => warnings.push(warning.name);
  process.on("warning", note);
  await serving([json(202, DONE)], async (client) => {
    await Promise.all(Array.from({ length: 30 }, () => client.append("c", SAY)));
  });
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", note);
  assert.deepEqual(warnings, []);
});
