// The project's own client, as the person who is signed in; it reports whether its last stream is open.

import { Client } from "../../clients/typescript/dist/index.js";
import { storedKey } from "./api";

/** A client. `connected` is called with true when a stream opens, with false when one cannot be opened. */
export function newClient(connected: (yes: boolean) => void = () => undefined): Client {
  const base = new URL(".", location.href).href;
  const send = async (request: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const streams = request instanceof Request && request.headers.get("Accept") === "text/event-stream";
    try {
      const answer = await fetch(request, init);
      if (streams) connected(answer.ok);
      return answer;
    } catch (error) {
      if (streams) connected(false);
      throw error;
    }
  };
  return new Client(base, storedKey() ?? "", { fetch: send });
}
