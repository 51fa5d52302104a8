// Made from the OpenAPI document by `make typescript`. Do not edit.

export interface paths {
    "/v1/conversations/{conversation}/events": {
        /**
         * Append events
         * @description Append one event, or a list of at most 500, to a conversation. All are checked before any is
         *     appended. They land in order.
         *
         *     Scope: `append`. Also for end users.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                    /** @description a position, quoted or not: 409 if other events than summaries and turns were appended after it */
                    "If-Match"?: string;
                    /** @description `*`: 409 unless the conversation is new. Not beside `If-Match` */
                    "If-None-Match"?: "*";
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OneOrMoreEvents"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
                /** @description The events are safe in the log. An event that came with an id has the status `unknown`: it may be a repeat, whose `position` is its own here. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/messages": {
        /**
         * Append messages
         * @description Append one message, or a list of at most 500, in OpenAI's chat format or in Anthropic's.
         *
         *     One Anthropic message may become several events, at most 500 in all. The answer lists each
         *     event, in order. Send Anthropic's `system` as a first message with the role system.
         *
         *     Scope: `append`. Also for end users.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `openai` or `anthropic` */
                    format?: "openai" | "anthropic";
                    /** @description `refuse` or `ignore`: what to do with fields that the format does not have */
                    unknown?: "refuse" | "ignore";
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                    /** @description a position, quoted or not: 409 if other events than summaries and turns were appended after it */
                    "If-Match"?: string;
                    /** @description `*`: 409 unless the conversation is new. Not beside `If-Match` */
                    "If-None-Match"?: "*";
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OneOrMoreMessages"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
                /** @description The events are safe in the log. An event that came with an id has the status `unknown`: it may be a repeat, whose `position` is its own here. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
            };
        };
    };
    "/v1/events": {
        /**
         * Append events of several conversations
         * @description Append events of several conversations. Each event names its `conversation`. They land in
         *     order within each conversation.
         *
         *     `positions` has the last position of each conversation: use it as `after`.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OneOrMoreEventsOfSeveral"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["AppendedOfSeveral"];
                    };
                };
                /** @description The events are safe in the log. An event that came with an id has the status `unknown`: it may be a repeat, whose `position` is its own here. */
                202: {
                    content: {
                        "application/json": components["schemas"]["AppendedOfSeveral"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/rollback": {
        /**
         * Roll back
         * @description Go back to a position, or to one of the last 1,024 events by its id. Later events stay in the
         *     log and leave the window.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                    /** @description a position, quoted or not: 409 if other events than summaries and turns were appended after it */
                    "If-Match"?: string;
                    /** @description `*`: 409 unless the conversation is new. Not beside `If-Match` */
                    "If-None-Match"?: "*";
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["RollbackTarget"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
                /** @description The events are safe in the log. An event that came with an id has the status `unknown`: it may be a repeat, whose `position` is its own here. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/close": {
        /**
         * Close the session
         * @description Close the conversation's session. The next message or tool result opens it again. The
         *     request needs no body.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                    /** @description a position, quoted or not: 409 if other events than summaries and turns were appended after it */
                    "If-Match"?: string;
                    /** @description `*`: 409 unless the conversation is new. Not beside `If-Match` */
                    "If-None-Match"?: "*";
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Nothing"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
                /** @description The events are safe in the log. An event that came with an id has the status `unknown`: it may be a repeat, whose `position` is its own here. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/compact": {
        /**
         * Ask for a summary
         * @description Ask for a summary of all that may leave the window's tail now, whatever the policy's limits
         *     are. The request needs no body.
         *
         *     The last group of messages stays, and so do open suspensions. The summary comes later, on the
         *     streams.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once the window has the events, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                    /** @description a position, quoted or not: 409 if other events than summaries and turns were appended after it */
                    "If-Match"?: string;
                    /** @description `*`: 409 unless the conversation is new. Not beside `If-Match` */
                    "If-None-Match"?: "*";
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Nothing"];
                };
            };
            responses: {
                /** @description With `wait=applied` or a condition: the window has the events, too. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
                /** @description The request is safe in the log. The summary comes on the streams. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Appended"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/renders": {
        /**
         * List recorded model calls
         * @description The conversation's newest recorded model calls, newest first. The newest 20,000 records of
         *     its partition are searched.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                query?: {
                    limit?: number;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description Recorded model calls, newest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["RecordedCalls"];
                    };
                };
            };
        };
        /**
         * Record a model call
         * @description Record a model call: `model`, and `render_digest`, `position`, `format` and `tokens` of the
         *     context that the model was sent.
         *
         *     Add what is known of `summary_id`, `policy`, `max_tokens` (of the request for the context),
         *     `reported_usage` and `latency_ms`. If the tenant's policy has `renders` off, nothing is
         *     recorded: `id` is null and `recorded` is false.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                path: {
                    conversation: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewModelCall"];
                };
            };
            responses: {
                /** @description A recorded model call. `id` is null if the tenant's policy has `renders` off. */
                202: {
                    content: {
                        "application/json": components["schemas"]["RecordedCall"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/turns": {
        /**
         * Show the active turn
         * @description The active turn, and those that wait for it.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description The active turn, and the ids of those that wait. */
                200: {
                    content: {
                        "application/json": components["schemas"]["TurnsOfConversation"];
                    };
                };
            };
        };
        /**
         * Begin a turn
         * @description Begin a turn. While another turn is active, `policy` decides: `reject` (409), `queue` (wait
         *     for it) or `interrupt` (end it).
         *
         *     With `status` started, the answer has the `fencing_token`: send it with appends as
         *     `Fencing-Token`. With status queued, the turn waits: repeat the request with the same `turn_id`
         *     to see its status, or give `wait` (up to 30 s). The lease lasts `seconds` (60) unless it is
         *     renewed.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                header?: {
                    /** @description requests with the same key begin the turn once, and not after an end with it */
                    "Idempotency-Key"?: string;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["NewTurn"];
                };
            };
            responses: {
                /** @description A turn: active (`started`), or waiting (`queued`) behind `place` other turns. `fencing_token` grows with every turn of the conversation; it is null while the turn waits. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Turn"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/turns/{turn_id}/renew": {
        /**
         * Renew a turn's lease
         * @description Renew the lease of the active turn: it lasts `seconds` (60) from now. 409 if the turn is
         *     over.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                header: {
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token": number;
                };
                path: {
                    conversation: string;
                    turn_id: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Renewal"];
                };
            };
            responses: {
                /** @description A turn: active (`started`), or waiting (`queued`) behind `place` other turns. `fencing_token` grows with every turn of the conversation; it is null while the turn waits. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Turn"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/turns/{turn_id}/end": {
        /**
         * End a turn
         * @description End the active turn, or take a turn out of the queue. The next turn of the queue becomes
         *     active. 409 if another turn is active.
         *
         *     Of a turn whose begin was not answered, give the `Idempotency-Key` of that request: it may come
         *     after this one, and then begins nothing.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                header?: {
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                    /** @description the key of the request to begin it: if that one comes later, it is 409 */
                    "Idempotency-Key"?: string;
                };
                path: {
                    conversation: string;
                    turn_id: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Nothing"];
                };
            };
            responses: {
                /** @description The turn is over. The next one of the queue is active. */
                202: {
                    content: {
                        "application/json": components["schemas"]["EndedTurn"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/context": {
        /**
         * Read the context
         * @description The messages to send to a model: pinned messages, the summary and the tail. They fit into the
         *     policy's ceiling and `max_tokens`.
         *
         *     Formats: `openai`; `anthropic`, with `system` apart; `events`, the window's own events with
         *     their positions; `rendered`, the messages as flat events.
         *
         *     With `recall=on` what is relevant to the newest user's message stands right before it, as
         *     data: what its user's other conversations taught and said. `recalled` has the ids,
         *     `background_context` the text; of the formats `events` and `rendered` only these two have it.
         *     `render_digest` is that of the messages without it. If the memory cannot be asked, `away` says
         *     why.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description `openai`, `anthropic`, `events`, `rendered` */
                    format?: "openai" | "anthropic" | "events" | "rendered";
                    /** @description a lower limit than the policy's ceiling */
                    max_tokens?: number;
                    /** @description a position that the window must include: the answer waits for it up to 10 s */
                    after?: string;
                    /** @description `on`: with what the long-term memory has on it */
                    recall?: "off" | "on";
                    /** @description tokens that recalled memories have at most */
                    recall_tokens?: number;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description The messages to send to a model. Send `messages` (and `system`, for Anthropic) unchanged. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Context"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/working-memory": {
        /**
         * Read the working memory
         * @description What was summarised, and what was said last, word for word: at least four messages, where
         *     there are so many that stand.
         *
         *     From 70 % of the policy's `wm_max_tokens` on, reading it asks for a summary, which comes in the
         *     background (`threshold` is `background`). From 90 % on the answer waits for it, up to 5 s; if it
         *     did not come, `threshold` is `before_answer`.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description The summary's text, the messages that are there word for word, and the tokens of both. */
                200: {
                    content: {
                        "application/json": components["schemas"]["WorkingMemory"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/history": {
        /**
         * Read a page of history
         * @description A page of events from the log, newest first.
         *
         *     History is read by the window, which follows an acknowledged append within milliseconds. With
         *     `after` or `wait` the page waits for it, up to 10 s, then it answers 503. A page of some types
         *     reads 2,000 events at most, and each page ends after 4 MiB: it may be short and still have a
         *     `next_before`.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                    /** @description types of events, separated by commas */
                    type?: string;
                    /** @description a position that the window must include: the answer waits for it up to 10 s */
                    after?: string;
                    /** @description `applied`: wait for all that is in the log, like `after` its end */
                    wait?: "applied";
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description A page of events, newest first. `next_before` is null on the last page. */
                200: {
                    content: {
                        "application/json": components["schemas"]["History"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/events/{position}": {
        /**
         * Read one event whole
         * @description One event with its whole content, also if its text was spilled over several records. With
         *     `offset` or `limit`, `content` is that page of the text.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description the first character of the page */
                    offset?: number;
                    /** @description characters of the page; 100000 if only `offset` is given */
                    limit?: number;
                };
                path: {
                    conversation: string;
                    position: string;
                };
            };
            responses: {
                /** @description The event; with `offset` or `limit`, a page of its text. */
                200: {
                    content: {
                        "application/json": components["schemas"]["LoggedEvent"];
                    };
                };
            };
        };
    };
    "/v1/renders/{render_id}": {
        /**
         * Render a model call again
         * @description A recorded model call, rendered again from the log. `agrees` says whether the digest is the
         *     same, and `why` the reasons if it is not. At most 32 MiB of events are folded, else the answer
         *     is 422: `threadfold renders show` has no such limit.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                path: {
                    render_id: string;
                };
            };
            responses: {
                /** @description A recorded model call, rendered again. `why` has the reasons if the digest is another one. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Render"];
                    };
                };
            };
        };
    };
    "/v1/conversations": {
        /**
         * List conversations
         * @description The tenant's conversations that have all that is asked for. The one that was active last
         *     comes first.
         *
         *     Times are the broker's. `title` is `metadata.title`. `metadata` holds the first members, up to
         *     1 KiB; `metadata_cut` says that there are more. A page may have fewer than `limit` conversations
         *     and still have a `next_before`: it looks at 2,000 conversations at most. An end user is shown
         *     the user's own conversations.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description whose conversations */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description in which state */
                    state?: "active" | "awaiting_approval" | "awaiting_input" | "closed" | "idle";
                    /** @description last active at this time or later */
                    since?: string;
                    /** @description last active at this time or earlier */
                    until?: string;
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                };
            };
            responses: {
                /** @description A page of conversations. The one that was active last comes first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Conversations"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/summaries": {
        /**
         * List a conversation's summaries
         * @description The active summary and those that it continues, newest first. A page ends with the summary
         *     that makes it 4 MiB: it may have fewer than `limit` and still have a `next_before`.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description A page of summaries, newest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Summaries"];
                    };
                };
            };
        };
    };
    "/v1/suspensions": {
        /**
         * List open suspensions
         * @description The tenant's open suspensions. The conversation that was suspended last comes first.
         *
         *     `limit` counts conversations. Each comes with all of its open suspensions. A page ends with the
         *     conversation that makes it 4 MiB: it may have fewer than `limit` and still have a `next_before`.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                query?: {
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                };
            };
            responses: {
                /** @description A page of open suspensions. `unreadable` names conversations of this page whose windows cannot be read now: what they wait for is not known. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Suspensions"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/window": {
        /**
         * Inspect the window
         * @description The messages that a model is sent, each with its tokens, its place in the window, and how it
         *     was shortened.
         *
         *     With `at` the window is folded from the log, up to that position, by today's rules. At most
         *     20,000 events and 32 MiB of them are folded, else the answer is 422. A tenant has one such fold
         *     at a time, so tokens of end users have none.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description a position: the window as it was then; without it, as it is */
                    at?: string;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description A window's render, message by message. The messages' tokens and `tools_tokens` add up to `tokens`. `at` is the position that was asked for. */
                200: {
                    content: {
                        "application/json": components["schemas"]["InspectedWindow"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/positions": {
        /**
         * List the positions of events
         * @description The positions of the conversation's newest events, oldest first. No event is read.
         *
         *     Scope: `read`.
         */
        get: {
            parameters: {
                query?: {
                    limit?: number;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description Positions of a conversation's events, oldest first. `all`: there are no older ones. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Positions"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/stream": {
        /**
         * Follow a conversation
         * @description The conversation's new events as server-sent events: `event`, `summary`, `partial` (text in
         *     progress) and `state` (docs/streams.md).
         *
         *     An end user's token may be in the query (`token`) or in the cookie `threadfold_token`, because a
         *     browser's `EventSource` sends no header.
         *
         *     Scope: `subscribe`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description the stream begins after this position; without it, now */
                    after?: string;
                };
                header?: {
                    /** @description the id of the last event received: the stream begins after it */
                    "Last-Event-ID"?: string;
                };
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description Server-sent events `event`, `summary`, `partial` and `state`, until the caller leaves. */
                200: {
                    content: {
                        "text/event-stream": string;
                    };
                };
            };
        };
    };
    "/v1/summaries/stream": {
        /**
         * Follow the tenant's summaries
         * @description The summaries of all the tenant's conversations: accepted (`summary`), voided by a rollback
         *     (`voided`), or erased with their conversation (`erased`). `missing`: the topic has lost records
         *     that the stream was to give.
         *
         *     Delivery is at least once: dedupe on `summary_id`. A conversation's summaries come in order. One
         *     that a rollback puts in force again comes again after its `voided`.
         *
         *     Scope: `subscribe`.
         */
        get: {
            parameters: {
                query?: {
                    /** @description the id of an event of this stream: the stream begins after it */
                    cursor?: string;
                    /** @description `beginning`: all earlier summaries come first */
                    from?: "beginning";
                };
                header?: {
                    /** @description the id of the last event received: the stream begins after it */
                    "Last-Event-ID"?: string;
                };
            };
            responses: {
                /** @description Server-sent events `summary`, `voided`, `erased` and `missing`, until the caller leaves. */
                200: {
                    content: {
                        "text/event-stream": string;
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}/partial": {
        /**
         * Add to a message in progress
         * @description Add to the assistant's text in progress: `turn_id`, `delta`, and `offset`, the number of
         *     characters before it, which makes repeats safe.
         *
         *     The answer has the number of characters so far. The text is never in the log: append the message
         *     once it is complete. Text that does not grow for some time (the setting `partial_timeout`)
         *     becomes an interrupted message. With `Fencing-Token`: 409 if that turn is over.
         *
         *     Scope: `append`.
         */
        post: {
            parameters: {
                header?: {
                    /** @description the number that the turn was given when it began (`fencing_token`); 409 if that turn is not the active one */
                    "Fencing-Token"?: number;
                };
                path: {
                    conversation: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Piece"];
                };
            };
            responses: {
                /** @description `offset` is the number of characters of the turn's text so far. */
                202: {
                    content: {
                        "application/json": components["schemas"]["TextInProgress"];
                    };
                };
            };
        };
    };
    "/v1/memories": {
        /**
         * List memories
         * @description The records and composites that stand, newest first. A page ends after 4 MiB: it may have
         *     fewer than `limit` and still have a `next_before`.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                    /** @description of which type */
                    type?: "constraint" | "event" | "fact" | "failure_pattern" | "preference" | "procedure" | "tool_affordance";
                    /** @description of which topic */
                    topic?: string;
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                };
            };
            responses: {
                /** @description A page of records, newest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Memories"];
                    };
                };
            };
        };
        /**
         * Save memories
         * @description Save one record, or a list of at most 500. What stands between `<private>` and `</private>`
         *     is not stored. Saving the same text again confirms the record.
         *
         *     Scope: `append`. Also for end users.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once a search finds them, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewMemory"][] | components["schemas"]["NewMemory"];
                };
            };
            responses: {
                /** @description With `wait=applied`: a search finds them. */
                200: {
                    content: {
                        "application/json": components["schemas"]["SavedMemories"];
                    };
                };
                /** @description They are safe in the log. */
                202: {
                    content: {
                        "application/json": components["schemas"]["SavedMemories"];
                    };
                };
            };
        };
    };
    "/v1/skills": {
        /**
         * List skills
         * @description The skills that stand, newest first. A page ends after 4 MiB, like one of memories.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                    /** @description `next_before` of the previous page */
                    before?: string;
                    limit?: number;
                };
            };
            responses: {
                /** @description A page of records, newest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Memories"];
                    };
                };
            };
        };
        /**
         * Save a skill
         * @description Save how something is done. A search with the kind `skill` finds it by its intent.
         *
         *     Scope: `append`. Also for end users.
         */
        post: {
            parameters: {
                query?: {
                    /** @description `applied`: answer 200 once a search finds them, with a status each */
                    wait?: "applied";
                };
                header?: {
                    /** @description gives an id to each event without one; a repeat with the same key is a duplicate */
                    "Idempotency-Key"?: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewSkill"];
                };
            };
            responses: {
                /** @description With `wait=applied`: a search finds them. */
                200: {
                    content: {
                        "application/json": components["schemas"]["SavedMemories"];
                    };
                };
                /** @description They are safe in the log. */
                202: {
                    content: {
                        "application/json": components["schemas"]["SavedMemories"];
                    };
                };
            };
        };
    };
    "/v1/memories/search": {
        /**
         * Search memories
         * @description What fits the query, best first: records, skills, and turns of conversations that no record
         *     was learnt from.
         *
         *     `mode`, `tools`, `constraints` and `failures` say what it is for: what helps an action comes
         *     first then. The profile `facts` weighs the text alone, and takes it for half as good after 30
         *     days. `max_tokens` ends the list before its texts have more; 4 MiB end it, too. `explain` adds
         *     the plan and the parts of each score.
         *
         *     `background_context` is what is relevant enough for a prompt: data, never an instruction. What
         *     a search gives out is counted in the records' `use`, some seconds later; `as_of` counts nothing.
         *     `away` names the channels that could not be asked, and why; `missing` what the question asks
         *     for ("time", "place") and no relevant result says.
         *
         *     Scope: `read`. Also for end users.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["MemorySearch"];
                };
            };
            responses: {
                /** @description The hits, best first, and the tokens of their texts. `away`: the channels that could not be asked, and why. `missing`: what the plan says is asked for (`missing_slots`) and no relevant hit says. */
                200: {
                    content: {
                        "application/json": components["schemas"]["MemoryHits"];
                    };
                };
            };
        };
    };
    "/v1/memories/stats": {
        /**
         * Count memories
         * @description How many records, composites and skills there are.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
            };
            responses: {
                /** @description How many records stand, by type, and how many expired. */
                200: {
                    content: {
                        "application/json": components["schemas"]["MemoryStats"];
                    };
                };
            };
        };
    };
    "/v1/memories/{memory_id}": {
        /**
         * Read a memory
         * @description One record, also a superseded one; 404 if it is another `user`'s, `channel`'s or
         *     `conversation`'s than those given.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description as it was known then */
                    as_of?: string;
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
                path: {
                    memory_id: string;
                };
            };
            responses: {
                /** @description A record, a composite of several, or a skill. `positions` are the events that taught it. `trust` says who said it: nothing that is recalled is an instruction. `superseded_by` is a later record that conflicts with it. A composite says what its `sources` say; `children` are the composites that it has taken in. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Memory"];
                    };
                };
            };
        };
        /**
         * Delete a memory
         * @description Delete a record. It is not found any more when this answers; saying it again brings it back.
         *
         *     A hard deletion removes its text from every store for good. The log keeps the event that taught
         *     it: erase the conversation to remove that.
         *
         *     Scope: `append`. Also for end users.
         */
        delete: {
            parameters: {
                query?: {
                    /** @description its text leaves every store, for good */
                    hard?: boolean;
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
                path: {
                    memory_id: string;
                };
            };
            responses: {
                /** @description A deleted record. `stores` is there for a hard deletion: what is left where. */
                200: {
                    content: {
                        "application/json": components["schemas"]["DeletedMemory"];
                    };
                };
            };
        };
    };
    "/v1/memories/{memory_id}/timeline": {
        /**
         * Read a memory's neighbours
         * @description A record between those that were learnt just before and after it, in its scope. Those on one
         *     side end after 2 MiB.
         *
         *     Scope: `read`. Also for end users.
         */
        get: {
            parameters: {
                query?: {
                    /** @description records before it */
                    before?: number;
                    /** @description records after it */
                    after?: number;
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
                path: {
                    memory_id: string;
                };
            };
            responses: {
                /** @description A record between its neighbours in time, oldest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Timeline"];
                    };
                };
            };
        };
    };
    "/v1/skills/{memory_id}": {
        /**
         * Delete a skill
         * @description Delete a skill. It is not found any more when this answers.
         *
         *     Scope: `append`. Also for end users.
         */
        delete: {
            parameters: {
                query?: {
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
                path: {
                    memory_id: string;
                };
            };
            responses: {
                /** @description A deleted record. `stores` is there for a hard deletion: what is left where. */
                200: {
                    content: {
                        "application/json": components["schemas"]["DeletedMemory"];
                    };
                };
            };
        };
    };
    "/v1/memories/{memory_id}/outcome": {
        /**
         * Report an outcome
         * @description Report whether an action that used the record succeeded. The answer counts it in `use`.
         *
         *     Scope: `append`. Also for end users.
         */
        post: {
            parameters: {
                query?: {
                    /** @description whose memory */
                    user?: string;
                    /** @description of which channel */
                    channel?: string;
                    /** @description taught by which */
                    conversation?: string;
                };
                path: {
                    memory_id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Succeeded"];
                };
            };
            responses: {
                /** @description A record, a composite of several, or a skill. `positions` are the events that taught it. `trust` says who said it: nothing that is recalled is an instruction. `superseded_by` is a later record that conflicts with it. A composite says what its `sources` say; `children` are the composites that it has taken in. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Memory"];
                    };
                };
            };
        };
    };
    "/v1/tokens": {
        /**
         * Mint a token for an end user
         * @description Mint a token with which an end user's browser reads, follows (`stream`) and appends to the
         *     user's own conversations.
         *
         *     Each verb needs the key's scope `read`, `subscribe` or `append`. The token ends after
         *     `expires_in` seconds, or as soon as the key is revoked.
         *
         *     Scope: `any`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewToken"];
                };
            };
            responses: {
                /** @description A token of an end user. It is stored nowhere. */
                200: {
                    content: {
                        "application/json": components["schemas"]["MintedToken"];
                    };
                };
            };
        };
    };
    "/v1/tokens/keys": {
        /**
         * List the keys of signed tokens
         * @description The public keys that the tenant's own tokens are verified with.
         *
         *     Scope: `tokens`.
         */
        get: {
            responses: {
                /** @description The registered public keys. */
                200: {
                    content: {
                        "application/json": components["schemas"]["RegisteredKeys"];
                    };
                };
            };
        };
        /**
         * Register the keys of signed tokens
         * @description Register the public keys of the tokens (JWT) that the tenant signs for its end users. The set
         *     is replaced whole: tokens of a key that is missing from it end.
         *
         *     Scope: `tokens`.
         */
        put: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PublicKeys"];
                };
            };
            responses: {
                /** @description The registered public keys. */
                200: {
                    content: {
                        "application/json": components["schemas"]["RegisteredKeys"];
                    };
                };
            };
        };
        /**
         * Remove the keys of signed tokens
         * @description Remove all public keys: every token that the tenant has signed ends.
         *
         *     Scope: `tokens`.
         */
        delete: {
            responses: {
                /** @description The registered public keys. */
                200: {
                    content: {
                        "application/json": components["schemas"]["RegisteredKeys"];
                    };
                };
            };
        };
    };
    "/v1/tenants": {
        /**
         * List tenants
         * @description All tenants by name, each with its policy, its quota and its keys without their secrets.
         *
         *     Scope: `admin`.
         */
        get: {
            responses: {
                /** @description All tenants, by name. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Tenants"];
                    };
                };
            };
        };
        /**
         * Add a tenant
         * @description Record a tenant and make its first key. The key is shown in this answer and never again. 409
         *     if the tenant exists.
         *
         *     Without `encryption` an erasure leaves the text in the log: `erasure` says `kept`.
         *
         *     Scope: `admin`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewTenant"];
                };
            };
            responses: {
                /** @description A new tenant. `key` is the secret of its first key, shown in this answer and never again. */
                201: {
                    content: {
                        "application/json": components["schemas"]["MadeTenant"];
                    };
                };
            };
        };
    };
    "/v1/tenants/{tenant}": {
        /**
         * Show a tenant
         * @description One tenant with its policy, its quota, what it has used of its daily budgets, and its keys
         *     without their secrets.
         *
         *     Scope: `admin`.
         */
        get: {
            parameters: {
                path: {
                    tenant: string;
                };
            };
            responses: {
                /** @description A tenant with what it has used of its daily budgets. `used_today` is null while Redis does not answer. */
                200: {
                    content: {
                        "application/json": components["schemas"]["TenantInUse"];
                    };
                };
            };
        };
        /**
         * Change a tenant
         * @description Change a tenant's quota at once, or its policy with the next generation (`threadfold rebuild
         *     --switch`).
         *
         *     Null removes the quota, or one number of it. A policy without `encryption` leaves that as it is.
         *
         *     Scope: `admin`.
         */
        patch: {
            parameters: {
                path: {
                    tenant: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TenantChange"];
                };
            };
            responses: {
                /** @description A tenant. `policy` is active; `next_policy` waits for the next generation. `quota` is the tenant's own; `quota_in_force` includes the deployment's defaults. `erasure` is what an erasure makes of text in the log: `opaque` if the tenant is encrypted, else `kept`. `policy_error` is null, or why this release cannot use the policy, as one that a newer release wrote: the tenant's conversations wait then, and its requests answer 503. */
                200: {
                    content: {
                        "application/json": components["schemas"]["ShownTenant"];
                    };
                };
            };
        };
    };
    "/v1/tenants/{tenant}/keys": {
        /**
         * List a tenant's keys
         * @description A tenant's keys, oldest first: ids, names, scopes and times. Only a hash of a key's secret is
         *     stored.
         *
         *     Scope: `admin`.
         */
        get: {
            parameters: {
                path: {
                    tenant: string;
                };
            };
            responses: {
                /** @description A tenant's keys, oldest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Keys"];
                    };
                };
            };
        };
        /**
         * Make a key
         * @description Make another key for a tenant. The key is shown in this answer and never again. An empty
         *     object makes a key with the usual scopes that does not expire.
         *
         *     Scope: `admin`.
         */
        post: {
            parameters: {
                path: {
                    tenant: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewKey"];
                };
            };
            responses: {
                /** @description A new key. `key` is the secret, shown in this answer and never again. */
                201: {
                    content: {
                        "application/json": components["schemas"]["MadeKey"];
                    };
                };
            };
        };
        /**
         * Revoke all keys of a tenant
         * @description Revoke all keys of a tenant. The tenant stays recorded, and its conversations stay in the
         *     log.
         *
         *     Scope: `admin`.
         */
        delete: {
            parameters: {
                path: {
                    tenant: string;
                };
            };
            responses: {
                /** @description The ids of the revoked keys: from now on these keys answer 401. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Revoked"];
                    };
                };
            };
        };
    };
    "/v1/tenants/{tenant}/keys/{key}": {
        /**
         * Revoke a key
         * @description Revoke one key by its id: from now on it answers 401.
         *
         *     Scope: `admin`.
         */
        delete: {
            parameters: {
                path: {
                    tenant: string;
                    key: string;
                };
            };
            responses: {
                /** @description The ids of the revoked keys: from now on these keys answer 401. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Revoked"];
                    };
                };
            };
        };
    };
    "/v1/conversations/{conversation}": {
        /**
         * Erase a conversation
         * @description Erase a conversation for good. This cannot be undone.
         *
         *     A repeat has the same receipt. After a 503, repeat the request: it continues where it stopped.
         *     `log` is `opaque` if all payloads were encrypted (policy key `encryption`), else `kept`.
         *
         *     Scope: `erase`.
         */
        delete: {
            parameters: {
                path: {
                    conversation: string;
                };
            };
            responses: {
                /** @description The receipt: the result in each store, and the time by which it is final. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Receipt"];
                    };
                };
            };
        };
    };
    "/v1/users/{user}": {
        /**
         * Erase a user's conversations
         * @description Erase all conversations that belong to this `user` now: those whose last
         *     `conversation.opened` with a `user` names it.
         *
         *     One that was given to another user since is not erased. Erase it by its name.
         *
         *     Scope: `erase`.
         */
        delete: {
            parameters: {
                path: {
                    user: string;
                };
            };
            responses: {
                /** @description A receipt for each conversation that belonged to this `user`, by name. One whose name begins with `~` is that of the user's memory, which no other route names. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Receipts"];
                    };
                };
            };
        };
    };
    "/v1/generations": {
        /**
         * List generations
         * @description All generations of windows, each with its stage, the deployment's policy in it, and what is
         *     done with it. `threadfold rebuild` makes them, too.
         *
         *     Scope: `admin`.
         */
        get: {
            responses: {
                /** @description All generations, the newest first. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Generations"];
                    };
                };
            };
        };
        /**
         * Build a generation
         * @description Fold the whole log into a new generation beside the live one, which keeps serving. What was
         *     begun under the same policy is gone on with. 409 while this gateway works on a generation.
         *
         *     Scope: `admin`.
         */
        post: {
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["NewGeneration"];
                };
            };
            responses: {
                /** @description A build has begun. `resumed`: the generation was begun before, and is gone on with. */
                202: {
                    content: {
                        "application/json": components["schemas"]["Begun"];
                    };
                };
            };
        };
    };
    "/v1/generations/compare": {
        /**
         * Compare policies
         * @description What another policy would change: a sample of conversations as their windows are, and folded
         *     from the log under the other rules. Nothing is written.
         *
         *     At most 20,000 events are folded. Comparisons take turns. `threadfold rebuild --dry-run`
         *     compares more.
         *
         *     Scope: `admin`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ToCompare"];
                };
            };
            responses: {
                /** @description Two policies on a sample: totals, and each conversation, losses and the largest changes first. `summaries` and `due` count conversations; `cost_of_a_summary` is the mean of those in the sample that have a cost. With `callable_failures`, workers may come to other windows. No text is shown. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Comparison"];
                    };
                };
            };
        };
    };
    "/v1/generations/{number}/switch": {
        /**
         * Switch to a generation
         * @description Make a generation live: a new one, or an earlier one. It is first folded up to the live one's
         *     position. If conversations would lose what their windows hold, the task fails with
         *     `would_lose`, unless the loss is accepted.
         *
         *     Scope: `admin`.
         */
        post: {
            parameters: {
                path: {
                    number: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Switch"];
                };
            };
            responses: {
                /** @description The task has begun. */
                202: {
                    content: {
                        "application/json": components["schemas"]["TaskBegun"];
                    };
                };
            };
        };
    };
    "/v1/generations/{number}": {
        /**
         * Drop a generation
         * @description Delete a generation's windows and its record. The log stays. 409 for the live one.
         *
         *     Scope: `admin`.
         */
        delete: {
            parameters: {
                path: {
                    number: string;
                };
            };
            responses: {
                /** @description The task has begun. */
                202: {
                    content: {
                        "application/json": components["schemas"]["TaskBegun"];
                    };
                };
            };
        };
    };
    "/v1/generations/compare/window": {
        /**
         * Compare a conversation's windows
         * @description A conversation's window as it is, and folded from the log under the other rules, message by
         *     message. Nothing is written.
         *
         *     Texts are shown to a key of the conversation's own tenant that has the scope `read`. Others see
         *     where messages stand, their tokens and what shortened them. At most 20,000 events are folded.
         *
         *     Scope: `admin`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["WindowToCompare"];
                };
            };
            responses: {
                /** @description The two windows of a conversation, row by row. `differing` counts the rows that differ; `more` are older rows that are not shown. `text` says whether texts are shown; `lost`, why a switch would lose what its summaries hold. Tokens are null if a window cannot be rendered. */
                200: {
                    content: {
                        "application/json": components["schemas"]["TwoWindows"];
                    };
                };
            };
        };
    };
    "/v1/dead-letters": {
        /**
         * List dead letters
         * @description Halted partitions, parked conversations, and records that are nobody's event. A conversation
         *     is listed while it is parked, a record while the topic keeps its letter.
         *
         *     Scope: `admin`.
         */
        get: {
            parameters: {
                query?: {
                    /** @description only this tenant's */
                    tenant?: string;
                    limit?: number;
                };
            };
            responses: {
                /** @description What could not be applied. `all`: there is no more of it. */
                200: {
                    content: {
                        "application/json": components["schemas"]["DeadLetters"];
                    };
                };
            };
        };
    };
    "/v1/dead-letters/{position}": {
        /**
         * Inspect a dead letter
         * @description The record at a position, how it stands, and why. Its text is not shown (`threadfold
         *     dead-letters inspect` shows it), but the error in `now` may quote it. 410 if it is of an erased
         *     conversation.
         *
         *     Scope: `admin`.
         */
        get: {
            parameters: {
                path: {
                    position: string;
                };
            };
            responses: {
                /** @description A record without its text. `kind`: `poison` (a conversation is parked at it), `waiting` (behind such a one), `record` (nobody's event) or `folded`. `now`: why this release cannot fold it, or that it can. */
                200: {
                    content: {
                        "application/json": components["schemas"]["InspectedRecord"];
                    };
                };
            };
        };
    };
    "/v1/dead-letters/{position}/retry": {
        /**
         * Retry a dead letter
         * @description Fold the conversation of this record on, with the code of this gateway's release. What is not
         *     parked does not change, nor does a conversation whose event still fails.
         *
         *     Scope: `admin`.
         */
        post: {
            parameters: {
                path: {
                    position: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Nothing"];
                };
            };
            responses: {
                /** @description How many events of the conversation were folded, and where it is parked now (null: it goes on). */
                200: {
                    content: {
                        "application/json": components["schemas"]["Retried"];
                    };
                };
            };
        };
    };
    "/v1/dead-letters/{position}/drop": {
        /**
         * Drop a dead letter
         * @description Drop the event at which a conversation is parked: the fold skips it and goes on with those
         *     that wait. The record stays in the log. A record of no event leaves the list.
         *
         *     The answer waits up to 10 s for the fold, and not for a halted partition. 422 if the event parks
         *     no conversation.
         *
         *     Scope: `admin`.
         */
        post: {
            parameters: {
                path: {
                    position: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": components["schemas"]["Reason"];
                };
            };
            responses: {
                /** @description The position of the event that drops it (null for a record: it is off the list); whether the fold has come to it; and where the conversation is parked then. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Dropped"];
                    };
                };
            };
        };
    };
    "/healthz": {
        /**
         * Is the process alive
         * @description The process is alive. Kafka and Redis are not asked.
         */
        get: {
            responses: {
                /** @description The process is alive. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Alive"];
                    };
                };
            };
        };
    };
    "/readyz": {
        /**
         * Is the gateway ready
         * @description 200 if Kafka, Redis and the live generation answer, else 503. The first time, the windows of
         *     every partition must be readable, too. A halted partition is named: the others are served. So is
         *     a Redis that takes no writes: every gateway has the same, and reads and appends go on; and a
         *     memory store that cannot be used; and how many conversations are still being restored.
         */
        get: {
            responses: {
                /** @description Kafka, Redis and the live generation answer: its number, the log's partitions, how many events are in the log and not in the windows yet (`behind`, in all partitions), and which partitions are halted: nothing new is folded there. `redis` says why Redis takes no writes: windows stand still then, and appends go on. `memory` says why this gateway's store of the long-term memory cannot be used; all else goes on. `restoring` is of how many conversations reads answer 503 while the others are served: older events of theirs are being read again. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Ready"];
                    };
                };
            };
        };
    };
    "/metrics": {
        /**
         * Metrics
         * @description The gateway's metrics, for Prometheus. No label names a tenant. All who ask at the same time
         *     have one page.
         */
        get: {
            responses: {
                /** @description Prometheus' text format. */
                200: {
                    content: {
                        "text/plain": string;
                    };
                };
            };
        };
    };
    "/v1/workers/metrics": {
        /**
         * Metrics of all workers
         * @description The metrics that workers reported in the last 45 s, for Prometheus: with a label `worker` for
         *     each process. With a label `gateway`, what tenants use of their quotas. Labels name tenants, so
         *     this needs the scope `admin`.
         *
         *     Scope: `admin`.
         */
        get: {
            responses: {
                /** @description Prometheus' text format. */
                200: {
                    content: {
                        "text/plain": string;
                    };
                };
            };
        };
    };
    "/asyncapi.json": {
        /**
         * The AsyncAPI document
         * @description The topics, for services that speak Kafka: AsyncAPI 3.0.
         */
        get: {
            responses: {
                /** @description The topics, as an AsyncAPI 3.0 document. */
                200: {
                    content: {
                        "application/json": components["schemas"]["AsyncApi"];
                    };
                };
            };
        };
    };
    "/schemas/{name}.json": {
        /**
         * The JSON Schema of an event type
         * @description The JSON Schema (2020-12) of an event type: `message` for the CloudEvent in the log,
         *     `message.flat` for the form to append over HTTP.
         */
        get: {
            parameters: {
                path: {
                    name: string;
                };
            };
            responses: {
                /** @description A JSON Schema (2020-12). */
                200: {
                    content: {
                        "application/schema+json": components["schemas"]["JsonSchema"];
                    };
                };
            };
        };
    };
    "/v1/me": {
        /**
         * Show whose the credential is
         * @description The tenant, the scopes and the quota of the request's key or token, and what is used.
         *
         *     Scope: `any`. Also for end users.
         */
        get: {
            responses: {
                /** @description Whose the credential is, and its scopes. `quota` is the tenant's with the deployment's defaults. `used_last_minute` is what the tenant used of its rates, at all gateways together, by the quotas' names and in their units. It and `used_today` are null while Redis does not answer. Of an end user's token `user` says whose it is; the tenant's quota and what it used are not shown to end users. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Me"];
                    };
                };
            };
        };
    };
    "/v1/me/hour": {
        /**
         * Show what the tenant used in the last hour
         * @description What the tenant used of its rates in the last hour, minute by minute.
         *
         *     Scope: `read`.
         */
        get: {
            responses: {
                /** @description What the tenant used at all gateways together in the last hour, minute by minute: by the names of its quotas and in their units, whether they are limited or not. */
                200: {
                    content: {
                        "application/json": components["schemas"]["MyHour"];
                    };
                };
            };
        };
    };
    "/v1/platform": {
        /**
         * Show the platform's last hour
         * @description What the platform did in the last hour, every 10 s, and what summaries by models used since
         *     00:00 UTC: of all tenants, and of the ten that used most.
         *
         *     Scope: `admin`.
         */
        get: {
            responses: {
                /** @description The platform's last hour, and what summaries by models used today (null while that is unknown). `events` (that workers folded) and `requests` are by second, `dead_letters` are those that were new; `behind` (events), `seconds_behind` (of the partition that is most) and `due` (conversations, for a summary) are levels. */
                200: {
                    content: {
                        "application/json": components["schemas"]["Platform"];
                    };
                };
            };
        };
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Alive
         * @description The process is alive.
         */
        Alive: {
            status: "ok";
        };
        /**
         * AllUse
         * @description What the summaries of all tenants have used today, and of the tenants that used most tokens, most first.
         */
        AllUse: {
            summary_tokens: number;
            summary_cost: number;
            tenants: components["schemas"]["TenantUse"][];
        };
        /**
         * AnthropicMessage
         * @description A message in Anthropic's format. Send `system` as a first message with that role.
         */
        AnthropicMessage: {
            role: "assistant" | "system" | "user";
            content: string | Record<string, unknown>[];
        };
        /**
         * Appended
         * @description Ids and positions in the order of the request. `position` is the last: use it as `after`.
         */
        Appended: {
            events: components["schemas"]["AppendedEvent"][];
            /** @description where an event stands in the log; opaque */
            position: string;
        };
        /**
         * AppendedEvent
         * @description One appended event. `status` is what the fold decided, with `wait` or a condition. Without, it is `unknown` if the id was given (it may be a repeat), else it is not there. `position` is where this event is, but of a repeat where its id came first.
         */
        AppendedEvent: {
            id: string;
            /** @description where an event stands in the log; opaque */
            position: string;
            status?: "applied" | "duplicate" | "parked" | "rejected" | "unknown";
        };
        /**
         * AppendedEventOfSeveral
         * @description One appended event, with its conversation.
         */
        AppendedEventOfSeveral: {
            id: string;
            /** @description where an event stands in the log; opaque */
            position: string;
            status?: "applied" | "duplicate" | "parked" | "rejected" | "unknown";
            conversation: string;
        };
        /**
         * AppendedOfSeveral
         * @description Ids and positions in the order of the request. `positions` has each conversation's last.
         */
        AppendedOfSeveral: {
            events: components["schemas"]["AppendedEventOfSeveral"][];
            positions: {
                [key: string]: string;
            };
        };
        /**
         * AsyncApi
         * @description The topics, as an AsyncAPI 3.0 document.
         */
        AsyncApi: {
            asyncapi: string;
            channels: Record<string, unknown>;
        };
        /**
         * Begun
         * @description A build has begun. `resumed`: the generation was begun before, and is gone on with.
         */
        Begun: {
            generation: number;
            resumed: boolean;
        };
        /**
         * CompactionRequested
         * @description A summary is wanted now, of all that may leave the window's tail.
         */
        CompactionRequested: Record<string, unknown>;
        /**
         * ComparedWindow
         * @description One conversation under the two policies: its context's tokens and messages, older messages that are left out, whether a summary is in force, and whether one is due. `lost`: why the switch would lose what its summaries hold.
         */
        ComparedWindow: {
            tenant: string;
            conversation: string;
            events: number;
            tokens: components["schemas"]["TokenSides"];
            messages: components["schemas"]["Sides"];
            left_out: components["schemas"]["Sides"];
            summary: components["schemas"]["FlagSides"];
            due: components["schemas"]["FlagSides"];
            lost: string | null;
        };
        /**
         * Comparison
         * @description Two policies on a sample: totals, and each conversation, losses and the largest changes first. `summaries` and `due` count conversations; `cost_of_a_summary` is the mean of those in the sample that have a cost. With `callable_failures`, workers may come to other windows. No text is shown.
         */
        Comparison: {
            generation: number;
            conversations: components["schemas"]["Sampled"];
            events: number;
            tokens: components["schemas"]["SpreadSides"];
            messages: components["schemas"]["Sides"];
            does_not_fit: components["schemas"]["Sides"];
            left_out: components["schemas"]["Sides"];
            summaries: components["schemas"]["Sides"];
            due: components["schemas"]["Sides"];
            cost_of_a_summary: number | null;
            lost: number;
            callable_failures: components["schemas"]["FailedCallable"][];
            windows: components["schemas"]["ComparedWindow"][];
        };
        /**
         * Context
         * @description The messages to send to a model. Send `messages` (and `system`, for Anthropic) unchanged.
         */
        Context: {
            messages: components["schemas"]["RenderedMessage"][];
            tokens: number;
            budget: number;
            ceiling: number;
            utilization: number;
            position: string | null;
            count: number;
            digest: string;
            render_digest: string;
            summary: components["schemas"]["ContextSummary"] | null;
            suspensions: components["schemas"]["OpenSuspension"][];
            state: "active" | "awaiting_approval" | "awaiting_input" | "closed" | "idle";
            awaits: "approval" | "model" | "tool" | "user";
            guard: unknown;
            trace: components["schemas"]["Step"][];
            positions?: (string | null)[];
            system?: string;
            parked?: components["schemas"]["Parked"];
            stale?: number;
            halted_since?: string;
            background_context?: string | null;
            recalled?: string[];
            away?: {
                [key: string]: string;
            };
        };
        /**
         * ContextSummary
         * @description The active summary.
         */
        ContextSummary: {
            summary_id: string;
            /** @description where an event stands in the log; opaque */
            position: string;
            text: string;
            tokens: number;
            trust: string;
            /** @description where an event stands in the log; opaque */
            to: string;
            previous: string | null;
        };
        /**
         * Conversations
         * @description A page of conversations. The one that was active last comes first.
         */
        Conversations: {
            conversations: components["schemas"]["ListedConversation"][];
            next_before: string | null;
        };
        /**
         * DeadLetters
         * @description What could not be applied. `all`: there is no more of it.
         */
        DeadLetters: {
            halted: components["schemas"]["HaltedPartition"][];
            parked: components["schemas"]["ParkedConversation"][];
            records: components["schemas"]["OpenRecord"][];
            all: boolean;
        };
        /**
         * DeletedMemory
         * @description A deleted record. `stores` is there for a hard deletion: what is left where.
         */
        DeletedMemory: {
            id: string;
            hard: boolean;
            stores?: {
                [key: string]: components["schemas"]["Store"];
            };
        };
        /**
         * Dropped
         * @description The position of the event that drops it (null for a record: it is off the list); whether the fold has come to it; and where the conversation is parked then.
         */
        Dropped: {
            event: string | null;
            applied: boolean;
            parked: components["schemas"]["Parked"] | null;
        };
        /**
         * EndedTurn
         * @description The turn is over. The next one of the queue is active.
         */
        EndedTurn: {
            turn_id: string;
            /** @description where an event stands in the log; opaque */
            position: string;
        };
        /**
         * Erased
         * @description The conversation was erased. This is final.
         */
        Erased: {
            reason?: string | null;
        };
        /**
         * EventDropped
         * @description An operator took an event out, by its position.
         */
        EventDropped: {
            position: string;
            reason?: string | null;
        };
        /**
         * FailedCallable
         * @description A callable of a policy that the gateway lacks, or in which it raised an error (`why`): in how many `conversations` of the sample, and the `first` of them. The default template is used there.
         */
        FailedCallable: {
            name: string;
            why: string;
            conversations: number;
            first: string;
        };
        /** FilePart */
        FilePart: {
            type: "file";
            file: Record<string, unknown>;
        };
        /**
         * FlagSides
         * @description Whether it holds under the two policies.
         */
        FlagSides: {
            before: boolean;
            after: boolean;
        };
        /**
         * Generations
         * @description All generations, the newest first.
         */
        Generations: {
            generations: components["schemas"]["ListedGeneration"][];
        };
        /**
         * HaltedPartition
         * @description A partition in which nothing new is folded, since when, and what to do.
         */
        HaltedPartition: {
            partition: number;
            since: string;
            what: string;
        };
        /**
         * History
         * @description A page of events, newest first. `next_before` is null on the last page.
         */
        History: {
            events: components["schemas"]["LoggedEvent"][];
            next_before: string | null;
        };
        /** ImagePart */
        ImagePart: {
            type: "image_url";
            image_url: components["schemas"]["ImageUrl"];
        };
        /** ImageUrl */
        ImageUrl: {
            url: string;
            detail?: string | null;
        };
        /**
         * ImaginedSkill
         * @description A skill that a model imagined: the real ones were compared with it.
         */
        ImaginedSkill: {
            intent: string;
            steps: string;
        };
        /**
         * InspectedMessage
         * @description A message of a render, in OpenAI's format, with its place. `position` is null for a message of no single event. A `waiting` one has a call without a result. `full_tokens` are those before it was `shortened`.
         */
        InspectedMessage: {
            lane: "closing" | "omitted" | "pinned" | "summary" | "system" | "tail";
            tokens: number;
            position: string | null;
            waiting: boolean;
            message: Record<string, unknown>;
            full_tokens?: number;
            shortened?: components["schemas"]["Shortening"][];
        };
        /**
         * InspectedRecord
         * @description A record without its text. `kind`: `poison` (a conversation is parked at it), `waiting` (behind such a one), `record` (nobody's event) or `folded`. `now`: why this release cannot fold it, or that it can.
         */
        InspectedRecord: {
            /** @description where an event stands in the log; opaque */
            position: string;
            key: string | null;
            bytes: number | null;
            kind: "folded" | "poison" | "record" | "waiting";
            type?: string;
            id?: string | null;
            source?: string | null;
            time?: string | null;
            parked?: components["schemas"]["Parked"];
            now?: string;
            cause?: string;
        };
        /**
         * InspectedWindow
         * @description A window's render, message by message. The messages' tokens and `tools_tokens` add up to `tokens`. `at` is the position that was asked for.
         */
        InspectedWindow: {
            at: string | null;
            position: string | null;
            count: number;
            digest: string;
            render_digest: string;
            tokens: number;
            tools_tokens: number;
            budget: number;
            ceiling: number;
            state: "active" | "awaiting_approval" | "awaiting_input" | "closed" | "idle";
            policy: string;
            guard: unknown;
            summary: components["schemas"]["ContextSummary"] | null;
            suspensions: components["schemas"]["OpenSuspension"][];
            trace: components["schemas"]["Step"][];
            messages: components["schemas"]["InspectedMessage"][];
            left_out: components["schemas"]["LeftOut"][];
            parked?: components["schemas"]["Parked"];
        };
        /**
         * JsonSchema
         * @description A JSON Schema (2020-12).
         */
        JsonSchema: {
            $schema: string;
            $id: string;
        };
        /**
         * Key
         * @description A key without its secret.
         */
        Key: {
            id: string;
            name: string | null;
            scopes: ("admin" | "append" | "erase" | "read" | "subscribe" | "tokens")[];
            created: string | null;
            expires_at: string | null;
            expired: boolean;
        };
        /**
         * Keys
         * @description A tenant's keys, oldest first.
         */
        Keys: {
            keys: components["schemas"]["Key"][];
        };
        /**
         * LastMessage
         * @description The last message with text: the begin of its text, in one line.
         */
        LastMessage: {
            role: "assistant" | "developer" | "system" | "user";
            text: string;
            /** @description where an event stands in the log; opaque */
            position: string;
        };
        /**
         * LeftOut
         * @description A message that the window keeps and the render does not show.
         */
        LeftOut: {
            lane: "omitted";
            tokens: number;
            /** @description where an event stands in the log; opaque */
            position: string;
            waiting: boolean;
            full_tokens: number;
            shortened: components["schemas"]["Shortening"][];
        };
        /**
         * ListedConversation
         * @description A conversation of a list. `count` is of its events, `tokens` of what its window holds. In the state `unreadable` its window cannot be read now: it has no `position`, and counts of 0.
         */
        ListedConversation: {
            conversation: string;
            active_at: string;
            state: "active" | "awaiting_approval" | "awaiting_input" | "closed" | "idle" | "unreadable";
            position: string | null;
            count: number;
            tokens: number;
            user: string | null;
            channel: string | null;
            title: string | null;
            metadata: Record<string, unknown> | null;
            metadata_cut: boolean;
            last_message: components["schemas"]["LastMessage"] | null;
        };
        /**
         * ListedGeneration
         * @description A set of windows under its own rules. `stage`: `live`, `building`, `ready` to become live, or `retired`. `created` and `live_at` are null if that was not noted. `left`: of one that is building or ready, how many of the log's events it has not folded yet. `task`: what gateways did with it last, as long as they run.
         */
        ListedGeneration: {
            number: number;
            stage: "building" | "live" | "ready" | "retired";
            partitions: number;
            created: string | null;
            live_at: string | null;
            policy: Record<string, unknown>;
            left: number | null;
            task: components["schemas"]["Task"] | null;
        };
        /**
         * ListedSuspension
         * @description An open suspension, with its conversation.
         */
        ListedSuspension: {
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id: string | null;
            prompt: string | null;
            expires_at: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            conversation: string;
        };
        /**
         * LiveTurn
         * @description The active turn, and the seconds of its lease.
         */
        LiveTurn: {
            turn_id: string;
            fencing_token: number;
            seconds: number;
        };
        /** compaction.requested */
        LoggedCompactionRequested: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "compaction.requested";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
        };
        /** conversation.erased */
        LoggedConversationErased: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "conversation.erased";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            reason?: string | null;
        };
        /** conversation.opened */
        LoggedConversationOpened: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "conversation.opened";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            policy?: Record<string, unknown> | null;
            channel?: string | null;
            user?: string | null;
            tools?: Record<string, unknown>[] | null;
            metadata?: Record<string, unknown> | null;
        };
        /** @description An event of the log as a flat object: `type` without prefix and version, and the fields of this type. */
        LoggedEvent: {
            /** @description the part of the text that is in `content` */
            page?: {
                offset: number;
                limit: number;
                characters: number;
            };
        } & (components["schemas"]["LoggedConversationOpened"] | components["schemas"]["LoggedMessage"] | components["schemas"]["LoggedToolResult"] | components["schemas"]["LoggedToolResultChunk"] | components["schemas"]["LoggedSuspension"] | components["schemas"]["LoggedResolution"] | components["schemas"]["LoggedRollback"] | components["schemas"]["LoggedSessionClosed"] | components["schemas"]["LoggedTurnStarted"] | components["schemas"]["LoggedTurnEnded"] | components["schemas"]["LoggedCompactionRequested"] | components["schemas"]["LoggedLoopDetected"] | components["schemas"]["LoggedSummary"] | components["schemas"]["LoggedEventDropped"] | components["schemas"]["LoggedConversationErased"] | components["schemas"]["LoggedMemorySaved"] | components["schemas"]["LoggedMemoryFused"] | components["schemas"]["LoggedMemorySuperseded"] | components["schemas"]["LoggedMemoryDeleted"] | components["schemas"]["LoggedMemoryOutcome"] | components["schemas"]["LoggedMemoryRetrieved"] | components["schemas"]["LoggedSkillSaved"]);
        /** event.dropped */
        LoggedEventDropped: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "event.dropped";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            reason?: string | null;
            data?: {
                position?: string;
            };
        };
        /** loop.detected */
        LoggedLoopDetected: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "loop.detected";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            tool: string;
            arguments_sha256: string;
            count: number;
        };
        /** memory.deleted */
        LoggedMemoryDeleted: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.deleted";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @default false */
            hard?: boolean;
            reason?: string | null;
        };
        /** memory.fused */
        LoggedMemoryFused: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.fused";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @enum {string} */
            memory_type: "fact" | "preference" | "event" | "constraint" | "procedure" | "failure_pattern" | "tool_affordance";
            text: string;
            normalized_text: string;
            trust: "model" | "tool" | "user";
            topic?: string | null;
            role?: string | null;
            /** @default [] */
            entities?: string[];
            temporal?: components["schemas"]["MemoryTime"] | null;
            tags?: components["schemas"]["MemoryTags"] | null;
            /** @default 1 */
            confidence?: number;
            source_record_ids: string[];
            /** @default [] */
            child_composite_ids?: string[];
        };
        /** memory.outcome */
        LoggedMemoryOutcome: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.outcome";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            succeeded: boolean;
        };
        /** memory.retrieved */
        LoggedMemoryRetrieved: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.retrieved";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            records: components["schemas"]["RetrievedRecord"][];
            taught_by?: string | null;
        };
        /** memory.saved */
        LoggedMemorySaved: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.saved";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @enum {string} */
            memory_type: "fact" | "preference" | "event" | "constraint" | "procedure" | "failure_pattern" | "tool_affordance";
            text: string;
            normalized_text: string;
            trust: "model" | "tool" | "user";
            topic?: string | null;
            role?: string | null;
            /** @default [] */
            entities?: string[];
            temporal?: components["schemas"]["MemoryTime"] | null;
            tags?: components["schemas"]["MemoryTags"] | null;
            /** @default 1 */
            confidence?: number;
        };
        /** memory.superseded */
        LoggedMemorySuperseded: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "memory.superseded";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            by: string;
            reason?: string | null;
        };
        /** message */
        LoggedMessage: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "message";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            role: "assistant" | "developer" | "system" | "user";
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            tool_calls?: components["schemas"]["ToolCall"][] | null;
            model?: string | null;
            status?: ("complete" | "interrupted") | null;
            usage?: components["schemas"]["Usage"] | null;
        };
        /** resolution */
        LoggedResolution: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "resolution";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            suspension_id: string;
            outcome: "answered" | "approved" | "cancelled" | "expired" | "rejected";
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
        };
        /** rollback */
        LoggedRollback: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "rollback";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            to: string;
        };
        /** session.closed */
        LoggedSessionClosed: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "session.closed";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            reason: "explicit" | "idle";
            after?: string | null;
        };
        /** skill.saved */
        LoggedSkillSaved: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "skill.saved";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            intent: string;
            normalized_text: string;
            doc_markdown: string;
            trust: "model" | "tool" | "user";
            /** @default [] */
            preconditions?: string[];
        };
        /** summary */
        LoggedSummary: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "summary";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            summary_id: string;
            text: string;
            tokens: number;
            span: components["schemas"]["Span"];
            previous: string | null;
            reason: "budget" | "explicit" | "idle";
            summarizer: string;
            trust: "model" | "tool" | "user";
            tokens_before: number;
            tokens_after: number;
            policy: string;
            previous_position?: string | null;
            rollback?: string | null;
            model?: string | null;
            cost?: number | null;
        };
        /** suspension */
        LoggedSuspension: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "suspension";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id?: string | null;
            prompt?: string | null;
            /** Format: date-time */
            expires_at?: string | null;
        };
        /** tool.result */
        LoggedToolResult: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "tool.result";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            tool_call_id: string;
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            /** @default false */
            is_error?: boolean;
            /** @default false */
            pinned?: boolean;
            spill?: components["schemas"]["Spill"] | null;
        };
        /** tool.result.chunk */
        LoggedToolResultChunk: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "tool.result.chunk";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            spill_id: string;
            index: number;
            count: number;
            content: string;
        };
        /** turn.ended */
        LoggedTurnEnded: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "turn.ended";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /** turn.started */
        LoggedTurnStarted: {
            /** @description unique in its conversation; a repeat is a duplicate */
            id: string;
            type: "turn.started";
            time: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            /** @description W3C trace context */
            traceparent?: string;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * LoopDetected
         * @description Identical calls in a row reached the policy's `loop_guard`.
         */
        LoopDetected: {
            tool: string;
            arguments_sha256: string;
            count: number;
        };
        /**
         * LossOfSwitch
         * @description What a conversation would lose or lost by a switch, or why that is not known (`because`).
         */
        LossOfSwitch: {
            conversation: string;
            because: string;
        };
        /**
         * MadeKey
         * @description A new key. `key` is the secret, shown in this answer and never again.
         */
        MadeKey: {
            id: string;
            name: string | null;
            scopes: ("admin" | "append" | "erase" | "read" | "subscribe" | "tokens")[];
            created: string | null;
            expires_at: string | null;
            expired: boolean;
            key: string;
        };
        /**
         * MadeTenant
         * @description A new tenant. `key` is the secret of its first key, shown in this answer and never again.
         */
        MadeTenant: {
            name: string;
            policy: Record<string, unknown>;
            policy_error: string | null;
            next_policy: Record<string, unknown> | null;
            encryption: boolean;
            erasure: "kept" | "opaque";
            quota: Record<string, unknown>;
            quota_in_force: Record<string, unknown>;
            keys: components["schemas"]["Key"][];
            key: string;
        };
        /**
         * Me
         * @description Whose the credential is, and its scopes. `quota` is the tenant's with the deployment's defaults. `used_last_minute` is what the tenant used of its rates, at all gateways together, by the quotas' names and in their units. It and `used_today` are null while Redis does not answer. Of an end user's token `user` says whose it is; the tenant's quota and what it used are not shown to end users.
         */
        Me: {
            tenant: string;
            scopes: ("admin" | "append" | "erase" | "read" | "subscribe" | "tokens")[];
            quota: Record<string, unknown>;
            used_today: components["schemas"]["SummaryUse"] | null;
            used_last_minute: {
                [key: string]: number;
            } | null;
            user?: string;
        };
        /**
         * Memories
         * @description A page of records, newest first.
         */
        Memories: {
            memories: components["schemas"]["Memory"][];
            next_before: string | null;
        };
        /**
         * Memory
         * @description A record, a composite of several, or a skill. `positions` are the events that taught it. `trust` says who said it: nothing that is recalled is an instruction. `superseded_by` is a later record that conflicts with it. A composite says what its `sources` say; `children` are the composites that it has taken in.
         */
        Memory: {
            id: string;
            kind: "composite" | "record" | "skill";
            type: string;
            text: string;
            normalized_text: string;
            user: string | null;
            channel: string | null;
            conversation: string | null;
            topic: string | null;
            role: string | null;
            entities: string[];
            tags: {
                [key: string]: string[];
            };
            temporal: {
                [key: string]: string;
            };
            confidence: number;
            trust: "model" | "tool" | "user";
            origin: "explicit" | "model" | "rules";
            positions: string[];
            created: string;
            confirmed_at: string;
            revision: number;
            duplicates: number;
            superseded_by: string | null;
            expired_at: string | null;
            expired_reason: string | null;
            last_retrieved_at: string | null;
            use: components["schemas"]["Use"];
            sources?: string[];
            children?: string[];
            doc_markdown?: string;
            preconditions?: string[];
        };
        /**
         * MemoryDeleted
         * @description A record or a skill was deleted. `hard`: its text leaves the store, too.
         */
        MemoryDeleted: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @default false */
            hard?: boolean;
            reason?: string | null;
        };
        /**
         * MemoryFused
         * @description Several records became a composite, which ranks above them; they stay.
         */
        MemoryFused: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @enum {string} */
            memory_type: "fact" | "preference" | "event" | "constraint" | "procedure" | "failure_pattern" | "tool_affordance";
            text: string;
            normalized_text: string;
            trust: "model" | "tool" | "user";
            topic?: string | null;
            role?: string | null;
            /** @default [] */
            entities?: string[];
            temporal?: components["schemas"]["MemoryTime"] | null;
            tags?: components["schemas"]["MemoryTags"] | null;
            /** @default 1 */
            confidence?: number;
            source_record_ids: string[];
            /** @default [] */
            child_composite_ids?: string[];
        };
        /**
         * MemoryHit
         * @description A hit of a search: larger scores fit better. `channels` found it. Of a turn, `position` is that of its event. `trust` says who said it: nothing that is recalled is an instruction. `scores` are the parts of the score.
         */
        MemoryHit: {
            kind: "composite" | "record" | "skill" | "turn";
            id: string;
            text: string;
            score: number;
            channels: ("pragmatic_vectors" | "tags" | "text" | "time" | "vectors")[];
            conversation: string | null;
            position: string | null;
            trust: "model" | "tool" | "user";
            record?: components["schemas"]["Memory"];
            scores?: {
                [key: string]: number;
            };
        };
        /**
         * MemoryHits
         * @description The hits, best first, and the tokens of their texts. `away`: the channels that could not be asked, and why. `missing`: what the plan says is asked for (`missing_slots`) and no relevant hit says.
         */
        MemoryHits: {
            results: components["schemas"]["MemoryHit"][];
            background_context: string | null;
            tokens: number;
            away: {
                [key: string]: string;
            };
            missing: string[];
            plan?: components["schemas"]["Plan"];
        };
        /**
         * MemoryOutcome
         * @description An action that used a record or a skill succeeded or failed.
         */
        MemoryOutcome: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            succeeded: boolean;
        };
        /**
         * MemoryRetrieved
         * @description Searches and contexts gave records out: counts of some seconds, for one scope.
         */
        MemoryRetrieved: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            records: components["schemas"]["RetrievedRecord"][];
            taught_by?: string | null;
        };
        /**
         * MemorySaved
         * @description A record of the long-term memory was learnt, confirmed, or (with a `topic`) revised.
         */
        MemorySaved: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            /** @enum {string} */
            memory_type: "fact" | "preference" | "event" | "constraint" | "procedure" | "failure_pattern" | "tool_affordance";
            text: string;
            normalized_text: string;
            trust: "model" | "tool" | "user";
            topic?: string | null;
            role?: string | null;
            /** @default [] */
            entities?: string[];
            temporal?: components["schemas"]["MemoryTime"] | null;
            tags?: components["schemas"]["MemoryTags"] | null;
            /** @default 1 */
            confidence?: number;
        };
        /**
         * MemorySearch
         * @description A search. `user`, `channel` and `conversation` narrow it. `as_of` answers from what was known then. `tools`, `constraints` and `failures` are words that count like the query's. Without a `limit` there are at most 10 results, or as many as the plan's `depth` if that is more.
         */
        MemorySearch: {
            query: string;
            /** @default null */
            user?: string | null;
            /** @default null */
            channel?: string | null;
            /** @default null */
            conversation?: string | null;
            /**
             * @default [
             *       "record",
             *       "turn",
             *       "skill"
             *     ]
             */
            kinds?: ("record" | "skill" | "turn")[];
            /** @default [] */
            types?: ("constraint" | "event" | "fact" | "failure_pattern" | "preference" | "procedure" | "tool_affordance")[];
            /** @default null */
            mode?: ("action" | "answer" | "mixed") | null;
            /** @default [] */
            tools?: string[];
            /** @default [] */
            constraints?: string[];
            /** @default [] */
            failures?: string[];
            /** @default null */
            since?: string | null;
            /** @default null */
            until?: string | null;
            /** @default null */
            as_of?: string | null;
            /** @default null */
            limit?: number | null;
            /** @default null */
            max_tokens?: number | null;
            /** @default null */
            profile?: "facts" | null;
            /** @default false */
            explain?: boolean;
        };
        /**
         * MemoryStats
         * @description How many records stand, by type, and how many expired.
         */
        MemoryStats: {
            records: number;
            expired: number;
            types: {
                [key: string]: number;
            };
        };
        /**
         * MemorySuperseded
         * @description A later statement conflicts with a record. `by` is the record of that statement.
         */
        MemorySuperseded: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            by: string;
            reason?: string | null;
        };
        /**
         * MemoryTags
         * @description What a record is about, for recall by tags.
         */
        MemoryTags: {
            /** @default [] */
            task?: string[];
            /** @default [] */
            tool?: string[];
            /** @default [] */
            constraint?: string[];
            /** @default [] */
            failure?: string[];
            /** @default [] */
            affordance?: string[];
        };
        /**
         * MemoryTime
         * @description When a record is about: the time it speaks of, and from when to when it holds (RFC 3339).
         */
        MemoryTime: {
            t_ref?: string | null;
            t_valid_from?: string | null;
            t_valid_to?: string | null;
        };
        /**
         * MemoryVoided
         * @description What a log taught changed: a rollback went back (`to` is the last event that stays), or an operator dropped an event (`position`). On the topic of memories only.
         */
        MemoryVoided: {
            by: string;
            to?: string | null;
            position?: string | null;
        };
        /**
         * Message
         * @description A message. `tool_calls` belong to an assistant's; `content` may be null only there, beside `tool_calls`.
         */
        Message: {
            role: "assistant" | "developer" | "system" | "user";
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            tool_calls?: components["schemas"]["ToolCall"][] | null;
            model?: string | null;
            status?: ("complete" | "interrupted") | null;
            usage?: components["schemas"]["Usage"] | null;
        };
        /**
         * MintedToken
         * @description A token of an end user. It is stored nowhere.
         */
        MintedToken: {
            token: string;
            expires_at: string;
        };
        /**
         * ModelCalled
         * @description A call of a model, and the digest of what it was sent. On the topic of renders only.
         */
        ModelCalled: {
            model: string;
            render_digest: string;
            position: string;
            format: "anthropic" | "events" | "openai" | "rendered";
            tokens: number;
            summary_id?: string | null;
            policy?: string | null;
            reported_usage?: Record<string, unknown> | null;
            latency_ms?: number | null;
            max_tokens?: number | null;
            /** @default [] */
            recalled?: string[];
            generation?: number | null;
        };
        /**
         * MyHour
         * @description What the tenant used at all gateways together in the last hour, minute by minute: by the names of its quotas and in their units, whether they are limited or not.
         */
        MyHour: {
            hour: components["schemas"]["Plots"];
        };
        /** @description A message in Anthropic's format. Send `system` as a first message with that role. */
        NewAnthropicMessage: {
            role: "system";
            content: string | {
                type: "text";
                text: string;
                cache_control?: unknown;
                citations?: unknown;
            }[];
            model?: string | null;
            id?: string | null;
            time?: string | null;
            usage?: unknown;
            type?: unknown;
            stop_reason?: unknown;
            stop_sequence?: unknown;
            stop_details?: unknown;
            container?: unknown;
            context_management?: unknown;
        } | {
            role: "user";
            content: string | ({
                type: "text";
                text: string;
                cache_control?: unknown;
                citations?: unknown;
            } | {
                type: "image";
                source: {
                    type: "base64";
                    media_type: string;
                    data: string;
                    url?: unknown;
                    file_id?: unknown;
                } | {
                    type: "url";
                    url: string;
                    media_type?: unknown;
                    data?: unknown;
                    file_id?: unknown;
                };
                cache_control?: unknown;
            } | {
                type: "document";
                source: {
                    type: "base64";
                    media_type: string;
                    data: string;
                    url?: unknown;
                    file_id?: unknown;
                    content?: unknown;
                } | {
                    type: "url";
                    url: string;
                    media_type?: unknown;
                    data?: unknown;
                    file_id?: unknown;
                    content?: unknown;
                } | {
                    type: "text";
                    data: string;
                    media_type?: unknown;
                    url?: unknown;
                    file_id?: unknown;
                    content?: unknown;
                } | {
                    type: "file";
                    file_id: string;
                    media_type?: unknown;
                    data?: unknown;
                    url?: unknown;
                    content?: unknown;
                } | {
                    type: "content";
                    content: string | ({
                        type: "text";
                        text: string;
                        cache_control?: unknown;
                        citations?: unknown;
                    } | {
                        type: "image";
                        source: {
                            type: "base64";
                            media_type: string;
                            data: string;
                            url?: unknown;
                            file_id?: unknown;
                        } | {
                            type: "url";
                            url: string;
                            media_type?: unknown;
                            data?: unknown;
                            file_id?: unknown;
                        };
                        cache_control?: unknown;
                    })[];
                    media_type?: unknown;
                    data?: unknown;
                    url?: unknown;
                    file_id?: unknown;
                };
                title?: string | null;
                cache_control?: unknown;
                context?: unknown;
                citations?: unknown;
            } | {
                type: "tool_result";
                tool_use_id: string;
                content?: string | ({
                    type: "text";
                    text: string;
                    cache_control?: unknown;
                    citations?: unknown;
                } | {
                    type: "image";
                    source: {
                        type: "base64";
                        media_type: string;
                        data: string;
                        url?: unknown;
                        file_id?: unknown;
                    } | {
                        type: "url";
                        url: string;
                        media_type?: unknown;
                        data?: unknown;
                        file_id?: unknown;
                    };
                    cache_control?: unknown;
                } | {
                    type: "document";
                    source: {
                        type: "base64";
                        media_type: string;
                        data: string;
                        url?: unknown;
                        file_id?: unknown;
                        content?: unknown;
                    } | {
                        type: "url";
                        url: string;
                        media_type?: unknown;
                        data?: unknown;
                        file_id?: unknown;
                        content?: unknown;
                    } | {
                        type: "text";
                        data: string;
                        media_type?: unknown;
                        url?: unknown;
                        file_id?: unknown;
                        content?: unknown;
                    } | {
                        type: "file";
                        file_id: string;
                        media_type?: unknown;
                        data?: unknown;
                        url?: unknown;
                        content?: unknown;
                    } | {
                        type: "content";
                        content: string | ({
                            type: "text";
                            text: string;
                            cache_control?: unknown;
                            citations?: unknown;
                        } | {
                            type: "image";
                            source: {
                                type: "base64";
                                media_type: string;
                                data: string;
                                url?: unknown;
                                file_id?: unknown;
                            } | {
                                type: "url";
                                url: string;
                                media_type?: unknown;
                                data?: unknown;
                                file_id?: unknown;
                            };
                            cache_control?: unknown;
                        })[];
                        media_type?: unknown;
                        data?: unknown;
                        url?: unknown;
                        file_id?: unknown;
                    };
                    title?: string | null;
                    cache_control?: unknown;
                    context?: unknown;
                    citations?: unknown;
                })[] | null;
                is_error?: boolean | null;
                cache_control?: unknown;
            })[];
            model?: string | null;
            id?: string | null;
            time?: string | null;
            usage?: unknown;
            type?: unknown;
            stop_reason?: unknown;
            stop_sequence?: unknown;
            stop_details?: unknown;
            container?: unknown;
            context_management?: unknown;
        } | {
            role: "assistant";
            content: string | ({
                type: "text";
                text: string;
                cache_control?: unknown;
                citations?: unknown;
            } | {
                type: "tool_use";
                id: string;
                name: string;
                input: Record<string, unknown>;
                cache_control?: unknown;
                caller?: unknown;
            } | {
                type: "thinking";
                thinking: string;
                signature?: string | null;
                cache_control?: unknown;
            } | {
                type: "redacted_thinking";
                data: string;
                cache_control?: unknown;
            })[];
            model?: string | null;
            usage?: {
                [key: string]: number | (string | null | Record<string, unknown>);
            };
            id?: string | null;
            time?: string | null;
            type?: unknown;
            stop_reason?: unknown;
            stop_sequence?: unknown;
            stop_details?: unknown;
            container?: unknown;
            context_management?: unknown;
        };
        /**
         * compaction.requested
         * @description A summary is wanted now, of all that may leave the window's tail.
         */
        NewCompactionRequested: {
            type: "compaction.requested";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
        };
        /**
         * conversation.opened
         * @description Opens a conversation with its own policy, tools and metadata. Optional: a first message opens by itself.
         */
        NewConversationOpened: {
            type: "conversation.opened";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
            channel?: string | null;
            user?: string | null;
            tools?: Record<string, unknown>[] | null;
            metadata?: Record<string, unknown> | null;
        };
        /** @description An event to append: `type` and the fields of this type. The gateway adds `id` and `time` if they are missing. */
        NewEvent: components["schemas"]["NewConversationOpened"] | components["schemas"]["NewMessage"] | components["schemas"]["NewToolResult"] | components["schemas"]["NewSuspension"] | components["schemas"]["NewResolution"] | components["schemas"]["NewRollback"] | components["schemas"]["NewSessionClosed"] | components["schemas"]["NewTurnStarted"] | components["schemas"]["NewTurnEnded"] | components["schemas"]["NewCompactionRequested"] | components["schemas"]["NewLoopDetected"] | components["schemas"]["NewSummary"] | components["schemas"]["NewOther"];
        /**
         * NewGeneration
         * @description A generation to build: the deployment's policy in it (null: the live one's).
         */
        NewGeneration: {
            /** @default null */
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                encryption?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
        };
        /**
         * NewKey
         * @description A key to make. Without `scopes` it has the usual ones; without `expires_at` it does not expire.
         */
        NewKey: {
            /** @default null */
            scopes?: ("append" | "read" | "subscribe" | "tokens" | "admin" | "erase")[] | null;
            /** @default null */
            name?: string | null;
            /** @default null */
            expires_at?: string | null;
        };
        /**
         * loop.detected
         * @description Identical calls in a row reached the policy's `loop_guard`.
         */
        NewLoopDetected: {
            type: "loop.detected";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            tool: string;
            arguments_sha256: string;
            count: number;
        };
        /**
         * NewMemory
         * @description A record to save. It belongs to the conversation's user and channel, or to the `user` and `channel` given. A record with a `topic` is revised by the next one of that topic. `trust` is who says it: `model` where a model decided to save it.
         */
        NewMemory: {
            text: string;
            /**
             * @default fact
             */
            type?: "constraint" | "event" | "fact" | "failure_pattern" | "preference" | "procedure" | "tool_affordance";
            /** @default null */
            user?: string | null;
            /** @default null */
            channel?: string | null;
            /** @default null */
            conversation?: string | null;
            /** @default null */
            topic?: string | null;
            /** @default null */
            tags?: components["schemas"]["NewTags"] | null;
            /** @default null */
            temporal?: components["schemas"]["NewTimes"] | null;
            /** @default 1 */
            confidence?: number;
            /**
             * @default user
             */
            trust?: "model" | "tool" | "user";
        };
        /**
         * message
         * @description A message. `tool_calls` belong to an assistant's; `content` may be null only there, beside `tool_calls`.
         */
        NewMessage: {
            type: "message";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            role: "assistant" | "developer" | "system" | "user";
            content?: string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[] | null;
            name?: string | null;
            tool_calls?: {
                id: string;
                name: string;
                arguments: string;
            }[] | null;
            model?: string | null;
            status?: ("complete" | "interrupted") | null;
            usage?: {
                prompt_tokens?: number | null;
                completion_tokens?: number | null;
                input_tokens?: number | null;
                output_tokens?: number | null;
                total_tokens?: number | null;
            } | null;
        };
        NewModelCall: {
            model: string;
            render_digest: string;
            position: string;
            format: "anthropic" | "events" | "openai" | "rendered";
            tokens: number;
            summary_id?: string | null;
            policy?: string | null;
            reported_usage?: Record<string, unknown> | null;
            latency_ms?: number | null;
            max_tokens?: number | null;
            /** @default [] */
            recalled?: string[];
        };
        /** @description A message in OpenAI's chat format. */
        NewOpenAIMessage: {
            role: "system" | "developer" | "user";
            content: string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[];
            name?: string | null;
            model?: string | null;
            tool_calls?: unknown[] | null;
            id?: string | null;
            time?: string | null;
            tool_call_id?: unknown;
            refusal?: unknown;
            annotations?: unknown;
            audio?: unknown;
            function_call?: unknown;
            parsed?: unknown;
            reasoning?: unknown;
            reasoning_content?: unknown;
        } | {
            role: "assistant";
            content?: (string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[]) | null;
            name?: string | null;
            model?: string | null;
            tool_calls: {
                id: string;
                function: {
                    name: string;
                    arguments: string;
                };
                type?: unknown;
                index?: unknown;
            }[];
            id?: string | null;
            time?: string | null;
            tool_call_id?: unknown;
            refusal?: unknown;
            annotations?: unknown;
            audio?: unknown;
            function_call?: unknown;
            parsed?: unknown;
            reasoning?: unknown;
            reasoning_content?: unknown;
        } | {
            role: "assistant";
            content?: (string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[]) | null;
            refusal?: string | null;
            name?: string | null;
            model?: string | null;
            tool_calls?: unknown[] | null;
            id?: string | null;
            time?: string | null;
            tool_call_id?: unknown;
            annotations?: unknown;
            audio?: unknown;
            function_call?: unknown;
            parsed?: unknown;
            reasoning?: unknown;
            reasoning_content?: unknown;
        } | {
            role: "tool";
            tool_call_id: string;
            content?: (string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[]) | null;
            name?: string | null;
            model?: null;
            tool_calls?: unknown[] | null;
            id?: string | null;
            time?: string | null;
            refusal?: unknown;
            annotations?: unknown;
            audio?: unknown;
            function_call?: unknown;
            parsed?: unknown;
            reasoning?: unknown;
            reasoning_content?: unknown;
        };
        /**
         * an event of your own
         * @description A type of your own, like `acme.ticket.assigned.v1`. It is in the log and the history, and in no window.
         */
        NewOther: {
            type: string;
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * resolution
         * @description What became of a suspension.
         */
        NewResolution: {
            type: "resolution";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            suspension_id: string;
            outcome: "answered" | "approved" | "cancelled" | "expired" | "rejected";
            content?: string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[] | null;
        };
        /**
         * rollback
         * @description Go back: `to` is a position, or the id of one of the last 1,024 events, and the last that stays.
         */
        NewRollback: {
            type: "rollback";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            to: string;
        };
        /**
         * session.closed
         * @description The session is over; the next message or tool result opens it again. `after` is the last message's position: void if another came.
         */
        NewSessionClosed: {
            type: "session.closed";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            reason: "explicit" | "idle";
            after?: string | null;
        };
        /**
         * NewSkill
         * @description A skill to save. Saving the same `intent` again revises it. `trust` is who says it.
         */
        NewSkill: {
            intent: string;
            doc_markdown: string;
            /** @default [] */
            preconditions?: string[];
            /** @default null */
            user?: string | null;
            /** @default null */
            channel?: string | null;
            /** @default null */
            conversation?: string | null;
            /**
             * @default user
             */
            trust?: "model" | "tool" | "user";
        };
        /**
         * summary
         * @description A summary of a span of events; it is in force once the fold accepted it.
         */
        NewSummary: {
            type: "summary";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            summary_id: string;
            text: string;
            tokens: number;
            /**
             * Span
             * @description The run of events a summary covers. `from` and `to` are positions, both included. `positions` are the offsets of its events, the first absolute and each later one as the difference to the one before. `digest` is the SHA-256 over the SHA-256 of each event id, in order. `kept` are, in the same form, the offsets of events in between that it does not cover: they are still in the window. `stands` has for each of `positions` a `1` where that event was summarised, and a `0` where a rollback abandoned it, an operator dropped it, it was rejected, or it says nothing to a window; it is missing where the writer does not say. `survives_rollbacks`: a summary of it may be accepted after rollbacks that it does not know, where the window holds exactly these positions. `apart` are, in the form of `positions`, results in the span that had come before their calls and were left out before these came: they belong to no call.
             */
            span: {
                from: string;
                to: string;
                count: number;
                positions: number[];
                digest: string;
                /** @default [] */
                kept?: number[];
                stands?: string | null;
                /** @default false */
                survives_rollbacks?: boolean;
                /** @default [] */
                apart?: number[];
            };
            previous: string | null;
            reason: "budget" | "explicit" | "idle";
            summarizer: string;
            trust: "model" | "tool" | "user";
            tokens_before: number;
            tokens_after: number;
            policy: string;
            previous_position?: string | null;
            rollback?: string | null;
            model?: string | null;
            cost?: number | null;
        };
        /**
         * suspension
         * @description The run waits for somebody: an approval, an input, or something outside.
         */
        NewSuspension: {
            type: "suspension";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id?: string | null;
            prompt?: string | null;
            /** Format: date-time */
            expires_at?: string | null;
        };
        /**
         * NewTags
         * @description Words for what a record is about.
         */
        NewTags: {
            /** @default [] */
            task?: string[];
            /** @default [] */
            tool?: string[];
            /** @default [] */
            constraint?: string[];
            /** @default [] */
            failure?: string[];
            /** @default [] */
            affordance?: string[];
        };
        /**
         * NewTenant
         * @description A tenant to record. `encryption` is that key of its policy. `scopes`, `key_name` and `expires_at` are those of its first key.
         */
        NewTenant: {
            name: string;
            /** @default null */
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                encryption?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
            /** @default null */
            encryption?: boolean | null;
            /** @default null */
            quota?: {
                requests_per_second?: number | null;
                events_per_second?: number | null;
                tokens_per_minute?: number | null;
                requests_burst?: number | null;
                events_burst?: number | null;
                tokens_burst?: number | null;
                concurrent_requests?: number | null;
                streams?: number | null;
                body_bytes?: number | null;
                rollbacks_per_minute?: number | null;
                rollbacks_burst?: number | null;
                summary_tokens_per_day?: number | null;
                summary_cost_per_day?: number | null;
                summary_weight?: number | null;
            } | null;
            /** @default null */
            scopes?: ("append" | "read" | "subscribe" | "tokens" | "admin" | "erase")[] | null;
            /** @default null */
            key_name?: string | null;
            /** @default null */
            expires_at?: string | null;
        };
        /**
         * NewTimes
         * @description The time a record speaks of, and from when to when it holds: days, or RFC 3339 times.
         */
        NewTimes: {
            /** @default null */
            t_ref?: (string) | null;
            /** @default null */
            t_valid_from?: (string) | null;
            /** @default null */
            t_valid_to?: (string) | null;
        };
        /**
         * NewToken
         * @description A token to mint: for the conversations that were opened with this `user`, and of them only `conversations`, if they are given.
         */
        NewToken: {
            user: string;
            verbs: ("append" | "read" | "stream")[];
            /** @default null */
            conversations?: string[] | null;
            /**
             * @description seconds
             * @default 900
             */
            expires_in?: number;
        };
        /**
         * tool.result
         * @description What a tool answered; it belongs to the first unanswered call of that id. `spill` is threadfold's own.
         */
        NewToolResult: {
            type: "tool.result";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            tool_call_id: string;
            content?: string | ({
                type: "text";
                text: string;
            } | {
                type: "image_url";
                /** ImageUrl */
                image_url: {
                    url: string;
                    detail?: string | null;
                };
            } | {
                type: "file";
                file: Record<string, unknown>;
            } | {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            })[] | null;
            name?: string | null;
            /** @default false */
            is_error?: boolean;
            /** @default false */
            pinned?: boolean;
        };
        /**
         * NewTurn
         * @description A turn to begin. `policy` decides while another turn is active. `wait` is how many seconds to wait for a queued turn.
         */
        NewTurn: {
            /** @default null */
            turn_id?: string | null;
            /** @default null */
            model?: string | null;
            /**
             * @default reject
             */
            policy?: "interrupt" | "queue" | "reject";
            /**
             * @description how long the lease lasts without a renewal
             * @default 60
             */
            seconds?: number;
            /** @default 0 */
            wait?: number;
        };
        /**
         * turn.ended
         * @description A run is over: calls it left open are dead.
         */
        NewTurnEnded: {
            type: "turn.ended";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * turn.started
         * @description A run begins. `lease` says what to do while another is in force, and for how many seconds it holds.
         */
        NewTurnStarted: {
            type: "turn.started";
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
            conversation?: string;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * Nothing
         * @description An empty object.
         */
        Nothing: Record<string, unknown>;
        OneOrMoreEvents: components["schemas"]["NewEvent"] | components["schemas"]["NewEvent"][];
        OneOrMoreEventsOfSeveral: (components["schemas"]["NewEvent"] & unknown) | (components["schemas"]["NewEvent"] & unknown)[];
        OneOrMoreMessages: components["schemas"]["NewOpenAIMessage"] | components["schemas"]["NewAnthropicMessage"] | components["schemas"]["NewOpenAIMessage"][] | components["schemas"]["NewAnthropicMessage"][];
        /**
         * OpenAIFunction
         * @description The function of a call, with its arguments as JSON text.
         */
        OpenAIFunction: {
            name: string;
            arguments: string;
        };
        /**
         * OpenAIMessage
         * @description A message in OpenAI's chat format.
         */
        OpenAIMessage: {
            role: "assistant" | "developer" | "system" | "tool" | "user";
            content?: string | Record<string, unknown>[] | null;
            name?: string;
            tool_calls?: components["schemas"]["OpenAIToolCall"][];
            tool_call_id?: string;
        };
        /**
         * OpenAIToolCall
         * @description A call of a tool in OpenAI's chat format.
         */
        OpenAIToolCall: {
            id: string;
            function: components["schemas"]["OpenAIFunction"];
            /**
             * @default function
             */
            type?: "function";
        };
        /**
         * OpenRecord
         * @description A record of the log that is nobody's event.
         */
        OpenRecord: {
            /** @description where an event stands in the log; opaque */
            position: string;
            key: string;
            cause: string;
        };
        /**
         * OpenSuspension
         * @description An open suspension.
         */
        OpenSuspension: {
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id: string | null;
            prompt: string | null;
            expires_at: string | null;
            /** @description where an event stands in the log; opaque */
            position: string;
        };
        /**
         * Opened
         * @description Opens a conversation with its own policy, tools and metadata. Optional: a first message opens by itself.
         */
        Opened: {
            policy?: Record<string, unknown> | null;
            channel?: string | null;
            user?: string | null;
            tools?: Record<string, unknown>[] | null;
            metadata?: Record<string, unknown> | null;
        };
        /**
         * Parked
         * @description Where a conversation is parked: at the position of the event that could not be applied, with the cause, and how many events wait behind it.
         */
        Parked: {
            /** @description where an event stands in the log; opaque */
            position: string;
            cause: string;
            waiting: number;
        };
        /**
         * ParkedConversation
         * @description A conversation that is parked at an event that could not be applied: its position, the cause, and how many events wait behind it.
         */
        ParkedConversation: {
            /** @description where an event stands in the log; opaque */
            position: string;
            tenant: string;
            conversation: string;
            cause: string;
            waiting: number;
        };
        /**
         * Piece
         * @description A piece of the assistant's text in progress. `offset` counts the characters before it.
         */
        Piece: {
            turn_id: string;
            delta: string;
            /** @default null */
            offset?: number | null;
        };
        /**
         * Plan
         * @description What was looked for, and why. `made_by` is `rules`, or the endpoint whose model made it. `fell_back`: what a model was asked for in vain (`plan`, `imagined_skill`), and why.
         */
        Plan: {
            mode: "action" | "answer" | "mixed";
            semantic_queries: string[];
            pragmatic_queries: string[];
            tool_hints: string[];
            required_constraints: string[];
            required_affordances: string[];
            missing_slots: string[];
            temporal_filter: components["schemas"]["PlannedTime"] | null;
            depth: number;
            reasoning: string;
            made_by: string;
            imagined_skill: components["schemas"]["ImaginedSkill"] | null;
            fell_back: {
                [key: string]: string;
            };
        };
        /**
         * PlannedTime
         * @description The time that the query names.
         */
        PlannedTime: {
            since: string | null;
            until: string | null;
        };
        /**
         * Platform
         * @description The platform's last hour, and what summaries by models used today (null while that is unknown). `events` (that workers folded) and `requests` are by second, `dead_letters` are those that were new; `behind` (events), `seconds_behind` (of the partition that is most) and `due` (conversations, for a summary) are levels.
         */
        Platform: {
            hour: components["schemas"]["Plots"];
            used_today: components["schemas"]["AllUse"] | null;
        };
        /**
         * Plots
         * @description Figures of the last hour: by name one value for every `every` seconds, oldest first, from `begins` on. A value that nobody knows is null.
         */
        Plots: {
            begins: string;
            every: number;
            figures: {
                [key: string]: (number | null)[];
            };
        };
        /**
         * Positions
         * @description Positions of a conversation's events, oldest first. `all`: there are no older ones.
         */
        Positions: {
            positions: string[];
            all: boolean;
        };
        /**
         * Problem
         * @description An RFC 9457 problem document.
         */
        Problem: {
            type: string;
            title: string;
            status: number;
            detail: string;
        };
        /**
         * PublicKeys
         * @description A JWKS document: public keys (RFC 7517), each with its `kid`.
         */
        PublicKeys: {
            keys: {
                kty: "RSA" | "EC" | "OKP";
                kid: string;
                use?: "sig";
                alg?: "RS256" | "RS384" | "RS512" | "PS256" | "PS384" | "PS512" | "ES256" | "ES384" | "ES512" | "EdDSA";
            }[];
        };
        /**
         * Ready
         * @description Kafka, Redis and the live generation answer: its number, the log's partitions, how many events are in the log and not in the windows yet (`behind`, in all partitions), and which partitions are halted: nothing new is folded there. `redis` says why Redis takes no writes: windows stand still then, and appends go on. `memory` says why this gateway's store of the long-term memory cannot be used; all else goes on. `restoring` is of how many conversations reads answer 503 while the others are served: older events of theirs are being read again.
         */
        Ready: {
            status: "ready";
            generation: number;
            partitions: number;
            behind: number;
            halted?: number[];
            redis?: string;
            memory?: string;
            restoring?: number;
        };
        /**
         * Reason
         * @description Why, kept in the log.
         */
        Reason: {
            /** @default null */
            reason?: string | null;
        };
        /**
         * ReasoningPart
         * @description A model's reasoning; `signature` is opaque and only ever goes back to the provider that made it.
         */
        ReasoningPart: {
            type: "reasoning";
            text?: string | null;
            signature?: string | null;
            provider?: string | null;
        };
        /**
         * Receipt
         * @description An erasure: the position of its event, the time of its first request, and the result in the log and in each store.
         */
        Receipt: {
            conversation: string;
            position: string;
            erased_at: string;
            log: "kept" | "opaque";
            stores: {
                [key: string]: components["schemas"]["Store"];
            };
        };
        /**
         * Receipts
         * @description A receipt for each conversation that belonged to this `user`, by name. One whose name begins with `~` is that of the user's memory, which no other route names.
         */
        Receipts: {
            user: string;
            conversations: components["schemas"]["Receipt"][];
        };
        /**
         * RecordedCall
         * @description A recorded model call. `id` is null if the tenant's policy has `renders` off.
         */
        RecordedCall: {
            id: string | null;
            recorded: boolean;
        };
        /**
         * RecordedCalls
         * @description Recorded model calls, newest first.
         */
        RecordedCalls: {
            renders: components["schemas"]["RecordedModelCall"][];
        };
        /**
         * RecordedModelCall
         * @description A recorded model call, as it was recorded.
         */
        RecordedModelCall: {
            id: string;
            time: string | null;
            record: components["schemas"]["ModelCalled"];
        };
        /**
         * RegisteredKeys
         * @description The registered public keys.
         */
        RegisteredKeys: {
            keys: Record<string, unknown>[];
        };
        /**
         * Render
         * @description A recorded model call, rendered again. `why` has the reasons if the digest is another one.
         */
        Render: {
            id: string;
            conversation: string;
            time: string | null;
            record: components["schemas"]["ModelCalled"];
            messages: Record<string, unknown>[] | null;
            render_digest: string | null;
            agrees: boolean;
            why: string[];
            system?: string;
        };
        RenderedMessage: components["schemas"]["OpenAIMessage"] | components["schemas"]["AnthropicMessage"] | components["schemas"]["WindowEvent"];
        /**
         * Renewal
         * @description How long a lease lasts from now.
         */
        Renewal: {
            /**
             * @description how long the lease lasts without a renewal
             * @default 60
             */
            seconds?: number;
        };
        /**
         * Resolution
         * @description What became of a suspension.
         */
        Resolution: {
            suspension_id: string;
            outcome: "answered" | "approved" | "cancelled" | "expired" | "rejected";
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
        };
        /**
         * Retried
         * @description How many events of the conversation were folded, and where it is parked now (null: it goes on).
         */
        Retried: {
            tenant: string;
            conversation: string;
            folded: number;
            parked: components["schemas"]["Parked"] | null;
        };
        /**
         * RetrievedRecord
         * @description How often a record was given out, and how often of these it was a hit: relevant enough for a prompt.
         */
        RetrievedRecord: {
            memory_id: string;
            retrieved: number;
            /** @default 0 */
            hits?: number;
        };
        /**
         * Revoked
         * @description The ids of the revoked keys: from now on these keys answer 401.
         */
        Revoked: {
            revoked: string[];
        };
        /**
         * Rollback
         * @description Go back: `to` is a position, or the id of one of the last 1,024 events, and the last that stays.
         */
        Rollback: {
            to: string;
        };
        /**
         * RollbackTarget
         * @description Where to go back to.
         */
        RollbackTarget: {
            /** @description the last event that stays: its position, or its id (of the last 1,024) */
            to: string;
            /** @description unique in its conversation; a repeat is a duplicate */
            id?: string;
            /**
             * Format: date-time
             * @description RFC 3339, with its zone
             */
            time?: string;
            /** @description W3C trace context */
            traceparent?: string;
        };
        /**
         * Sampled
         * @description How many conversations there are, how many were compared, and how many of the sample had more events than could be folded.
         */
        Sampled: {
            known: number;
            compared: number;
            too_long: number;
        };
        /**
         * SavedMemories
         * @description The saved records, in the order of the request.
         */
        SavedMemories: {
            memories: components["schemas"]["SavedMemory"][];
        };
        /**
         * SavedMemory
         * @description A saved record. `status` is there with `wait=applied`: `rejected` if its conversation became another user's meanwhile; `duplicate` if the `Idempotency-Key` saved something else before, whose id this is: nothing was saved. Without `wait`, a save with that key is `unknown`.
         */
        SavedMemory: {
            id: string;
            status?: "confirmed" | "created" | "duplicate" | "parked" | "rejected" | "revised" | "unknown";
        };
        /**
         * SessionClosed
         * @description The session is over; the next message or tool result opens it again. `after` is the last message's position: void if another came.
         */
        SessionClosed: {
            reason: "explicit" | "idle";
            after?: string | null;
        };
        /**
         * Shortening
         * @description One shortening of a message: the reducer, the position of the event at which it was made (null: it came too large), and the message's tokens since.
         */
        Shortening: {
            reducer: string;
            at: string | null;
            tokens: number;
        };
        /**
         * ShownTenant
         * @description A tenant. `policy` is active; `next_policy` waits for the next generation. `quota` is the tenant's own; `quota_in_force` includes the deployment's defaults. `erasure` is what an erasure makes of text in the log: `opaque` if the tenant is encrypted, else `kept`. `policy_error` is null, or why this release cannot use the policy, as one that a newer release wrote: the tenant's conversations wait then, and its requests answer 503.
         */
        ShownTenant: {
            name: string;
            policy: Record<string, unknown>;
            policy_error: string | null;
            next_policy: Record<string, unknown> | null;
            encryption: boolean;
            erasure: "kept" | "opaque";
            quota: Record<string, unknown>;
            quota_in_force: Record<string, unknown>;
            keys: components["schemas"]["Key"][];
        };
        /**
         * SideMessage
         * @description A message of a window: where it stands in it (`lane`), its tokens, its event's position (null: of no single event), and which reducers shortened it. `text` are its first 500 characters, with its calls; null where the key may not see it.
         */
        SideMessage: {
            lane: "closing" | "omitted" | "pinned" | "summary" | "system" | "tail";
            role: string;
            tokens: number;
            position: string | null;
            shortened: string[];
            text: string | null;
        };
        /**
         * SideRow
         * @description A message as it is under the live generation, and under the other rules; null: it is not there. `differs`: a model is not sent the same.
         */
        SideRow: {
            before: components["schemas"]["SideMessage"] | null;
            after: components["schemas"]["SideMessage"] | null;
            differs: boolean;
        };
        /**
         * Sides
         * @description A count under the live generation's rules, and under the others.
         */
        Sides: {
            before: number;
            after: number;
        };
        /**
         * SkillSaved
         * @description A skill was saved: how something is done. Saving the same intent again revises it.
         */
        SkillSaved: {
            user?: string | null;
            channel?: string | null;
            /** @default [] */
            positions?: string[];
            /**
             * @default explicit
             */
            origin?: "explicit" | "model" | "rules";
            model?: string | null;
            rollback?: string | null;
            memory_id: string;
            intent: string;
            normalized_text: string;
            doc_markdown: string;
            trust: "model" | "tool" | "user";
            /** @default [] */
            preconditions?: string[];
        };
        /**
         * Span
         * @description The run of events a summary covers. `from` and `to` are positions, both included. `positions` are the offsets of its events, the first absolute and each later one as the difference to the one before. `digest` is the SHA-256 over the SHA-256 of each event id, in order. `kept` are, in the same form, the offsets of events in between that it does not cover: they are still in the window. `stands` has for each of `positions` a `1` where that event was summarised, and a `0` where a rollback abandoned it, an operator dropped it, it was rejected, or it says nothing to a window; it is missing where the writer does not say. `survives_rollbacks`: a summary of it may be accepted after rollbacks that it does not know, where the window holds exactly these positions. `apart` are, in the form of `positions`, results in the span that had come before their calls and were left out before these came: they belong to no call.
         */
        Span: {
            from: string;
            to: string;
            count: number;
            positions: number[];
            digest: string;
            /** @default [] */
            kept?: number[];
            stands?: string | null;
            /** @default false */
            survives_rollbacks?: boolean;
            /** @default [] */
            apart?: number[];
        };
        /**
         * Spill
         * @description Where the whole text of a spilled result is: `chunks` are the positions of its pieces, in order. `size` are the characters of each piece but the last. `parts` is there where the content was a list: for each of its parts the characters of its text, null for a part of another kind, which stays in the result's own content.
         */
        Spill: {
            chars: number;
            bytes: number;
            sha256: string;
            size: number;
            chunks: string[];
            parts?: (number | null)[] | null;
        };
        /**
         * Spread
         * @description The sum of all values, their median, their 95th percentile and the largest one.
         */
        Spread: {
            sum: number;
            p50: number;
            p95: number;
            max: number;
        };
        /**
         * SpreadSides
         * @description The tokens of all contexts under the two policies.
         */
        SpreadSides: {
            before: components["schemas"]["Spread"];
            after: components["schemas"]["Spread"];
        };
        /**
         * Step
         * @description What one reducer did to the messages.
         */
        Step: {
            reducer: string;
            messages_before: number;
            messages_after: number;
            tokens_before: number;
            tokens_after: number;
        };
        /**
         * Store
         * @description The result in one store. `deadline` (RFC 3339) is the latest time from which it is true; null: it is true now.
         */
        Store: {
            state: "deleted" | "kept" | "opaque";
            deadline: string | null;
            how: string;
        };
        /**
         * Succeeded
         * @description Whether the action that used the record succeeded.
         */
        Succeeded: {
            succeeded: boolean;
        };
        /**
         * Summaries
         * @description A page of summaries, newest first.
         */
        Summaries: {
            summaries: components["schemas"]["LoggedSummary"][];
            next_before: string | null;
        };
        /**
         * Summary
         * @description A summary of a span of events; it is in force once the fold accepted it.
         */
        Summary: {
            summary_id: string;
            text: string;
            tokens: number;
            span: components["schemas"]["Span"];
            previous: string | null;
            reason: "budget" | "explicit" | "idle";
            summarizer: string;
            trust: "model" | "tool" | "user";
            tokens_before: number;
            tokens_after: number;
            policy: string;
            previous_position?: string | null;
            rollback?: string | null;
            model?: string | null;
            cost?: number | null;
        };
        /**
         * SummaryUse
         * @description What summaries by models have used since 00:00 UTC, over all workers, calls under way included: tokens of prompts and answers, and money at the prices of the settings.
         */
        SummaryUse: {
            summary_tokens: number;
            summary_cost: number;
        };
        /**
         * SummaryVoided
         * @description A rollback took a summary back. On the topic of summaries only.
         */
        SummaryVoided: {
            summary_id: string;
            by: string;
        };
        /**
         * Suspension
         * @description The run waits for somebody: an approval, an input, or something outside.
         */
        Suspension: {
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id?: string | null;
            prompt?: string | null;
            /** Format: date-time */
            expires_at?: string | null;
        };
        /**
         * Suspensions
         * @description A page of open suspensions. `unreadable` names conversations of this page whose windows cannot be read now: what they wait for is not known.
         */
        Suspensions: {
            suspensions: components["schemas"]["ListedSuspension"][];
            unreadable: string[];
            next_before: string | null;
        };
        /**
         * Switch
         * @description `accept_loss`: switch even if conversations lose what their windows hold.
         */
        Switch: {
            /** @default false */
            accept_loss?: boolean;
        };
        /**
         * Task
         * @description What is or was done with a generation, from when to when (null: it goes on), and why it failed. `would_lose`: the switch was refused because conversations would forget what their windows hold. `lost` counts these, also after a switch that accepted the loss; `losses` names the first 100.
         */
        Task: {
            generation: number;
            doing: "build" | "drop" | "switch";
            begun: string;
            ended: string | null;
            error: string | null;
            would_lose: boolean;
            lost: number;
            losses: components["schemas"]["LossOfSwitch"][];
        };
        /**
         * TaskBegun
         * @description The task has begun.
         */
        TaskBegun: {
            generation: number;
            doing: "drop" | "switch";
        };
        /**
         * TenantChange
         * @description What to change. The policy is replaced whole, the quota number by number; null removes the quota.
         */
        TenantChange: {
            /** @default null */
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                encryption?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
            quota?: {
                requests_per_second?: number | null;
                events_per_second?: number | null;
                tokens_per_minute?: number | null;
                requests_burst?: number | null;
                events_burst?: number | null;
                tokens_burst?: number | null;
                concurrent_requests?: number | null;
                streams?: number | null;
                body_bytes?: number | null;
                rollbacks_per_minute?: number | null;
                rollbacks_burst?: number | null;
                summary_tokens_per_day?: number | null;
                summary_cost_per_day?: number | null;
                summary_weight?: number | null;
            } | null;
        };
        /**
         * TenantInUse
         * @description A tenant with what it has used of its daily budgets. `used_today` is null while Redis does not answer.
         */
        TenantInUse: {
            name: string;
            policy: Record<string, unknown>;
            policy_error: string | null;
            next_policy: Record<string, unknown> | null;
            encryption: boolean;
            erasure: "kept" | "opaque";
            quota: Record<string, unknown>;
            quota_in_force: Record<string, unknown>;
            keys: components["schemas"]["Key"][];
            used_today: components["schemas"]["SummaryUse"] | null;
        };
        /**
         * TenantUse
         * @description What the summaries of a tenant have used today.
         */
        TenantUse: {
            summary_tokens: number;
            summary_cost: number;
            tenant: string;
        };
        /**
         * Tenants
         * @description All tenants, by name.
         */
        Tenants: {
            tenants: components["schemas"]["ShownTenant"][];
        };
        /**
         * TextInProgress
         * @description `offset` is the number of characters of the turn's text so far.
         */
        TextInProgress: {
            turn_id: string;
            offset: number;
        };
        /** TextPart */
        TextPart: {
            type: "text";
            text: string;
        };
        /**
         * Timeline
         * @description A record between its neighbours in time, oldest first.
         */
        Timeline: {
            memories: components["schemas"]["Memory"][];
        };
        /**
         * ToCompare
         * @description What to compare with the live generation: a `policy` of the deployment, or that of a `generation`; on a sample of all tenants' conversations, or of one tenant's.
         */
        ToCompare: {
            /** @default null */
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                encryption?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
            /** @default null */
            generation?: number | null;
            /** @default null */
            tenant?: string | null;
            /** @default 50 */
            conversations?: number;
        };
        /**
         * TokenSides
         * @description The tokens of a context under the two policies; null: it cannot be rendered.
         */
        TokenSides: {
            before: number | null;
            after: number | null;
        };
        /**
         * Tokens
         * @description What the producer counted: a claim the fold checks for plausibility (see `projections.events.tokenizer`).
         */
        Tokens: {
            count: number;
            encoding: string;
            /** @default true */
            exact?: boolean;
        };
        /** ToolCall */
        ToolCall: {
            id: string;
            name: string;
            arguments: string;
        };
        /**
         * ToolResult
         * @description What a tool answered; it belongs to the first unanswered call of that id. `spill` is threadfold's own.
         */
        ToolResult: {
            tool_call_id: string;
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            /** @default false */
            is_error?: boolean;
            /** @default false */
            pinned?: boolean;
            spill?: components["schemas"]["Spill"] | null;
        };
        /**
         * ToolResultChunk
         * @description A piece of a long result's text, written by threadfold itself, before the result that names it.
         */
        ToolResultChunk: {
            spill_id: string;
            index: number;
            count: number;
            content: string;
        };
        /**
         * Turn
         * @description A turn: active (`started`), or waiting (`queued`) behind `place` other turns. `fencing_token` grows with every turn of the conversation; it is null while the turn waits.
         */
        Turn: {
            turn_id: string;
            status: "queued" | "started";
            fencing_token: number | null;
            /** @description where an event stands in the log; opaque */
            position: string;
            place?: number;
        };
        /**
         * TurnEnded
         * @description A run is over: calls it left open are dead.
         */
        TurnEnded: {
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * TurnStarted
         * @description A run begins. `lease` says what to do while another is in force, and for how many seconds it holds.
         */
        TurnStarted: {
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * TurnsOfConversation
         * @description The active turn, and the ids of those that wait.
         */
        TurnsOfConversation: {
            live: components["schemas"]["LiveTurn"] | null;
            waiting: string[];
        };
        /**
         * TwoWindows
         * @description The two windows of a conversation, row by row. `differing` counts the rows that differ; `more` are older rows that are not shown. `text` says whether texts are shown; `lost`, why a switch would lose what its summaries hold. Tokens are null if a window cannot be rendered.
         */
        TwoWindows: {
            generation: number;
            tenant: string;
            conversation: string;
            events: number;
            text: boolean;
            tokens: components["schemas"]["TokenSides"];
            lost: string | null;
            differing: number;
            more: number;
            rows: components["schemas"]["SideRow"][];
        };
        /**
         * Usage
         * @description Tokens that a model reported of one call: `prompt_tokens` and `completion_tokens`, or `input_tokens` and `output_tokens`.
         */
        Usage: {
            prompt_tokens?: number | null;
            completion_tokens?: number | null;
            input_tokens?: number | null;
            output_tokens?: number | null;
            total_tokens?: number | null;
        };
        /**
         * Use
         * @description What came of a record: how often it was given out, how often of these it was relevant enough for a prompt (a hit), and whether using it succeeded.
         */
        Use: {
            /** @default 0 */
            retrieved?: number;
            /** @default 0 */
            hits?: number;
            /** @default 0 */
            succeeded?: number;
            /** @default 0 */
            failed?: number;
        };
        /** compaction.requested */
        WindowCompactionRequested: {
            type: "compaction.requested";
            position: string | null;
        };
        /** conversation.opened */
        WindowConversationOpened: {
            type: "conversation.opened";
            position: string | null;
            policy?: Record<string, unknown> | null;
            channel?: string | null;
            user?: string | null;
            tools?: Record<string, unknown>[] | null;
            metadata?: Record<string, unknown> | null;
        };
        /** @description What a window holds, as a flat object: an event, the active summary, or a run of events that only the log still holds. */
        WindowEvent: components["schemas"]["WindowConversationOpened"] | components["schemas"]["WindowMessage"] | components["schemas"]["WindowToolResult"] | components["schemas"]["WindowSuspension"] | components["schemas"]["WindowResolution"] | components["schemas"]["WindowSessionClosed"] | components["schemas"]["WindowTurnStarted"] | components["schemas"]["WindowTurnEnded"] | components["schemas"]["WindowCompactionRequested"] | components["schemas"]["WindowLoopDetected"] | components["schemas"]["WindowSummary"] | components["schemas"]["WindowHeld"];
        /**
         * WindowHeld
         * @description A run of events of which the window keeps only where they are in the log.
         */
        WindowHeld: {
            type: "held";
            /** @description where an event stands in the log; opaque */
            from: string;
            /** @description where an event stands in the log; opaque */
            to: string;
            count: number;
            tokens: number;
            /** @description where an event stands in the log; opaque */
            position: string;
        };
        /** loop.detected */
        WindowLoopDetected: {
            type: "loop.detected";
            position: string | null;
            tool: string;
            arguments_sha256: string;
            count: number;
        };
        /** message */
        WindowMessage: {
            type: "message";
            position: string | null;
            role: "assistant" | "developer" | "system" | "user";
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            tool_calls?: components["schemas"]["ToolCall"][] | null;
            pinned?: boolean;
            /** @description the message's reasoning parts */
            reasoning?: {
                type: "reasoning";
                text?: string | null;
                signature?: string | null;
                provider?: string | null;
            }[];
        };
        /** resolution */
        WindowResolution: {
            type: "resolution";
            position: string | null;
            suspension_id: string;
            outcome: "answered" | "approved" | "cancelled" | "expired" | "rejected";
        };
        /** session.closed */
        WindowSessionClosed: {
            type: "session.closed";
            position: string | null;
            reason: "explicit" | "idle";
            after?: string | null;
        };
        /**
         * WindowSummary
         * @description The active summary among a window's own events.
         */
        WindowSummary: {
            type: "summary";
            summary_id: string;
            /** @description where an event stands in the log; opaque */
            position: string;
            text: string;
            tokens: number;
            trust: string;
            /** @description where an event stands in the log; opaque */
            to: string;
            previous: string | null;
        };
        /** suspension */
        WindowSuspension: {
            type: "suspension";
            position: string | null;
            suspension_id: string;
            kind: "approval" | "external" | "input";
            tool_call_id?: string | null;
            prompt?: string | null;
            /** Format: date-time */
            expires_at?: string | null;
        };
        /**
         * WindowToCompare
         * @description A conversation, and what to compare with the live generation: a `policy` of the deployment, or that of a `generation`.
         */
        WindowToCompare: {
            tenant: string;
            conversation: string;
            /** @default null */
            policy?: {
                /** @enum {string} */
                encoding?: "o200k_base" | "cl100k_base";
                model_window?: number;
                reserve_tokens?: number;
                hard_ceiling?: number;
                working_budget?: number;
                keep_recent_tokens?: number;
                min_messages?: number;
                compaction_ratio?: number;
                compaction?: boolean;
                trim_tool_results?: boolean;
                soft_trim_chars?: number;
                hard_clear_chars?: number;
                protect_recent?: number;
                reducers?: ({
                    name: "keep_last_n_turns";
                    n: number;
                } | {
                    name: "keep_last_n_messages";
                    n: number;
                } | {
                    name: "compact_tool_results";
                    /** @default [{tool_name} {call_id}: {result_length} characters] */
                    replacement?: string | null;
                    /** @default 0 */
                    keep_last_n?: number;
                } | {
                    name: "summarize_tool_results";
                    /** @default 5 */
                    top?: number;
                } | {
                    name: "summarize";
                })[];
                cuts?: "exact" | "stable";
                low_water?: number;
                spill_chars?: number;
                max_result_bytes?: number;
                summarizer?: string;
                close_summarizer?: string | null;
                summary_max_tokens?: number;
                idle_close_seconds?: number;
                loop_guard?: number;
                pinned_max_tokens?: number | null;
                renders?: boolean;
                encryption?: boolean;
                memory_auto?: "off" | "sessions" | "summaries";
                wm_max_tokens?: number;
                /**
                 * RecallWeights
                 * @description The weights of the parts of a score; ``token_cost`` is taken off.
                 */
                recall_weights?: {
                    /** @default 0.3 */
                    semantic?: number;
                    /** @default 0.25 */
                    action?: number;
                    /** @default 0.15 */
                    temporal?: number;
                    /** @default 0.1 */
                    recency?: number;
                    /** @default 0.1 */
                    evidence?: number;
                    /** @default 0.1 */
                    token_cost?: number;
                };
                profile?: "bounded" | "composed" | "pruning" | "sliding";
            } | null;
            /** @default null */
            generation?: number | null;
        };
        /** tool.result */
        WindowToolResult: {
            type: "tool.result";
            position: string | null;
            tool_call_id: string;
            content?: string | (components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"] | components["schemas"]["ReasoningPart"])[] | null;
            name?: string | null;
            /** @default false */
            is_error?: boolean;
            /** @default false */
            pinned?: boolean;
        };
        /** turn.ended */
        WindowTurnEnded: {
            type: "turn.ended";
            position: string | null;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /** turn.started */
        WindowTurnStarted: {
            type: "turn.started";
            position: string | null;
            turn_id: string;
            model?: string | null;
            lease?: unknown;
        };
        /**
         * WorkingMemory
         * @description The summary's text, the messages that are there word for word, and the tokens of both.
         */
        WorkingMemory: {
            compressed_history: string;
            raw_recent_turns: components["schemas"]["OpenAIMessage"][];
            tokens: number;
            threshold: "background" | "before_answer" | "none";
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
