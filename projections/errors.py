"""Every error threadfold raises on purpose, each named by its cause.

All derive from :class:`ThreadfoldError`; the message is one sentence that says what was wrong,
where, and what to do, so that a command can print it as it is. ``problem`` is the HTTP status the
gateway answers with (RFC 9457), ``exit_code`` what a command exits with (2: bad usage or an
unreachable service; 1: something was found wrong).
"""

from __future__ import annotations


class ThreadfoldError(Exception):
    """The root of all errors raised on purpose; the message is fit to be shown to a user."""

    problem = 500
    exit_code = 2


class InvalidEvent(ThreadfoldError):
    """An event does not have the form of its type; the message names the event and the field."""

    problem = 422


class MalformedInput(ThreadfoldError):
    """Input is not JSON (or not a JSON object) at all."""

    problem = 400


class InvalidName(ThreadfoldError):
    """A tenant's, conversation's or other name has characters or a length that are not allowed."""

    problem = 422


class InvalidPosition(ThreadfoldError):
    """A position or cursor is not one that threadfold gave out, or belongs to another
    conversation.
    """

    problem = 422


class TooFarBehind(ThreadfoldError):
    """A stream cannot go on from a position so far back: read the history up to now first."""

    problem = 422


class PartialConflict(ThreadfoldError):
    """A piece of text in progress does not go on where the text held ends, or its turn is over; the
    message tells the offset held.
    """

    problem = 409


class InvalidPolicy(ThreadfoldError):
    """A policy has an unknown key, a wrong type or values that contradict each other."""

    problem = 422


class InvalidSettings(ThreadfoldError):
    """A setting of the deployment is missing or wrong."""


class EventTooLarge(ThreadfoldError):
    """An event is over the size limit."""

    problem = 413


class UnknownConversation(ThreadfoldError):
    """The conversation has no window: nothing was ever appended to it."""

    problem = 404
    exit_code = 1


class UnknownUser(ThreadfoldError):
    """No conversation of this user is known, and none was erased on their behalf."""

    problem = 404
    exit_code = 1


class Erased(ThreadfoldError):
    """The conversation was erased; this is final."""

    problem = 410
    exit_code = 1


class SpillLost(ThreadfoldError):
    """A piece of a spilled result is not in the log, or not the one that belongs there; what is
    left is not shown as the whole.
    """

    exit_code = 1


class UnknownRender(ThreadfoldError):
    """No model call of that id is recorded, or not any more."""

    problem = 404
    exit_code = 1


class InvalidRequest(ThreadfoldError):
    """A parameter of a request (a limit, a format, a header, the length of a list) is not one that
    is allowed; the message names it.
    """

    problem = 422


class RequestTooLarge(ThreadfoldError):
    """The body of a request is over the limit."""

    problem = 413


class Conflict(ThreadfoldError):
    """What the caller expected does not hold any more: another event came first, or another turn is
    in force; nothing was changed.
    """

    problem = 409


class Unauthorized(ThreadfoldError):
    """No key, or one that is not known."""

    problem = 401


class Forbidden(ThreadfoldError):
    """The key is known, but lacks the scope this needs; the message names it."""

    problem = 403


class InvalidKey(ThreadfoldError):
    """A scope, an expiry or a name of a key is not one that can be; the message names it."""

    problem = 422


class InvalidQuota(ThreadfoldError):
    """A quota is unknown or not a number that can be; the message names it."""

    problem = 422


class UnknownTenant(ThreadfoldError):
    """No such tenant, or no such key of it, is recorded."""

    problem = 404
    exit_code = 1


class TenantExists(ThreadfoldError):
    """A tenant of that name is recorded already."""

    problem = 409
    exit_code = 1


class QuotaExceeded(ThreadfoldError):
    """The tenant has used what it may for now; the message names the quota. ``retry_after``: whole
    seconds to wait, at least 1.
    """

    problem = 429

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeySetUnavailable(ThreadfoldError):
    """The keys that tokens are signed with cannot be fetched, so that it cannot be told whether a
    token holds.
    """

    problem = 503


class Overloaded(ThreadfoldError):
    """As much as may be under way is under way; nothing was done. Try again shortly."""

    problem = 503


class KafkaUnavailable(ThreadfoldError):
    """Kafka did not answer; an append that failed this way is *unknown*: repeat it with the same
    ids.
    """

    problem = 503


class RedisUnavailable(ThreadfoldError):
    """Redis did not answer; nothing acknowledged is lost, reads come back with it."""

    problem = 503


class CorruptWindow(ThreadfoldError):
    """What the store holds of a window is not a window; a worker that comes upon it folds its
    partition anew.
    """

    problem = 503


class TooMuchPoison(ThreadfoldError):
    """More of what comes in cannot be applied than the deployment allows: something is wrong with a
    writer, or with the code that folds.
    """


class KeyUnusable(ThreadfoldError):
    """A master key is missing, or is not the one that wrapped a data key: an error of the
    configuration, never a reason to fold on.
    """

    problem = 503


class Healing(ThreadfoldError):
    """The windows of this partition are being brought back from the log; try again shortly."""

    problem = 503


class WaitTimedOut(ThreadfoldError):
    """The window did not reach the position in time; the append itself stands."""

    problem = 503


class TopicMismatch(ThreadfoldError):
    """A topic is missing or does not have the shape (partitions, retention, clean-up) that
    correctness needs.
    """


class LogTruncated(ThreadfoldError):
    """The log has lost its first events, and windows cannot be folded from what is left without the
    operator's word.
    """

    problem = 503


class EmbeddedUnavailable(ThreadfoldError):
    """An embedded server could not be found, fetched or started."""


class InvalidProjection(ThreadfoldError):
    """A team's own projection is not one: its name, its version, or what it puts into its
    result.
    """


class ProjectionFailed(ThreadfoldError):
    """A team's own projection raised an error at an event; nothing was passed over, and it goes on
    there once it is mended.
    """


class UnknownProjection(ThreadfoldError):
    """No projection of that name, or no such results of it, are recorded."""

    problem = 404
    exit_code = 1


class DataFolderInUse(ThreadfoldError):
    """Another running stack holds this data folder."""
