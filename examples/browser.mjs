// A chat page's part that talks to threadfold: it shows the user's conversation and follows it, says what the user writes, and renews its token.
// For browsers, without dependencies (also Node 22 or newer with --experimental-eventsource).
//
//   const chat = follow({ url: "https://threadfold.example", conversation: "support-42", token, show, failed });
//   await chat.say("Where is my order?");
//
// `token` is a function of yours that asks YOUR server for a token of the user who is logged in. Your server has the tenant's key; the page never does.
// `show(kind, data)` gets each `event`, `partial`, `summary` and `state`; `failed(reason)` is called when there is nothing more to try.

const PAUSE = 2_000;

export function follow({ url, conversation, token, show, failed = console.error }) {
  const base = `${url}/v1/conversations/${encodeURIComponent(conversation)}`;
  let source = null;
  let last = null; // the position of the last event: a new stream goes on after it
  let closed = false;

  async function open() {
    if (closed) return;
    let given;
    try {
      given = await token();
    } catch (error) {
      return failed(`no token: ${error.message}`);
    }
    if (last === null) {
      const headers = { Authorization: `Bearer ${given}` };
      const past = await fetch(`${base}/history?limit=50`, { headers }).catch(() => null);
      if (!past?.ok) return past?.status === 401 || past?.status === 403 ? failed((await past.json()).detail) : again();
      const { events } = await past.json(); // newest first
      for (const event of events.reverse()) show("event", event);
      last = events.at(-1)?.position ?? null;
    }
    if (closed) return;
    // EventSource sends no headers, so the token is in the query, which only streams accept.
    const query = new URLSearchParams({ token: given, ...(last ? { after: last } : {}) });
    source = new EventSource(`${base}/stream?${query}`);
    for (const kind of ["event", "partial", "summary", "state"]) {
      source.addEventListener(kind, (message) => {
        if (message.lastEventId) last = message.lastEventId;
        show(kind, JSON.parse(message.data));
      });
    }
    source.onerror = () => {
      // A broken connection is opened again by the browser. What the gateway refused (the token expired) stays closed: ask for a new token.
      if (source.readyState === EventSource.CLOSED) again();
    };
  }

  function again() {
    setTimeout(open, PAUSE);
  }

  async function say(content) {
    const body = JSON.stringify({ role: "user", content, id: crypto.randomUUID() }); // the id makes a repeat safe
    for (let attempt = 1; ; attempt++) {
      let answer = null;
      try {
        const headers = { "Content-Type": "application/json", Authorization: `Bearer ${await token()}` };
        answer = await fetch(`${base}/messages`, { method: "POST", headers, body });
      } catch {
        // no connection: repeat
      }
      if (answer?.ok) return answer.json();
      if (attempt === 5 || (answer && answer.status !== 429 && answer.status < 500)) {
        throw new Error(answer ? (await answer.json()).detail : "the gateway cannot be reached");
      }
      await new Promise((done) => setTimeout(done, 1000 * Number(answer?.headers.get("Retry-After") ?? attempt)));
    }
  }

  open();
  return {
    say,
    close() {
      closed = true;
      source?.close();
    },
  };
}
