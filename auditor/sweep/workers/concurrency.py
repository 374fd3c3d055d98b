"""How many models should be under way at once: a rule, measured while a sweep goes on."""

import time
from collections.abc import Callable
from math import inf

LEAST = 4  # models; with them a sweep begins, before anything is measured
_SPARE = 1.25  # times what is needed: answers do not come evenly
_ROUND = 0.25  # seconds, at least: of a few models the times vary
_BUSY = 0.95  # of a round's seconds; from there on models wait for the processor, too
_LESS = 0.98  # of the time is tried after such a round: how much of it was a wait is not known
_MOST_TIMES = 4  # the time of the quickest round; what is longer than that is a wait of our own


class Concurrency:
    """The number of models under way, measured anew when that many are done: a round.

    Little's law: rate times time under way. More models a second than the processor can examine are
    of no use, nor, where models waited for the budget, more than it has paid for. The time is that
    of the last round in which the processor had nothing to do for a while. Where it is busy models
    wait for it, and the time is not the network's: less and less of it is taken, until the
    processor waits again. Models wait for each other elsewhere, too (a link that is full, a server,
    a disk), the longer the more there are: four times the quickest round is the most that is taken.
    Without that a server close by had 200 threads after twenty thousand models, and they took 320
    MB. Models that ask the network for nothing say nothing of it.
    """

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._most = most
        self._clock, self._processor = clock, processor
        self._network = inf  # seconds of one model
        self._quickest = inf  # seconds of one model, in the round that had the least of them
        self.models = min(LEAST, most)
        self.begin()

    def begin(self) -> None:
        """A round begins: with the first of all models, and where none was under way."""
        self._begun = self._clock(), self._processor()
        self._done, self._fetched, self._seconds, self._waited = 0, 0, 0.0, False

    def done(self, seconds: float | None, *, waited: bool) -> None:
        """Note a model that is done, and the seconds for which it was under way.

        Those for which it `waited` for the budget of requests are not among them. None: it asked
        for nothing, as what is stored, and what has no weights.
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
        """Little's law gives this number of models for a round of these seconds, by each clock."""
        mean = self._seconds / self._fetched
        self._quickest = min(self._quickest, mean)
        mean = min(mean, _MOST_TIMES * self._quickest)
        busy = processor >= _BUSY * wall
        self._network = _LESS * min(self._network, mean) if busy else mean
        paid = wall if self._waited else processor
        return self._fetched / paid * self._network * _SPARE if paid else inf
