"""Claims with one slip or two, drawn at random, and whether the true one is found: `make claims`.

By slip: how many were drawn, of how many the true explanation is the first, and of how many among
the first three. True is an explanation of the same slips with the same differences; `same size`
counts those whose slips have the same names. Every explanation is added up. `-v` names the others.
"""

import sys
import time
from collections import Counter

from support.claim_generator import Claim, claims

from auditor.analytic import Config, catalogue
from auditor.claims.judge import judge
from auditor.claims.subject import subject_of
from auditor.claims.verdict import Explanation, Verdict

COUNT, SEED = 500, 1


def main() -> None:
    count, seed = (*(int(word) for word in sys.argv[1:] if word.isdecimal()), COUNT, SEED)[:2]
    if len([word for word in sys.argv[1:] if word.isdecimal()]) == 1:
        seed = SEED
    places: Counter[str] = Counter()
    by_slip: Counter[tuple[str, str]] = Counter()
    wrong = 0
    slowest = 0.0
    for claim in claims(count, seed):
        since = time.process_time()
        verdict = judged(claim)
        slowest = max(slowest, time.process_time() - since)
        wrong += sum(not adds_up(verdict, one) for one in verdict.explanations)
        place = place_of(claim, verdict)
        places[place] += 1
        for slip in claim.slips:
            by_slip[slip, place] += 1
        if place != "first" and "-v" in sys.argv:
            print(claim.target, claim.values, claim.text, claim.effects)
            for one in verdict.explanations:
                print(
                    "    ", [(slip.slip, dict(slip.fields), slip.difference) for slip in one.slips]
                )
    print(f"{'slip':24}{'drawn':>8}{'first':>8}{'in three':>10}")
    for slip in sorted({slip for slip, _ in by_slip}):
        drawn = sum(number for (name, _), number in by_slip.items() if name == slip)
        first = by_slip[slip, "first"]
        print(f"{slip:24}{drawn:8}{first:8}{first + by_slip[slip, 'in three']:10}")
    first, three = places["first"], places["first"] + places["in three"]
    print(f"{count} claims: {first / count:.1%} first, {three / count:.1%} among the first three")
    print(f"{wrong} explanations that do not add up; the slowest took {slowest:.2f} s of processor")


def judged(claim: Claim) -> Verdict:
    config = Config(values=claim.values)
    subject = subject_of(claim.target, catalogue.expect(config, claim.target), config)
    return judge(subject, claim.text, claim.part)


def adds_up(verdict: Verdict, explanation: Explanation) -> bool:
    if verdict.claim is None or verdict.actual is None:
        return False
    return sum(slip.difference for slip in explanation.slips) == verdict.claim - verdict.actual


def place_of(claim: Claim, verdict: Verdict) -> str:
    """Where among the explanations the true one is."""
    for place, one in enumerate(verdict.explanations):
        if is_true(claim, one):
            return "first" if place == 0 else "in three"
    return "not found" if verdict.verdict == "refuted" else verdict.verdict


def is_true(claim: Claim, explanation: Explanation) -> bool:
    """The same slips: the differences depend on the order in which they are taken."""
    names = sorted(slip.slip for slip in explanation.slips if slip.slip != "rounding")
    if names != list(claim.slips):
        return False
    if len(names) > 1 or "binary-million" in names:
        return True
    return explanation.slips[0].difference == claim.effects[0][1]


if __name__ == "__main__":
    main()
