"""Every metric of every service, declared once: name, kind, help and labels.

Names and units follow Prometheus' conventions: a prefix, base units, ``_total`` for what only
grows. No label names a conversation; ``tenant`` is a tenant that uses much, or ``other``
(``streams.metrics.top_labels``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Service = Literal["worker", "gateway", "tenants"]
"""Whose page has a metric. ``tenants``: what gateways report, because their own pages need no key
and so name no tenant.
"""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LONG_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 4)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric. ``bounds`` are those of a histogram's buckets. A counter of one label has a 0 for
    each value in ``known`` from its begin: the first count of one that was missing is no increase.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    service: Service
    bounds: tuple[float, ...] = ()
    known: tuple[str, ...] = ()


METRICS: list[Metric] = []
"""All of them, in the order in which pages and docs show them."""


def _of(service: Service) -> Callable[..., Metric]:
    def declare(
        kind: Kind,
        name: str,
        about: str,
        *labels: str,
        bounds: tuple[float, ...] = (),
        known: tuple[str, ...] = (),
    ) -> Metric:
        metric = Metric(f"threadfold_{name}", kind, about, labels, service, bounds, known)
        METRICS.append(metric)
        return metric

    return declare


_gateway, _worker, _tenants = _of("gateway"), _of("worker"), _of("tenants")

REQUESTS = _gateway(
    "counter", "http_requests_total", "Requests answered.", "route", "method", "status"
)
REQUEST_SECONDS = _gateway(
    "histogram",
    "http_seconds",
    "Seconds from the begin of a request to the end of its answer; without streams.",
    "route",
    "method",
    bounds=SECONDS,
)
UNDER_WAY = _gateway("gauge", "http_under_way", "Requests that are not answered yet.")
HALTED = _gateway(
    "gauge",
    "partition_halted",
    "1 for each partition that is halted: `threadfold doctor` says why.",
    "partition",
)
SET_ASIDE = _gateway(
    "gauge",
    "records_set_aside",
    "Invalid records of each partition, counted since Redis was empty.",
    "partition",
)
BEHIND = _gateway(
    "gauge",
    "partition_behind",
    "Events of each partition that are in the log and not in the windows yet.",
    "partition",
)
QUOTA_REFUSALS = _gateway(
    "counter",
    "quota_refusals_total",
    "Requests refused for a tenant's quota.",
    "quota",
    known=("requests_per_second", "events_per_second", "tokens_per_minute", "rollbacks_per_minute"),
)
CALLABLE_REFUSALS = _gateway(
    "counter",
    "callable_refusals_total",
    "Reads answered 503, because a callable of the conversation's policy is missing in this"
    " gateway or raised an error.",
    "reason",
    known=("missing", "raised"),
)
EMBEDDING_CALLS = _gateway(
    "counter",
    "embedding_calls_total",
    "Attempts to make vectors of texts, by outcome: ok, or the reason of the failure.",
    "endpoint",
    "outcome",
)
SEARCH_QUESTIONS = _gateway(
    "counter",
    "memory_model_questions_total",
    "Questions of memory searches to models, by kind (plan, hyde) and outcome: ok, or the reason"
    " of the fallback.",
    "kind",
    "endpoint",
    "outcome",
)
CACHE_READS = _gateway(
    "counter",
    "window_cache_reads_total",
    "Look-ups of windows in the cache, by outcome: hit, miss.",
    "outcome",
)
CACHE_BYTES = _gateway(
    "gauge", "window_cache_bytes", "Approximate size of the texts of windows in the cache."
)
PREFIX = _gateway(
    "counter",
    "context_prefix_bytes_total",
    "Bytes of messages in contexts that are read again: kept if the next context begins with"
    " them, changed if not. Kept over both is the share that a provider's cache can use.",
    "outcome",
    known=("kept", "changed"),
)
MEMORY_FED = _gateway(
    "gauge",
    "memory_fed",
    "1 while an index of the long-term memory (records, turns) is fed; reported from its first"
    " use on.",
    "index",
)
MEMORY_BEHIND = _gateway(
    "gauge",
    "memory_behind",
    "Records of the log that an index of the long-term memory lacks, as far as the gateway knows.",
    "index",
)
REDIS_UP = _gateway("gauge", "redis_up", "1 if Redis answers.")
REDIS_USED = _gateway("gauge", "redis_used_bytes", "Memory that Redis uses, of all its servers.")
REDIS_MAXIMUM = _gateway(
    "gauge", "redis_maxmemory_bytes", "Memory that Redis may use; 0: no limit."
)
REDIS_REFUSES = _gateway(
    "gauge",
    "redis_refuses_writes",
    "1 if Redis is full, cannot write its files or is a replica: windows are not updated.",
)

_EXPIRY = (
    "gauge",
    "certificate_expiry_timestamp_seconds",
    "When the first certificate of each configured file expires, as a Unix time.",
    "certificate",
)
GATEWAY_CERTIFICATES = _gateway(*_EXPIRY)

QUOTA_USED = _tenants(
    "gauge",
    "quota_used_ratio",
    "A tenant's use in this gateway in the last 10 s, over its quota's rate; sum over gateways."
    " `other` is the largest use of any other tenant.",
    "quota",
    "tenant",
)

APPENDED = _tenants(
    "counter",
    "tenant_events_total",
    "Events that a tenant sent to this gateway for appending, repeats included.",
    "tenant",
)

FOLDED = _worker(
    "counter",
    "events_total",
    "Records folded, by outcome: applied, duplicate, rejected, passed (a window had it already),"
    " waiting (its conversation is parked), dead (a dead letter).",
    "partition",
    "outcome",
)
LAG = _worker(
    "gauge",
    "partition_lag",
    "Records after the checkpoint in partitions of this worker, as far as it knows.",
    "partition",
)
SECONDS_BEHIND = _worker(
    "gauge",
    "partition_seconds_behind",
    "Age of the oldest record that is not folded, at most; 0: all are folded.",
    "partition",
)
HEALING = _worker(
    "gauge",
    "partition_healing",
    "1 while a partition's windows are restored from snapshots and the log.",
    "partition",
)
HEALINGS = _worker("counter", "healings_total", "Healings of partitions that this worker began.")
LOGS_REPLACED = _worker(
    "counter",
    "logs_replaced_total",
    "Partitions folded anew, because their log was made anew or lost what was folded.",
)
FENCED = _worker(
    "counter", "fenced_total", "Writes without effect, because another process owned the partition."
)
BATCH_EVENTS = _worker("histogram", "batch_events", "Records in a batch.", bounds=EVENTS)
BATCH_SECONDS = _worker(
    "histogram",
    "batch_seconds",
    "Seconds a batch takes, by step: fold (with what it publishes), write (to Redis).",
    "step",
    bounds=SECONDS,
)
CUT_UTILIZATION = _worker(
    "histogram",
    "cut_utilization_ratio",
    "Tokens of a window over its ceiling, before each cut.",
    bounds=SHARES,
)
SNAPSHOTS = _worker("counter", "snapshots_total", "Snapshots of windows written.")
DEAD_LETTERS = _worker(
    "counter",
    "dead_letters_total",
    "Dead letters published, by kind: record, poison, waiting.",
    "kind",
    known=("record", "poison", "waiting"),
)
SUMMARIES = _worker(
    "counter",
    "summaries_total",
    "Summaries that reached a window, by outcome: accepted, refused (the worker's log says why),"
    " voided, restored (by rollbacks).",
    "outcome",
    known=("accepted", "refused", "voided", "restored"),
)
DUE = _worker(
    "gauge",
    "conversations_due",
    "Conversations whose tail is over its budget and that wait for a summary.",
    "partition",
)
ASKED = _worker(
    "counter", "compaction_requests_total", "Compaction requests sent, repeats included."
)

COMPACTIONS = _worker(
    "counter",
    "compactions_total",
    "Compaction requests answered, by outcome: made, not_due (any more), failed. `summarizer`"
    " made the summary or failed to.",
    "reason",
    "summarizer",
    "outcome",
)
EXTRACTIONS = _worker(
    "counter",
    "memory_extractions_total",
    "Spans that the long-term memory learnt from, by outcome: made, nothing (to learn), failed,"
    " passed_over (a tenant has too many that wait). `reason` is summary, session or tail;"
    " `summarizer` extracted: rules, or an endpoint.",
    "reason",
    "summarizer",
    "outcome",
)
EXTRACTION_FALLBACKS = _worker(
    "counter",
    "memory_extraction_fallbacks_total",
    "Spans, or parts of long ones, that the rules handled instead of an endpoint, by reason.",
    "endpoint",
    "reason",
)
RECORDS_REFUSED = _worker(
    "counter",
    "memory_records_refused_total",
    "Records in answers of models that the long-term memory refused, by reason.",
    "endpoint",
    "reason",
)
EXTRACTED = _worker(
    "counter",
    "memory_records_extracted_total",
    "Statements extracted for the long-term memory, by type.",
    "type",
)
WAITING = _worker(
    "gauge",
    "compactions_waiting",
    "Compaction requests in this worker, those in progress included.",
    "summarizer",
)
SUMMARY_SECONDS = _worker(
    "histogram",
    "summary_seconds",
    "Seconds to make a summary, failed calls included.",
    "summarizer",
    bounds=LONG_SECONDS,
)
FALLBACKS = _worker(
    "counter",
    "summary_fallbacks_total",
    "Summaries that the extractive summariser made instead of an endpoint, by reason.",
    "endpoint",
    "reason",
)
CALLS = _worker(
    "counter",
    "model_calls_total",
    "Attempts to get a summary or an extraction, by outcome: ok, or the reason of the failure.",
    "endpoint",
    "outcome",
)
REFUSED = _worker(
    "counter",
    "model_answers_refused_total",
    "Answers that are not accepted as a summary, by reason.",
    "endpoint",
    "reason",
)
IN_FLIGHT = _worker("gauge", "model_calls_in_flight", "Calls in progress.", "endpoint")
LIMIT_WAITS = _worker(
    "counter",
    "model_limit_waits_total",
    "How often a summary waited for the endpoint's limits.",
    "endpoint",
)
BREAKER_OPEN = _worker(
    "gauge",
    "model_breaker_open",
    "1 while the endpoint's circuit is open after failures: for all tenants, or for one after"
    " time-outs, if no call of any tenant has succeeded since.",
    "endpoint",
)
TOKENS = _worker(
    "counter",
    "summary_tokens_total",
    "Tokens of prompts and answers of summaries and extractions by models.",
    "tenant",
)
COST = _worker(
    "counter",
    "summary_cost_total",
    "Cost of summaries and extractions by models, in the currency of the configured prices.",
    "tenant",
)
OVER_BUDGET = _worker(
    "counter",
    "summaries_over_budget_total",
    "Summaries and extractions made without a model because the tenant's daily budget was used up.",
    "tenant",
)
WORKER_CERTIFICATES = _worker(*_EXPIRY)
