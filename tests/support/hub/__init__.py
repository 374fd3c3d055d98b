"""A Hugging Face Hub on loopback, for tests and benchmarks: two origins, true and false answers."""

from .blobs import Sparse
from .faults import (
    OFTEN_SEEN,
    After,
    Drip,
    EndlessBody,
    EndlessHeaders,
    Fault,
    Gzipped,
    HangUp,
    Header,
    HtmlPage,
    Late,
    RedirectLoop,
    RedirectTo,
    Reset,
    Says,
    ServerError,
    ShortBody,
    Stall,
    TooMany,
    WholeFile,
    WrongJson,
    WrongRange,
)
from .hub import Hub
from .log import Record
from .quota import Quota
from .wire import Origin

__all__ = [
    "OFTEN_SEEN",
    "After",
    "Drip",
    "EndlessBody",
    "EndlessHeaders",
    "Fault",
    "Gzipped",
    "HangUp",
    "Header",
    "HtmlPage",
    "Hub",
    "Late",
    "Origin",
    "Quota",
    "Record",
    "RedirectLoop",
    "RedirectTo",
    "Reset",
    "Says",
    "ServerError",
    "ShortBody",
    "Sparse",
    "Stall",
    "TooMany",
    "WholeFile",
    "WrongJson",
    "WrongRange",
]
