"""How many models to have under way at once: by Little's law, as many as the rate needs."""

from math import inf

LEAST = 4  # models; with them a sweep begins, before anything is measured
_SPARE = 1.25  # times the rate of a quota: answers do not come evenly
_WEIGHT = 1 / 32  # of the last model in what is known of all
_FADES = 1.001  # of the least time under way, with each model: the network may become slower


class Concurrency:
    """The number of models under way, measured anew with each that is done.

    Little's law: rate times time under way. More models a second than the processor can examine
    are of no use, nor more than the quota pays for. The time is the least that was seen: where more
    are under way than the processor bears they wait for it, and the time is not the network's.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = -LEAST  # the first ones import, and connect
        self._seconds = self._processor = self._files = 0.0  # of one model
        self._least = inf  # of the seconds
        self.models = min(LEAST, most)

    def done(self, *, seconds: float, processor: float, files: float, rate: float | None) -> None:
        """A model is: how long it was under way, and what the process took since the last one was.

        `processor` are seconds, `files` requests for files; `rate` is how many of these there may
        be in a second, None: any number.
        """
        self._count += 1
        if self._count <= 0:
            return
        weight = max(_WEIGHT, 1 / self._count)
        self._seconds += weight * (seconds - self._seconds)
        self._processor += weight * (processor - self._processor)
        self._files += weight * (files - self._files)
        self._least = min(self._seconds, self._least * _FADES)
        if self._count < LEAST or not self._processor:
            return
        models = 1 / self._processor
        if rate is not None and self._files:
            models = min(models, rate * _SPARE / self._files)
        self.models = min(max(LEAST, round(models * self._least)), self._most)
