/** The calls of the long-term memory, for the client. */

import { known, type Caller } from "./caller.js";
import type {
  Filters,
  DeletedMemory,
  Memory,
  MemoryHits,
  MemorySearch,
  MemoryStats,
  NewMemory,
  NewSkill,
  SavedMemory,
  TimedMemories,
  Whose,
} from "./models.js";
import { newId } from "./ids.js";

/** What the client does with memories. */
export class MemoryCalls {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Save records. Returns `id` and `status` of each, `created`, `confirmed` or `revised`, once a
   * search finds them; `rejected` or `parked` for one that is not taken. With `wait: false` it
   * returns as soon as they are safe, without a status or with `unknown`.
   */
  saveMemories(
    memories: NewMemory | NewMemory[],
    options: { wait?: boolean } = {},
  ): Promise<SavedMemory[]> {
    return this.#saved("/memories", [memories].flat(), options);
  }

  /** Save how something is done. Returns as `saveMemories` does. */
  async saveSkill(skill: NewSkill, options: { wait?: boolean } = {}): Promise<SavedMemory> {
    return (await this.#saved("/skills", skill, options))[0]!;
  }

  /** The memories whose text fits, best first; `more` are the search's other fields. */
  searchMemories(query: string, more?: Omit<MemorySearch, "query">): Promise<MemoryHits> {
    return this.#caller.post("/memories/search", { query, ...more });
  }

  /** One record, also a superseded one; `asOf` (RFC 3339): as it was known then. */
  memory(memoryId: string, options: { asOf?: string } & Whose = {}): Promise<Memory> {
    const { asOf, ...whose } = options;
    return this.#caller.get(pathOf(memoryId), { as_of: asOf, ...whose });
  }

  /** A record between its neighbours in time, five on each side if nothing is said; oldest first. */
  async memoryTimeline(
    memoryId: string,
    around?: { before?: number; after?: number } & Whose,
  ): Promise<TimedMemories> {
    const found = this.#caller.get<{ memories: TimedMemories }>(
      `${pathOf(memoryId)}/timeline`,
      around,
    );
    return (await found).memories;
  }

  /** The records that stand, page by page, newest first. */
  memories(filters: Filters<"/v1/memories"> = {}): AsyncGenerator<Memory, void, undefined> {
    return this.#caller.pages("/memories", filters);
  }

  /** The skills that stand, page by page, newest first. */
  skills(filters: Filters<"/v1/skills"> = {}): AsyncGenerator<Memory, void, undefined> {
    return this.#caller.pages("/skills", filters);
  }

  /** Delete a record or a skill. `hard`: its text leaves every store, for good. */
  deleteMemory(memoryId: string, options?: { hard?: boolean } & Whose): Promise<DeletedMemory> {
    return this.#caller.delete(pathOf(memoryId), options);
  }

  /** Report whether an action that used the record succeeded; returns the record. */
  reportOutcome(memoryId: string, succeeded: boolean, whose?: Whose): Promise<Memory> {
    return this.#caller.post(
      `${pathOf(memoryId)}/outcome`,
      { succeeded },
      { query: whose, repeat: "refused" },
    );
  }

  /** How many records there are: of a user, or of those given. */
  memoryStats(of?: string | Whose): Promise<MemoryStats> {
    return this.#caller.get("/memories/stats", typeof of === "string" ? { user: of } : of);
  }

  async #saved(path: string, body: unknown, options: { wait?: boolean }): Promise<SavedMemory[]> {
    const { wait = true } = known(options, "wait");
    const more = {
      query: { wait: wait ? "applied" : null },
      headers: { "Idempotency-Key": newId() },
      has: "memories",
    };
    return (await this.#caller.post<{ memories: SavedMemory[] }>(path, body, more)).memories;
  }
}

function pathOf(memoryId: string): string {
  return `/memories/${encodeURIComponent(memoryId)}`;
}
