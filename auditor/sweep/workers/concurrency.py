"""The number of models to have under way at once, measured during a sweep."""

import time
from collections.abc import Callable
from math import inf

LEAST = 4  # models; a sweep starts with this number, before any measurement
_SPARE = 1.25  # factor on the computed number: answers do not arrive evenly
_ROUND = 0.25  # shortest round in seconds: times of few models vary
_BUSY = 0.95  # share of a round's seconds from which on models wait for the processor, too
_LESS = 0.98  # factor on the time after a busy round, of which an unknown part was such a wait
_MOST_TIMES = (
    4  # longest accepted time, in times of the quickest round; the rest is our own waiting
)


class Concurrency:
    """The number of models under way, measured anew after each round of as many models.

    Little's law gives the number: the rate times the time that one model is under way. The rate is
    the one that the processor can examine, or, if models waited for the budget, the one that the
    budget allows. The time is measured in the last round in which the processor was idle for a
    while. If the processor is busy, models wait for it too, and the measured time is not the
    network's: it is reduced round by round until the processor is idle again. Models also wait for
    each other elsewhere (a full link, a server, a disk), and longer the more there are, so the time
    is at most four times that of the quickest round. Without this limit a nearby server led to 200
    threads after twenty thousand models, which took 320 MB. Models without requests do not count.
    """

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._most = most
        self._clock, self._processor = clock, processor
        self._network = inf  # seconds of network for one model
        self._quickest = inf  # seconds for one model in the quickest round
        self.models = min(LEAST, most)
        self.begin()

    def begin(self) -> None:
        """Begin a round; also called if no model was under way before."""
        self._begun = self._clock(), self._processor()
        self._done, self._fetched, self._seconds, self._waited = 0, 0, 0.0, False

    def done(self, seconds: float | None, *, waited: bool) -> None:
        """Count a model that is done, and the seconds for which it was under way.

        `seconds` excludes waits for the request budget; `waited` says whether there were any.
        `seconds` is None if the model needed no request: it is stored, or has no weights.
        """
        self._done += 1
        self._waited |= waited
        if seconds is not None:
            self._fetched += 1
            self._seconds += seconds
        wall = self._clock() - self._begun[0]
        if self._done < self.models or wall < _ROUND:
            return
        processor = self._processor() - self._begun[1]
        needed = self._needed(wall, processor) if self._fetched else 0.0
        self.models = min(max(LEAST, round(min(needed, self._most))), self._most)
        self.begin()

    def _needed(self, wall: float, processor: float) -> float:
        """Return the number of models by Little's law, from a round's wall and CPU seconds."""
        mean = self._seconds / self._fetched
        self._quickest = min(self._quickest, mean)
        mean = min(mean, _MOST_TIMES * self._quickest)
        is_busy = processor >= _BUSY * wall
        self._network = _LESS * min(self._network, mean) if is_busy else mean
        limiting_seconds = wall if self._waited else processor
        if not limiting_seconds:
            return inf
        return self._fetched / limiting_seconds * self._network * _SPARE
