/** The calls of the long-term memory, for the client. */
import { type Caller } from "./caller.js";
import type { Filters, DeletedMemory, Memory, MemoryHits, MemorySearch, MemoryStats, NewMemory, NewSkill, SavedMemory, TimedMemories, Whose } from "./models.js";
/** What the client does with memories. */
export declare class MemoryCalls {
    #private;
    constructor(caller: Caller);
    /**
     * Save records. Returns `id` and `status` of each, `created`, `confirmed` or `revised`, once a
     * search finds them; `rejected` or `parked` for one that is not taken. With `wait: false` it
     * returns as soon as they are safe, without a status or with `unknown`.
     */
    saveMemories(memories: NewMemory | NewMemory[], options?: {
        wait?: boolean;
    }): Promise<SavedMemory[]>;
    /** Save how something is done. Returns as `saveMemories` does. */
    saveSkill(skill: NewSkill, options?: {
        wait?: boolean;
    }): Promise<SavedMemory>;
    /** The memories whose text fits, best first; `more` are the search's other fields. */
    searchMemories(query: string, more?: Omit<MemorySearch, "query">): Promise<MemoryHits>;
    /** One record, also a superseded one; `asOf` (RFC 3339): as it was known then. */
    memory(memoryId: string, options?: {
        asOf?: string;
    } & Whose): Promise<Memory>;
    /** A record between its neighbours in time, five on each side if nothing is said; oldest first. */
    memoryTimeline(memoryId: string, around?: {
        before?: number;
        after?: number;
    } & Whose): Promise<TimedMemories>;
    /** The records that stand, page by page, newest first. */
    memories(filters?: Filters<"/v1/memories">): AsyncGenerator<Memory, void, undefined>;
    /** The skills that stand, page by page, newest first. */
    skills(filters?: Filters<"/v1/skills">): AsyncGenerator<Memory, void, undefined>;
    /** Delete a record or a skill. `hard`: its text leaves every store, for good. */
    deleteMemory(memoryId: string, options?: {
        hard?: boolean;
    } & Whose): Promise<DeletedMemory>;
    /** Report whether an action that used the record succeeded; returns the record. */
    reportOutcome(memoryId: string, succeeded: boolean, whose?: Whose): Promise<Memory>;
    /** How many records there are: of a user, or of those given. */
    memoryStats(of?: string | Whose): Promise<MemoryStats>;
}
