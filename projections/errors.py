"""Every error that threadfold raises on purpose, each named by its cause.

All derive from :class:`ThreadfoldError`. The message is one sentence for a user: what was wrong,
where, and what to do. ``problem`` is the gateway's HTTP status (RFC 9457). ``exit_code`` is a
command's exit code (1: found wrong; 2: bad usage or unreachable service).
"""

from __future__ import annotations


class ThreadfoldError(Exception):
    """The base of all errors raised on purpose; a user may see the message."""

    problem = 500
    exit_code = 2


class InvalidEvent(ThreadfoldError):
    """An event lacks the form of its type; the message names the event and the field."""

    problem = 422


class MalformedInput(ThreadfoldError):
    """Input is not a JSON object."""

    problem = 400


class InvalidName(ThreadfoldError):
    """A tenant's, conversation's or other name has forbidden characters or length."""

    problem = 422


class InvalidPosition(ThreadfoldError):
    """A position or cursor is not one of threadfold, or is of another conversation."""

    problem = 422


class TooFarBehind(ThreadfoldError):
    """A stream cannot continue from a position so far back: read the history first."""

    problem = 422


class PartialConflict(ThreadfoldError):
    """Text in progress does not continue at the stored text's end, or its turn is over; the message
    names the stored offset.
    """

    problem = 409


class InvalidPolicy(ThreadfoldError):
    """A policy has an unknown key, a wrong type or values that contradict each other."""

    problem = 422


class UnusablePolicy(ThreadfoldError):
    """A tenant's recorded policy does not hold in this process: a newer release wrote it, say.
    Nothing of the tenant is folded or shown by another policy.
    """

    problem = 503

    def __init__(self, tenant: str, why: str) -> None:
        super().__init__(
            f"the policy of tenant {tenant} cannot be used here: {why}. If a newer release wrote"
            " it, upgrade this process; then run `threadfold dead-letters retry --all`"
        )
        self.tenant = tenant
        self.why = why

    def __reduce__(self) -> tuple[type[UnusablePolicy], tuple[str, str]]:
        # Otherwise it would not come back from another process: one is made of its message alone.
        return UnusablePolicy, (self.tenant, self.why)

    def again(self) -> UnusablePolicy:
        """The same error, to be raised once more."""
        return UnusablePolicy(self.tenant, self.why)


class InvalidSettings(ThreadfoldError):
    """A setting of the deployment is missing or wrong."""


class EventTooLarge(ThreadfoldError):
    """An event exceeds the size limit."""

    problem = 413


class UnknownConversation(ThreadfoldError):
    """The conversation has no window: no event was ever appended to it."""

    problem = 404
    exit_code = 1


class UnknownUser(ThreadfoldError):
    """The user has no conversation, and no erased one."""

    problem = 404
    exit_code = 1


class UnknownMemory(ThreadfoldError):
    """There is no such record, skill or composite that the caller may see."""

    problem = 404
    exit_code = 1


class Erased(ThreadfoldError):
    """The conversation is erased for good."""

    problem = 410
    exit_code = 1


class SpillLost(ThreadfoldError):
    """A piece of a spilled result is missing from the log, or is not the expected one. The rest is
    not shown as the whole.
    """

    exit_code = 1


class UnknownRender(ThreadfoldError):
    """No model call of that id is recorded, or its record has expired."""

    problem = 404
    exit_code = 1


class InvalidRequest(ThreadfoldError):
    """A parameter of a request (a limit, a format, a header, a length) is not allowed; the message
    names it.
    """

    problem = 422


class RequestTooLarge(ThreadfoldError):
    """The body of a request exceeds the limit."""

    problem = 413


class Conflict(ThreadfoldError):
    """The caller's precondition does not hold: another event came first, or another turn is active.
    Nothing was changed.
    """

    problem = 409


class Unauthorized(ThreadfoldError):
    """The request has no key, or an unknown one."""

    problem = 401


class Forbidden(ThreadfoldError):
    """The key lacks the scope, which the message names, or the caller may not do this at all."""

    problem = 403


class UnsupportedMedia(ThreadfoldError):
    """A body has a content coding, or is not declared as JSON."""

    problem = 415


class InvalidKey(ThreadfoldError):
    """A key's scope, expiry or name is not valid; the message names it."""

    problem = 422


class InvalidQuota(ThreadfoldError):
    """A quota is unknown or its value is not valid; the message names it."""

    problem = 422


class UnknownTenant(ThreadfoldError):
    """The tenant is not recorded."""

    problem = 404
    exit_code = 1


class UnknownKey(ThreadfoldError):
    """The tenant has no such key."""

    problem = 404
    exit_code = 1


class TenantExists(ThreadfoldError):
    """A tenant of that name exists."""

    problem = 409
    exit_code = 1


class QuotaExceeded(ThreadfoldError):
    """The tenant has used its quota; the message names the quota. ``retry_after``: whole seconds,
    at least 1.
    """

    problem = 429

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeySetUnavailable(ThreadfoldError):
    """The key set that verifies tokens cannot be fetched, so a token cannot be checked."""

    problem = 503


class UnderMaintenance(ThreadfoldError):
    """An operator has stopped appends; nothing was appended. ``cause``: whose, since when, why."""

    problem = 503
    retry_after = 30

    def __init__(self, cause: str, advice: str) -> None:
        super().__init__(f"{cause}: {advice}")
        self.cause = cause


class Overloaded(ThreadfoldError):
    """The service is at its concurrency limit and did nothing. Try again shortly."""

    problem = 503


class KafkaUnavailable(ThreadfoldError):
    """Kafka did not answer. Whether an append happened is unknown: repeat it with the same ids."""

    problem = 503


class TopicStuck(ThreadfoldError):
    """A process fails at a record of a topic that it must hold whole, and does not pass it over:
    what it knows of the topic ends before that record. It tries again.
    """

    problem = 503


class RedisUnavailable(ThreadfoldError):
    """Redis did not answer. Nothing acknowledged is lost; reads work again when Redis does."""

    problem = 503


class MemoryUnavailable(ThreadfoldError):
    """The store of the long-term memory cannot be used now: its disk is full, say. Nothing that was
    appended is lost. ``cause`` says why, and names no path.
    """

    problem = 503

    def __init__(self, cause: str, folder: str = "") -> None:
        super().__init__(
            f"the long-term memory cannot be used now: {cause}; appended events are safe in the log"
        )
        self.cause = cause
        self.folder = folder

    @property
    def with_folder(self) -> str:
        """The cause, with the folder's path."""
        return self.cause.replace("its folder", self.folder) if self.folder else self.cause


class CorruptWindow(ThreadfoldError):
    """A stored window cannot be decoded. The worker that finds it folds its partition again."""

    problem = 503


class KeyUnusable(ThreadfoldError):
    """A master key is missing, or did not wrap this data key (configuration): the fold stops."""

    problem = 503


class CallableFailed(ThreadfoldError):
    """A callable that a policy names is not registered in this process, or failed in it. Nothing
    was written: the same fold elsewhere may come to another window.
    """

    problem = 409
    exit_code = 1


class CallableUnavailable(ThreadfoldError):
    """A callable that a policy names is not registered in this process, or failed in it. What it
    would show may differ from the worker's window, so nothing is shown.
    """

    problem = 503

    def __init__(self, message: str, conversation: str = "", reason: str = "missing") -> None:
        super().__init__(message)
        self.conversation = conversation
        self.reason = reason


class Healing(ThreadfoldError):
    """The partition's windows are being restored from the log. Try again shortly."""

    problem = 503


class ConversationParked(ThreadfoldError):
    """The conversation is parked, or its partition is halted: an operator has to let it go on."""

    problem = 503


class WaitTimedOut(ThreadfoldError):
    """The window did not reach the position in time. The append itself holds. ``retry_after``:
    whole seconds until it may.
    """

    problem = 503

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TopicMismatch(ThreadfoldError):
    """A topic is missing, or lacks the partitions, retention or clean-up that correctness needs."""

    problem = 503


class LogTruncated(ThreadfoldError):
    """The log has lost its first events, and the operator has not accepted that."""

    problem = 503


class EmbeddedUnavailable(ThreadfoldError):
    """An embedded server cannot be found, downloaded or started."""


class EmbeddingsUnavailable(ThreadfoldError):
    """Vectors cannot be made now: no model is prepared, or its endpoint does not answer. ``own``:
    the tenant's budget is used up. ``refused``: the model does not take such a text.
    """

    problem = 503
    own = refused = False


class SearchUnavailable(ThreadfoldError):
    """A store needs the query engine of Redis, and the server has none or one that is too old."""

    problem = 503


class InvalidBackup(ThreadfoldError):
    """A backup is damaged, not finished, or not what was restored."""

    exit_code = 1


class InvalidProjection(ThreadfoldError):
    """A custom projection has a wrong name or version, or a result that cannot be stored."""


class ProjectionFailed(ThreadfoldError):
    """A custom projection raised an error at an event. It skips nothing: repaired, it continues at
    that event.
    """


class UnknownProjection(ThreadfoldError):
    """No projection of that name, or no such results of it, are recorded."""

    problem = 404
    exit_code = 1


class DataFolderInUse(ThreadfoldError):
    """Another running stack holds this data folder, or it cannot be used."""
