"""Which requests are answered falsely, and how often."""

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .faults import Fault
from .wire import Answer, Request


@dataclass(kw_only=True)
class Rule:
    """A fault for the requests that match; counts down."""

    fault: Fault
    path: str
    method: str
    origin: str | None
    times: int | None
    skip: int

    def takes(self, request: Request, answer: Answer) -> bool:
        return (
            self.times != 0
            and self.origin in {None, request.origin}
            and fnmatchcase(request.method, self.method)
            and fnmatchcase(request.path, self.path)
            and self.fault.bites(request, answer)
        )

    def fire(self) -> bool:
        """Count one matching request; whether it is to be spoilt."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(frozen=True, kw_only=True)
class Dice:
    """A share of the answers is spoilt; which, follows from the seed and the request alone."""

    rate: float
    seed: int
    faults: tuple[Fault, ...]
    path: str

    def roll(self, request: Request, answer: Answer, nth: int) -> Fault | None:
        asked = (self.seed, request.method, request.path, request.header("Range"), nth)
        digest = hashlib.sha256(repr(asked).encode()).digest()
        if int.from_bytes(digest[:8]) >= self.rate * 2**64:
            return None
        able = [fault for fault in self.faults if fault.bites(request, answer)]
        return able[int.from_bytes(digest[8:16]) % len(able)] if able else None


class Script:
    """All misbehaviour that was asked for; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._rules: list[Rule] = []
            self._dice: Dice | None = None
            self._asked: Counter[tuple[str, str, str | None]] = Counter()

    def rule(self, rule: Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    def at_random(self, dice: Dice) -> None:
        with self._lock:
            self._dice = dice

    def choose(self, request: Request, answer: Answer) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.takes(request, answer) and rule.fire():
                    return rule.fault
            if self._dice is None or not fnmatchcase(request.path, self._dice.path):
                return None
            key = (request.method, request.path, request.header("Range"))
            self._asked[key] += 1
            return self._dice.roll(request, answer, self._asked[key])
