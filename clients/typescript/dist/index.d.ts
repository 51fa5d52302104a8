/** The client of threadfold for browsers and Node: conversations over HTTP. */
export { type Conditions, type Retries } from "./caller.js";
export { Client, type AppendOptions, type CallOptions, type ClientOptions } from "./client.js";
export { ClientClosed, ClientError, Conflict, Fault, Gone, Invalid, Malformed, NotAllowed, NotFound, RateLimited, TooLarge, Unauthenticated, Unavailable, } from "./errors.js";
export type { Credential } from "./http.js";
export type * from "./models.js";
export { PartialWriter } from "./partial.js";
export { SseParser, type ServerSent } from "./sse.js";
export { Subscription } from "./subscription.js";
export { Turn, type TurnOptions } from "./turn.js";
export type { components, paths } from "../types/openapi.js";
