// The window as it was: a slider over the conversation's positions. The gateway folds it from the log.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, v1 } from "./api";
import { messageOf, useLoaded } from "./load";
import { Notice, many, number } from "./parts";
import type { LoggedEvent, WindowShown } from "./types";
import { WindowView } from "./window";

const MOST = 20000;
const REST = 150;

/** `live` are the events that came since the conversation was opened: the slider gets their positions, too. */
export function PastView({ conversation, live }: { conversation: string; live: LoggedEvent[] }): JSX.Element {
  const positions = useLoaded<{ positions: string[]; all: boolean }>(
    (signal) => get(v1(["conversations", conversation, "positions"], { limit: MOST }), signal),
    conversation,
  );
  const [chosen, setChosen] = useState<number | null>(null);
  const [shown, setShown] = useState<WindowShown | null>(null);
  const [error, setError] = useState("");
  const read = positions.value?.positions ?? [];
  const known = new Set(read);
  const all = [...read, ...live.map((event) => event.position).filter((one) => !known.has(one))];
  // It stays where it is while events come.
  const at = chosen ?? read.length - 1;
  const position = all[at];
  useEffect(() => {
    if (!position) return undefined;
    const end = new AbortController();
    const timer = setTimeout(() => {
      get<WindowShown>(v1(["conversations", conversation, "window"], { at: position }), end.signal)
        .then((found) => (setShown(found), setError("")))
        .catch((problem: unknown) => end.signal.aborted || setError(messageOf(problem)));
    }, REST);
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [conversation, position]);
  if (!positions.value) return <Notice error={positions.error} />;
  return (
    <>
      <div class="row slider">
        <button type="button" disabled={at <= 0} onClick={() => setChosen(at - 1)}>
          Earlier
        </button>
        <label class="wide">
          Event {number(at + 1)} of {number(all.length)}
          {positions.value.all ? "" : " newest"}, position {position}
          <input
            type="range"
            min={0}
            max={all.length - 1}
            value={at}
            aria-valuetext={`position ${position}`}
            onInput={(event) => setChosen(event.currentTarget.valueAsNumber)}
          />
        </label>
        <button type="button" disabled={at >= all.length - 1} onClick={() => setChosen(at + 1)}>
          Later
        </button>
      </div>
      <p role="status">{shown?.at === position ? `The window after ${many(shown?.count ?? 0, "event")}, by today's rules.` : "Folding…"}</p>
      <Notice error={error} />
      {shown ? <WindowView conversation={conversation} shown={shown} /> : null}
    </>
  );
}
