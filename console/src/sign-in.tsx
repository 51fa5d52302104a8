// Sign in with a key, a token of the deployment, or one of an end user. It is kept for this tab, until the tab is closed.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Me, get, storeKey } from "./api";
import { useAction } from "./load";
import { Notice } from "./parts";

export function SignIn({ reason, signedIn }: { reason: string; signedIn: (me: Me) => void }): JSX.Element {
  const [key, setKey] = useState("");
  const { run, busy, error } = useAction();
  const signIn = (event: Event): void => {
    event.preventDefault();
    void run(async () => {
      storeKey(key.trim());
      try {
        signedIn(await get<Me>("v1/me"));
      } catch (problem) {
        storeKey(null);
        throw problem;
      }
    });
  };
  return (
    <main class="sign-in">
      <h1>threadfold</h1>
      <form class="card" onSubmit={signIn}>
        <label class="wide">
          Key or token
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        <p>
          <button class="main" disabled={busy}>
            Sign in
          </button>
        </p>
        <p>
          <small>It is kept in this tab alone, and forgotten when the tab is closed.</small>
        </p>
        <Notice error={error || reason} />
      </form>
    </main>
  );
}
