"""A night in numbers, from which its last line and its exit code are made."""

from typing import NamedTuple

from auditor.sweep.store.reading import Store


class Alarms(NamedTuple):
    """How many models of a night have what an exit code is made of."""

    errors: int  # a finding of that severity, or a residual
    warnings: int  # none of those, but a warning
    unaudited: int  # it, or a component, could not be audited, and it is not counted above
    bad_requests: int
    # Of those with errors, and with warnings: it, or a component, could not be audited. What is
    # found comes before that, unless --fail-on lets it pass.
    blind_errors: int = 0
    blind_warnings: int = 0


class Tallies(Store):
    """A store as it is counted."""

    def tally(self, night: str) -> tuple[tuple[str | None, str | None, int], ...]:
        """(verdict, reason, models) of a night, the reason of those that are unaudited."""
        rows = self._database.execute(
            "SELECT verdict, reason, count(*) FROM results WHERE night = ?"
            " GROUP BY verdict, reason ORDER BY verdict, reason",
            (night,),
        )
        return tuple(rows)

    def alarms(self, night: str) -> Alarms:
        """What there is to be alarmed about."""
        row = self._database.execute(_ALARMS, {"night": night}).fetchone()
        return Alarms(*(count or 0 for count in row))


_ALARMS = """
SELECT sum(error), sum(warning), sum(unseen AND NOT error AND NOT warning), sum(bad_request),
    sum(unseen AND error), sum(unseen AND warning)
FROM (
    SELECT error, NOT error AND warnings AS warning, bad_request,
        (verdict = 'unaudited' OR verdict = 'findings' AND blind) AND NOT bad_request AS unseen
    FROM (
        SELECT coalesce(errors, 0) > 0 OR coalesce(residual, 0) != 0 AS error,
            coalesce(warnings, 0) > 0 AS warnings,
            coalesce(verdict, 'unaudited') AS verdict,
            coalesce(blind, 0) > 0 AS blind,
            coalesce(reason, '') = 'bad-request' AS bad_request
        FROM results WHERE night = :night
    )
)
"""
