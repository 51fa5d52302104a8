// Hooks: what a view shows is loaded, loaded again, and kept while it is.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ClientError } from "../../clients/typescript/dist/index.js";
import { Problem } from "./api";

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
