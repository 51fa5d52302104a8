// The console: who is signed in, and which view the address names.

import { type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Me, Problem, get, storeKey, storedKey } from "./api";
import { Care } from "./care";
import { ConversationPage } from "./conversation";
import { Approvals, Conversations } from "./conversations";
import { messageOf } from "./load";
import { Overview } from "./overview";
import { Reprojection } from "./reprojection";
import { SignIn } from "./sign-in";
import { TenantPage, Tenants } from "./tenants";
import { watch } from "./watch";

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

/** The views, and the scope that the key needs for each. */
const VIEWS: [string, string, string][] = [
  ["overview", "Overview", "read"],
  ["conversations", "Conversations", "read"],
  ["approvals", "Approvals", "read"],
  ["tenants", "Tenants", "admin"],
  ["reprojection", "Re-projection", "admin"],
  ["care", "Care", "read"],
];

/** The views that a token of an end user opens. */
const FOR_END_USERS = ["conversations"];

function Frame({ me, path, signOut }: { me: Me; path: string; signOut: () => void }): JSX.Element {
  const main = useRef<HTMLElement>(null);
  const parts = partsOf(path);
  const views = VIEWS.filter(([at, , scope]) => me.scopes.includes(scope) && (me.user === undefined || FOR_END_USERS.includes(at)));
  const [view = views[0]?.[0] ?? "", name = "", tab = ""] = parts;
  useEffect(() => {
    if (!me.scopes.includes("admin")) return undefined;
    watch.start();
    return () => watch.stop();
  }, [me]);
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
          {views.map(([at, title]) => (
            <a key={at} href={`#/${at}`} aria-current={view === at ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <p class="who">
          <span title={`scopes: ${me.scopes.join(", ")}`}>{me.user === undefined ? me.tenant : `${me.user} of ${me.tenant}`}</span>
          {storedKey() ? (
            <button type="button" onClick={signOut}>
              Sign out
            </button>
          ) : null}
        </p>
      </header>
      <main ref={main} tabIndex={-1}>
        {views.some(([at]) => at === view) ? (
          <View me={me} view={view} name={name} tab={tab} />
        ) : (
          <p role="alert">{views.length ? "There is no such view for you." : "This key or token lacks the scope read: there is nothing to show."}</p>
        )}
      </main>
    </>
  );
}

/** The parts of an address. What a person wrote may be no escape: it is taken as it is. */
function partsOf(path: string): string[] {
  const parts = path.replace(/^#\//, "").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return parts;
  }
}

function View({ me, view, name, tab }: { me: Me; view: string; name: string; tab: string }): JSX.Element {
  if (view === "conversations") {
    return name ? <ConversationPage key={name} name={name} tab={tab} me={me} /> : <Conversations own={me.user !== undefined} />;
  }
  const admin = me.scopes.includes("admin");
  if (view === "overview") return <Overview me={me} admin={admin} />;
  if (view === "tenants") return name ? <TenantPage key={name} name={name} /> : <Tenants />;
  if (view === "reprojection") return <Reprojection />;
  if (view === "care") return <Care me={me} />;
  return <Approvals me={me} />;
}

render(<App />, document.body);
