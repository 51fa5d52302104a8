// Answers of the gateway, as far as the console reads them (/openapi.json has them whole).

export interface Listed {
  conversation: string;
  active_at: string;
  state: string;
  /** Null where the window cannot be read. */
  position: string | null;
  count: number;
  tokens: number;
  user: string | null;
  channel: string | null;
  title: string | null;
  last_message: { role: string; text: string } | null;
}

export interface Suspension {
  suspension_id: string;
  kind: "approval" | "input" | "external";
  tool_call_id: string | null;
  prompt: string | null;
  expires_at: string | null;
  position: string;
}

export interface Shortening {
  reducer: string;
  at: string | null;
  tokens: number;
}

export interface ToolCall {
  id: string;
  function: { name: string; arguments: string };
}

export interface Message {
  role: string;
  content?: string | Part[] | null;
  name?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
}

export interface Part {
  type: string;
  text?: string;
  [field: string]: unknown;
}

export interface Item {
  lane: "system" | "summary" | "pinned" | "omitted" | "tail" | "closing";
  tokens: number;
  position: string | null;
  waiting: boolean;
  message: Message;
  full_tokens?: number;
  shortened?: Shortening[];
}

export interface WindowShown {
  at: string | null;
  position: string | null;
  count: number;
  digest: string;
  render_digest: string;
  tokens: number;
  tools_tokens: number;
  budget: number;
  ceiling: number;
  state: string;
  policy: string;
  guard: { tool: string; count: number } | null;
  summary: { summary_id: string; position: string; tokens: number; trust: string; to: string } | null;
  suspensions: Suspension[];
  trace: { reducer: string; messages_before: number; messages_after: number; tokens_before: number; tokens_after: number }[];
  messages: Item[];
  left_out: { position: string; full_tokens: number; shortened: Shortening[] }[];
  parked?: { position: string; cause: string; waiting: number };
}

export interface LoggedEvent {
  id: string;
  type: string;
  time: string | null;
  position: string;
  role?: string;
  content?: string | Part[] | null;
  text?: string;
  tool_calls?: { id: string; name: string; arguments: string }[];
  [field: string]: unknown;
}

export interface Call {
  id: string;
  time: string | null;
  record: { model: string; position: string; tokens: number; format: string; latency_ms?: number };
}
