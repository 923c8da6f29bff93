"""Who is in the triples of a part, and which couples and threes they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.metrics.sharing import Gathered, distinct_codes, numbered, row_codes

__all__ = ["People", "PeopleOfPart", "couples_of_reference"]


@dataclass(frozen=True, eq=False)
class People:
    """The people of some triples, on a device; the fields are those of `clustering.Part`."""

    unit: Tensor
    person_row: Tensor
    other: Tensor
    own: Tensor


@dataclass(frozen=True, eq=False)
class PeopleOfPart:
    """Who is in the triples of a part, and what those outside the reference share with whom.

    Attributes
    ----------
    person
        Triples by the person that they are about.
    is_outside_person
        Which of those people are not in the reference.
    reference, rows
        Triples by each person of the reference who is in them, and the rows of those people.
    shared
        Triples by what people outside the reference share.
    """

    person: Gathered
    is_outside_person: Tensor
    reference: Gathered
    rows: Tensor
    shared: tuple[Gathered, ...]

    @classmethod
    def of(cls, part: People, n_reference: int) -> PeopleOfPart:
        """Index the triples of a part."""
        person_row, other, own, device = part.person_row, part.other, part.own, part.unit.device
        code = distinct_codes(part.unit)
        person, everyone = Gathered.of(code), torch.arange(len(code), device=device)
        is_outside = torch.zeros(person.n_codes, dtype=torch.bool, device=device)
        is_outside[code] = person_row < 0
        outside, inside = ((person_row < 0) == side for side in (True, False))
        outside, inside = everyone[outside], everyone[inside]
        who = code[outside]
        lower, upper = torch.minimum(other, own)[outside], torch.maximum(other, own)[outside]
        couple = row_codes(n_reference, torch.cat([who, who]), torch.cat([lower, upper]))
        three = row_codes(n_reference, couple[: len(who)], upper)
        shared = (Gathered.of(couple, -1.0, torch.cat([outside, outside])), Gathered.of(three, 1.0, outside))
        rows, place = numbered(torch.cat([other, own, person_row[inside]]), n_reference)
        reference = Gathered(place, len(rows), rows=torch.cat([everyone, everyone, inside]))
        return cls(person, is_outside, reference, rows, shared if len(outside) else ())


def couples_of_reference(part: People, n_reference: int, low: int, high: int) -> tuple[Gathered, ...]:
    """Couples, and triples, of the reference whose lowest row is in a range."""
    person, other, own = part.person_row, part.other, part.own
    everyone = torch.arange(len(person), device=person.device)
    inside = everyone[person >= 0]
    sides = [
        (everyone, other, own),
        (inside, person[inside], other[inside]),
        (inside, person[inside], own[inside]),
    ]
    couples = []
    for who, first, second in sides:
        lower, upper = torch.minimum(first, second), torch.maximum(first, second)
        chosen = (lower >= low) & (lower < high)
        couples.append((who[chosen], lower[chosen], upper[chosen]))
    rows, lower, upper = (torch.cat(columns) for columns in zip(*couples, strict=True))
    found = [Gathered.of(row_codes(n_reference, lower, upper), -1.0, rows)]
    three = torch.stack([person[inside], other[inside], own[inside]], dim=1).sort(dim=1).values
    chosen = (three[:, 0] >= low) & (three[:, 0] < high)
    if chosen.any():
        found.append(Gathered.of(row_codes(n_reference, *three[chosen].T), 1.0, inside[chosen]))
    return tuple(found)
