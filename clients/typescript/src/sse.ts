/**
 * Server-sent events read from text: the parser of the HTML standard (section 9.2.6), without any
 * I/O.
 */

import { Fault } from "./errors.js";

/**
 * Characters of one event's lines at most; a stream that goes on without an end of event is
 * refused.
 */
const MAX_EVENT = 64 * 2 ** 20;

/**
 * One event of a stream: its name, the id that stood in it or null, and its data's lines joined.
 */
export interface ServerSent {
  event: string;
  id: string | null;
  data: string;
}

/**
 * Takes chunks of a stream as they come, split anywhere, and gives the events that are whole.
 *
 * A block with an id but no data is given with an empty name: it is where to resume. An event that
 * the stream's end cuts off is never given.
 */
export class SseParser {
  #part = "";
  #skipFeed = false;
  #event = "";
  #id: string | null = null;
  #data: string[] = [];
  #size = 0;

  /**
   * The events that this chunk completes, in order; throws Fault if one goes on beyond 64 Mi
   * characters.
   */
  feed(chunk: string): ServerSent[] {
    // The line before ended with CR, the last character there was: a LF that follows belongs to it.
    const text = this.#skipFeed && chunk.startsWith("\n") ? chunk.slice(1) : chunk;
    if (chunk) this.#skipFeed = chunk.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    lines[0] = this.#part + lines[0]!;
    this.#part = lines.pop()!;
    const found: ServerSent[] = [];
    for (const line of lines) {
      this.#size += line.length;
      if (line) this.#field(line);
      else this.#end(found);
    }
    if (this.#size + this.#part.length > MAX_EVENT) {
      throw new Fault("the stream's event is too long");
    }
    return found;
  }

  #field(line: string): void {
    const [, name, value = ""] = /^([^:]*):? ?(.*)/s.exec(line)!;
    if (name === "data") this.#data.push(value);
    if (name === "event") this.#event = value;
    if (name === "id" && !value.includes("\0")) this.#id = value;
    // A line without a name is a comment: it only keeps the connection alive.
  }

  #end(found: ServerSent[]): void {
    if (this.#data.length)
      found.push({ event: this.#event || "message", id: this.#id, data: this.#data.join("\n") });
    else if (this.#id !== null) found.push({ event: "", id: this.#id, data: "" });
    this.#event = "";
    this.#id = null;
    this.#data = [];
    this.#size = 0;
  }
}
