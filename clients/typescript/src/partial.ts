/**
 * Assistant text in progress: deltas are sent as the model gives them, and the whole becomes a
 * message at the end.
 */

import { closing, pause } from "./caller.js";
import { Conflict, Invalid, isPassing, TooLarge, type ClientError } from "./errors.js";
import { newId } from "./ids.js";
import type { Appended, NewMessage } from "./models.js";

/** Code points in one request. */
const MAX_DELTA = 64_000;

/** How the text is sent, and how its message is appended. */
export interface PartialCalls {
  send(body: { turn_id: string; delta: string; offset: number }): Promise<{ offset: number }>;
  append(message: NewMessage): Promise<Appended>;
}

/**
 * Writes one message in progress. Made by `client.partial`.
 *
 * `write` does not wait for the network. The first text goes at once. Then one request is under way
 * at a time, and one begins every `interval` seconds at most; text written meanwhile goes out with
 * the next one. Each request names its first character, so it may be repeated. While the service is
 * away, `trouble` holds the error and the text waits for the next request. Only a refusal of this
 * writer throws: its turn is over, or the conversation was erased.
 */
export class PartialWriter {
  readonly turnId: string;
  /** Why text cannot be sent at the moment, or null. */
  trouble: ClientError | null = null;
  /** The answer to the append of its message, once it ended. */
  appended: Appended | null = null;
  readonly #calls: PartialCalls;
  readonly #interval: number;
  #id = newId();
  /** All that was written, by code points: the service counts these. */
  readonly #characters: string[] = [];
  #half = "";
  #sent = 0;
  #refused: ClientError | null = null;
  #sending: Promise<void> | null = null;
  #ending = false;
  #restarted = false;
  #next = 0;
  #rest = new AbortController();

  constructor(calls: PartialCalls, turnId: string, interval: number) {
    if (!(Number.isFinite(interval) && interval >= 0)) {
      throw new Invalid(`interval is ${interval}: expected seconds, 0 or more`);
    }
    this.#calls = calls;
    this.turnId = turnId;
    this.#interval = interval * 1000;
  }

  /** All that was written; half of a character without its other half is U+FFFD. */
  get text(): string {
    return wellFormed(this.#characters.join("") + this.#half);
  }

  /** Add text; throws the ClientError with which an earlier part was refused for good. */
  async write(delta: string): Promise<void> {
    if (this.#refused) throw this.#refused;
    for (const character of this.#half + delta) this.#characters.push(character);
    // A model may cut a character in two; its first half waits for the second.
    const cut = /^[\uD800-\uDBFF]$/.test(this.#characters.at(-1)!);
    this.#half = cut ? this.#characters.pop()! : "";
    if (this.#unsent) void this.#begin();
  }

  /**
   * Wait until all text is sent, or `trouble` says why it cannot be sent now; throws like `write`.
   */
  async flush(): Promise<void> {
    while (this.#unsent && !this.#refused) {
      const sending = this.#begin();
      this.#next = 0;
      this.#rest.abort();
      await sending;
      if (this.trouble) break;
    }
    if (this.#refused) throw this.#refused;
  }

  /**
   * End it with its message: the text written, with `fields` (model, usage, tool_calls); `content`
   * there takes the text's place. Throws a ClientError if the append failed; repeat it, which
   * changes nothing if it landed.
   */
  async finish(fields: Partial<NewMessage> = {}): Promise<Appended> {
    await this.#settle();
    if (!this.appended) {
      const content = this.text || (fields.tool_calls?.length ? null : "");
      this.appended = await this.#append({ content, ...fields });
    }
    return this.appended;
  }

  /** End it as an interrupted message of the text so far; null without any. */
  async interrupt(): Promise<Appended | null> {
    await this.#settle();
    if (!this.appended && this.text)
      this.appended = await this.#append({ content: this.text, status: "interrupted" });
    return this.appended;
  }

  /**
   * Run `work`, and keep the text as an interrupted message if it ends or throws without `finish`.
   */
  run<T>(work: (writer: this) => T | Promise<T>): Promise<T> {
    return closing(
      () => work(this),
      () => this.interrupt(),
    );
  }

  get #unsent(): boolean {
    return this.#sent < this.#characters.length;
  }

  /**
   * The message has one id, that of `fields` or its own: a repeat, also after a failed `finish`,
   * cannot be a second message.
   */
  #append(fields: Partial<NewMessage>): Promise<Appended> {
    this.#id = fields.id || this.#id;
    return this.#calls.append({ type: "message", role: "assistant", ...fields, id: this.#id });
  }

  /** Let a request under way end; unsent text is in the message that follows. */
  async #settle(): Promise<void> {
    this.#ending = true;
    this.#rest.abort();
    await this.#sending;
  }

  /** Send what is unsent, unless that is under way. */
  #begin(): Promise<void> {
    this.#sending ??= this.#sendUnsent().finally(() => (this.#sending = null));
    return this.#sending;
  }

  /** Wait until the next request may begin, or somebody waits for it. */
  async #pause(): Promise<void> {
    this.#rest = new AbortController();
    const left = this.#next - Date.now();
    if (left > 0) await pause(left, this.#rest.signal).catch(() => undefined);
    this.#next = Date.now() + this.#interval;
  }

  async #sendUnsent(): Promise<void> {
    while (this.#unsent) {
      await this.#pause();
      if (this.#ending) return;
      const part = this.#characters.slice(this.#sent, this.#sent + MAX_DELTA);
      try {
        const { offset } = await this.#calls.send({
          turn_id: this.turnId,
          delta: wellFormed(part.join("")),
          offset: this.#sent,
        });
        this.trouble = null;
        this.#restarted = false;
        // The service answers how much it has: less after a restart, and then it gets the rest
        // again.
        this.#sent =
          offset === this.#sent ? offset + part.length : Math.min(offset, this.#characters.length);
      } catch (error) {
        if (isPassing(error) || error instanceof TooLarge) {
          this.trouble = error;
          return;
        }
        if (!(error instanceof Conflict) || !this.#sent || this.#restarted) {
          this.#refused = error as ClientError;
          return;
        }
        // The service may have lost the text: send it from the beginning, it ignores what it has.
        this.#sent = 0;
        this.#restarted = true;
      }
    }
  }
}

/** JSON has no half of a surrogate pair. */
function wellFormed(text: string): string {
  return text.replace(/\p{Cs}/gu, "\uFFFD");
}
