/**
 * The documents of the contract by name. Their fields are those of the gateway's OpenAPI document.
 */

import type { components, paths } from "../types/openapi.js";

type Schemas = components["schemas"];

export type NewEvent = Schemas["NewEvent"];
export type NewMessage = Schemas["NewMessage"];
export type NewOpenAIMessage = Schemas["NewOpenAIMessage"];
export type NewAnthropicMessage = Schemas["NewAnthropicMessage"];
export type LoggedEvent = Schemas["LoggedEvent"];
export type LoggedMessage = Schemas["LoggedMessage"];
export type LoggedSummary = Schemas["LoggedSummary"];
export type Appended = Schemas["Appended"];
export type AppendedOfSeveral = Schemas["AppendedOfSeveral"];
export type History = Schemas["History"];
export type ListedConversation = Schemas["ListedConversation"];
export type ListedSuspension = Schemas["ListedSuspension"];
export type Summary = Schemas["Summaries"]["summaries"][number];
export type TurnInfo = Schemas["Turn"];
export type Turns = Schemas["TurnsOfConversation"];
export type WorkingMemory = Schemas["WorkingMemory"];
export type NewMemory = Schemas["NewMemory"];
export type NewSkill = Schemas["NewSkill"];
export type SavedMemory = Schemas["SavedMemory"];
export type Memory = Schemas["Memory"];
export type MemorySearch = Schemas["MemorySearch"];
export type MemoryHits = Schemas["MemoryHits"];
export type MemoryStats = Schemas["MemoryStats"];
export type DeletedMemory = Schemas["DeletedMemory"];
export type TimedMemories = Schemas["Timeline"]["memories"];
export type Receipt = Schemas["Receipt"];
export type Receipts = Schemas["Receipts"];
export type NewToken = Schemas["NewToken"];
export type MintedToken = Schemas["MintedToken"];

export type ContextFormat = "openai" | "anthropic" | "events" | "rendered";
export type MessageFormat = "openai" | "anthropic";
export type TurnPolicy = "queue" | "reject" | "interrupt";
export type TurnStatus = "active" | "queued" | "over";

/** What a model is sent, and how it was asked for. */
export type Context = Schemas["Context"] & { format: ContextFormat; max_tokens: number | null };

/** The parameters of a list's query, but the cursors: pages follow each other by themselves. */
export type Filters<P extends keyof paths> = paths[P] extends {
  get: { parameters: { query?: infer Q } };
}
  ? Omit<NonNullable<Q>, "before" | "after" | "cursor">
  : never;

/** Whose memory: what is not theirs is not known. */
export type Whose = { user?: string; channel?: string; conversation?: string };

/** A state of a conversation, as its stream gives it. */
export type StreamState = Pick<Context, "state" | "tokens" | "suspensions"> & {
  summary: Omit<Schemas["ContextSummary"], "text"> | null;
  position: string | null;
};

/**
 * Text in progress: `offset` counts the Unicode code points before `delta`; with `ended` it is
 * over.
 */
export interface PartialText {
  turn_id: string;
  offset: number;
  delta?: string;
  ended?: "complete" | "interrupted";
}

/** One event of a conversation's stream; `id` resumes after it. */
export type StreamEvent =
  | { event: "event"; id: string; data: LoggedEvent }
  | { event: "summary"; id: string; data: LoggedSummary }
  | { event: "partial"; id: null; data: PartialText }
  | { event: "state"; id: null; data: StreamState };

/** One event of the stream of a tenant's summaries; `id` resumes after it. */
export type SummaryEvent =
  | { event: "summary"; id: string; data: LoggedSummary & { conversation: string } }
  | { event: "voided"; id: string; data: Schemas["SummaryVoided"] & { conversation: string } }
  | { event: "erased"; id: string; data: { conversation: string } }
  | { event: "missing"; id: string; data: MissingSummaries };

/** Offsets of a partition of the summaries topic whose records are lost: of any tenant. */
export interface MissingSummaries {
  partition: number;
  first: number;
  last: number;
}
