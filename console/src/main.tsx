// The console: who is signed in, and which view the address names.

import { type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Me, Problem, get, storeKey, storedKey } from "./api";
import { ConversationPage } from "./conversation";
import { Approvals, Conversations } from "./conversations";
import { messageOf } from "./load";
import { SignIn } from "./sign-in";

function App(): JSX.Element | null {
  const [me, setMe] = useState<Me | null>(null);
  const [reason, setReason] = useState("");
  const [asked, setAsked] = useState(false);
  const [path, setPath] = useState(location.hash);
  useEffect(() => {
    const moved = (): void => setPath(location.hash);
    addEventListener("hashchange", moved);
    // Without a key it is asked, too: a gateway with auth off needs none.
    get<Me>("v1/me")
      .then(setMe)
      .catch((problem: unknown) => {
        const refused = problem instanceof Problem && problem.status === 401;
        setReason(refused && !storedKey() ? "" : messageOf(problem));
        if (refused) storeKey(null);
      })
      .finally(() => setAsked(true));
    return () => removeEventListener("hashchange", moved);
  }, []);
  const signOut = (): void => {
    storeKey(null);
    setReason("");
    setMe(null);
    location.hash = "";
  };
  if (me) return <Frame me={me} path={path} signOut={signOut} />;
  return asked ? <SignIn reason={reason} signedIn={setMe} /> : null;
}

const VIEWS: [string, string][] = [
  ["conversations", "Conversations"],
  ["approvals", "Approvals"],
];

function Frame({ me, path, signOut }: { me: Me; path: string; signOut: () => void }): JSX.Element {
  const main = useRef<HTMLElement>(null);
  const parts = path.replace(/^#\//, "").split("/").filter(Boolean).map(decodeURIComponent);
  const [view = "conversations", name = "", tab = ""] = parts;
  useEffect(() => {
    document.title = `${name || (VIEWS.find(([at]) => at === view)?.[1] ?? "")} – threadfold`;
    main.current?.focus({ preventScroll: true });
  }, [view, name]);
  return (
    <>
      <a class="skip" href={path || "#/"} onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <header>
        <nav aria-label="Views">
          {VIEWS.map(([at, title]) => (
            <a key={at} href={`#/${at}`} aria-current={view === at ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <p class="who">
          <span title={`scopes: ${me.scopes.join(", ")}`}>{me.tenant}</span>
          {storedKey() ? (
            <button type="button" onClick={signOut}>
              Sign out
            </button>
          ) : null}
        </p>
      </header>
      <main ref={main} tabIndex={-1}>
        <View me={me} view={view} name={name} tab={tab} />
      </main>
    </>
  );
}

function View({ me, view, name, tab }: { me: Me; view: string; name: string; tab: string }): JSX.Element {
  if (view === "conversations") {
    return name ? <ConversationPage name={name} tab={tab} scopes={me.scopes} /> : <Conversations />;
  }
  if (view === "approvals") return <Approvals mayAnswer={me.scopes.includes("append")} />;
  return <p role="alert">There is no such view.</p>;
}

render(<App />, document.body);
