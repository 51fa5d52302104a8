// Hooks: what a view shows is loaded, loaded again, and kept while it is.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ClientError } from "../../clients/typescript/dist/index.js";
import { Problem, get } from "./api";

export interface Loaded<T> {
  value: T | null;
  error: string;
  again: () => void;
}

/** What `load` gives; loaded anew when `of` changes, every `every` milliseconds if given, and by `again`. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, of: string, every = 0): Loaded<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState("");
  const [round, setRound] = useState(0);
  const shown = useRef(of);
  if (shown.current !== of) {
    shown.current = of;
    if (value !== null) setValue(null);
  }
  useEffect(() => {
    const end = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    load(end.signal)
      .then((found) => {
        setValue(() => found);
        setError("");
      })
      .catch((problem: unknown) => {
        if (!end.signal.aborted) setError(messageOf(problem));
      })
      .finally(() => {
        if (every && !end.signal.aborted) timer = setTimeout(() => setRound((n) => n + 1), every);
      });
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [of, round, every]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  return { value, error, again };
}

interface Page {
  next_before: string | null;
}

export interface Pages<P, T> {
  /** The newest page; it is loaded anew. */
  first: P | null;
  /** Of all pages that were loaded, the newest first, each once. */
  items: T[];
  /** Load the page after the last one; null: there is none. */
  more: (() => void) | null;
  /** Begin anew with the first page. */
  again: () => void;
  /** Load the first page anew; those after it stay. */
  renew: () => void;
  error: string;
}

/** A list that comes in pages. `path` is the request for the page before a cursor; `itemsOf` and `nameOf` read a page. */
export function usePages<P extends Page, T>(
  path: (before?: string) => string,
  itemsOf: (page: P) => T[],
  nameOf: (item: T) => string,
  every = 0,
): Pages<P, T> {
  const of = path();
  const { value: first, error, again: loadFirst } = useLoaded<P>((signal) => get(path(), signal), of, every);
  // The first page as it was when more were loaded is among them: what left it since is not lost.
  const [loaded, setLoaded] = useState<{ of: string; pages: P[] }>({ of, pages: [] });
  const { run, error: failed } = useAction();
  const pages = loaded.of === of ? loaded.pages : [];
  const all = first ? [first, ...pages] : [];
  const next = all.at(-1)?.next_before;
  const more = (before: string): void =>
    void run(async () => {
      const page = await get<P>(path(before));
      setLoaded({ of, pages: pages.length ? [...pages, page] : [...all, page] });
    });
  const again = (): void => {
    setLoaded({ of, pages: [] });
    loadFirst();
  };
  const items = new Map<string, T>();
  for (const item of all.flatMap(itemsOf)) if (!items.has(nameOf(item))) items.set(nameOf(item), item);
  const older = next ? (): void => more(next) : null;
  return { first, items: [...items.values()], more: older, again, renew: loadFirst, error: error || failed };
}

export interface Action {
  run: (act: () => Promise<unknown>) => Promise<void>;
  busy: boolean;
  error: string;
}

/** Something a button does: one at a time, with its error. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const run = async (act: () => Promise<unknown>): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await act();
    } catch (problem) {
      setError(messageOf(problem));
    } finally {
      setBusy(false);
    }
  };
  return { run, busy, error };
}

export function messageOf(problem: unknown): string {
  if (problem instanceof Problem || problem instanceof ClientError) return problem.status ? `${problem.message} (${problem.status})` : problem.message;
  return problem instanceof Error ? problem.message : String(problem);
}
