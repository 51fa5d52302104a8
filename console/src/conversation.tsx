// One conversation: its window, live or as it was, its log, its model calls.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { PartialText, Turns } from "../../clients/typescript/dist/models.js";
import { type Me, Problem, get, v1 } from "./api";
import { CallsView } from "./calls";
import { newClient } from "./client";
import { messageOf } from "./load";
import { KEPT, LogView } from "./log";
import { MemoriesView } from "./memories";
import { Notice, Title, clock, link, number, words } from "./parts";
import { PastView } from "./past";
import { SuspensionCard, cannotAnswer } from "./suspensions";
import type { LoggedEvent, WindowShown } from "./types";
import { Text, WindowView } from "./window";

/** The views of a conversation, and whether a token of an end user opens each. */
const TABS: [string, string, boolean][] = [
  ["", "Window", true],
  ["then", "As it was", false],
  ["log", "Log", true],
  ["calls", "Model calls", false],
  ["memories", "Memories", true],
];
/** Milliseconds between two reads of the window, and after one that failed for a while. */
const PAUSE = 500;
const AWAY = 2000;

interface Live {
  shown: WindowShown | null;
  turns: Turns | null;
  /** When the turn's lease ends, unless it is renewed. */
  leased: Date | null;
  partial: string;
  events: LoggedEvent[];
  connected: boolean;
  /** Whether the stream was open at all: from then on no event is missed. */
  joined: boolean;
  error: string;
}

const NOTHING: Live = { shown: null, turns: null, leased: null, partial: "", events: [], connected: false, joined: false, error: "" };

/** The window, kept up with the stream: it is read again once a batch of events is over, twice a second at most. */
function useLive(name: string, own: boolean): [Live, () => void] {
  const [live, setLive] = useState<Live>(NOTHING);
  const nudge = useRef<() => void>(() => undefined);
  useEffect(() => {
    const end = new AbortController();
    const change = (part: (old: Live) => Partial<Live>): void => {
      if (!end.signal.aborted) setLive((old) => ({ ...old, ...part(old) }));
    };
    const client = newClient((connected) => change(() => ({ connected })));
    const received: LoggedEvent[] = [];
    let stale = false;
    let reading = false;
    const read = async (): Promise<void> => {
      stale = true;
      if (reading) return;
      reading = true;
      while (stale && !end.signal.aborted) {
        stale = false;
        let pause = PAUSE;
        try {
          const [shown, turns] = await Promise.all([
            get<WindowShown>(v1(["conversations", name, "window"]), end.signal),
            own ? null : client.turns(name), // not for end users
          ]);
          const leased = turns?.live ? new Date(Date.now() + turns.live.seconds * 1000) : null;
          const fresh = received.splice(0);
          change((old) => ({ shown, turns, leased, error: "", events: [...old.events, ...fresh].slice(-KEPT) }));
        } catch (problem) {
          change(() => ({ error: messageOf(problem) }));
          // The gateway, or what it reads, is away: it is tried again, whether events come or not.
          const away = problem instanceof Problem && (problem.status === 0 || problem.status >= 500);
          stale ||= away;
          pause = away ? AWAY : PAUSE;
        }
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
      reading = false;
    };
    nudge.current = () => void read();
    setLive(NOTHING);
    void read();
    const listen = async (): Promise<void> => {
      for await (const { event, data } of client.subscribe(name)) {
        if (event === "partial") {
          change(({ partial }) => ({ partial: grown(partial, data) }));
        } else {
          if (event === "state") change(() => ({ joined: true }));
          else received.push(data as LoggedEvent);
          void read();
        }
      }
    };
    listen().catch((problem: unknown) => change(() => ({ error: messageOf(problem), connected: false })));
    return () => {
      end.abort();
      client.close();
    };
  }, [name, own]);
  return [live, () => nudge.current()];
}

/** Offsets count code points; what was missed is in the next piece from 0. */
function grown(text: string, piece: PartialText): string {
  if (piece.ended !== undefined) return "";
  return [...text].slice(0, piece.offset).join("") + (piece.delta ?? "");
}

interface Props {
  name: string;
  tab: string;
  me: Me;
}

export function ConversationPage({ name, tab: asked, me }: Props): JSX.Element {
  const own = me.user !== undefined;
  const tabs = TABS.filter(([, , forEndUsers]) => forEndUsers || !own);
  const tab = tabs.some(([path]) => path === asked) ? asked : "";
  const [live, again] = useLive(name, own);
  const { shown } = live;
  return (
    <>
      <Title more={<span class={live.connected ? "badge on" : "badge"}>{live.connected ? "live" : "not live"}</span>}>{name}</Title>
      {shown ? <Facts shown={shown} live={live} own={own} /> : null}
      <Notice error={live.error} />
      {shown?.suspensions.map((one) => (
        <SuspensionCard
          key={one.suspension_id}
          conversation={name}
          suspension={one}
          cannot={cannotAnswer(me)}
          done={again}
        />
      ))}
      <nav class="tabs" aria-label="Views of the conversation">
        {tabs.map(([path, title]) => (
          <a key={path} href={link.conversation(name, path)} aria-current={tab === path ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {tab === "" && shown ? <WindowView conversation={name} shown={shown} /> : null}
      {tab === "" && live.partial ? (
        <section class="message lane-tail" aria-label="Text in progress">
          <p class="meta">
            <strong>assistant</strong> <span class="badge">in progress</span>
          </p>
          <Text text={live.partial} />
        </section>
      ) : null}
      {tab === "then" ? <PastView conversation={name} live={live.events} /> : null}
      {tab === "log" ? <LogView conversation={name} live={live.events} joined={live.joined} /> : null}
      {tab === "calls" ? <CallsView conversation={name} /> : null}
      {tab === "memories" ? <MemoriesView conversation={name} /> : null}
    </>
  );
}

/** `own`: turns are not shown to end users. */
function Facts({ shown, live, own }: { shown: WindowShown; live: Live; own: boolean }): JSX.Element {
  const { turns, leased } = live;
  const turn = turns?.live;
  const facts: [string, string][] = [
    ["State", words(shown.state)],
    ["Events", number(shown.count)],
    ["Position", shown.position ?? "none"],
  ];
  if (!own) facts.push(["Turn", turn ? `${turn.turn_id} (token ${turn.fencing_token}), until ${clock(leased)}` : "none"]);
  if (turns?.waiting.length) facts.push(["Turns that wait", turns.waiting.join(", ")]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
