"""The exceptions of the package, by origin: the user's input, the checkpoint, the outside world."""

from enum import StrEnum

from auditor.redaction import redacted


class Reason(StrEnum):
    """The reason why a checkpoint could not be audited: the `reason` of an Unaudited outcome."""

    BAD_REQUEST = "bad-request"  # the user's input: exit code 2, not 3
    NOT_FOUND = "not-found"
    NO_REVISION = "no-revision"
    GATED = "gated"
    DISABLED = "disabled"
    DENIED = "denied"
    EMPTY_REPO = "empty-repo"
    NO_CONFIG = "no-config"
    NO_WEIGHTS = "no-weights"
    NO_SAFETENSORS = "no-safetensors"
    UNKNOWN_ARCHITECTURE = "unknown-architecture"
    CUSTOM_CODE = "custom-code"
    UNKNOWN_LAYOUT = "unknown-layout"
    OTHER_FAMILY = "other-family"
    OFFLINE = "offline"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed-out"
    RATE_LIMITED = "rate-limited"
    SERVER_ERROR = "server-error"
    BAD_RESPONSE = "bad-response"
    COMMIT_MOVED = "commit-moved"
    NOT_CACHED = "not-cached"
    NOT_BUNDLED = "not-bundled"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too-large"
    TOO_LITTLE_MEMORY = "too-little-memory"
    CRASHED = "crashed"  # the auditor's own fault: a sweep goes on without the model


class AuditError(Exception):
    """The base class of the errors that this package raises on purpose; none contains a secret."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class UsageError(AuditError):
    """The user's request is impossible."""


class CheckpointError(AuditError):
    """The checkpoint's own bytes are wrong: a header, an index or a config. Becomes a finding.

    `keys` are the faulty keys of a config, with their path, if they are known.
    """

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys


class StoreError(AuditError):
    """A sweep's store cannot be read or written; the message says why and what to do."""


class FixError(AuditError):
    """`audit fix` may not or cannot write; the message says which file and what to do."""


class PublishError(AuditError):
    """Nothing can be sent to the Hub, or it did not take it; the message says why."""


class SourceError(AuditError):
    """A source did not supply what an audit needs. Becomes an Unaudited outcome.

    The message is one line: what, where and what to do.
    """

    def __init__(self, reason: Reason, message: str, *, snapshot: object = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.snapshot = snapshot  # the Snapshot without weights, if the files were listed
