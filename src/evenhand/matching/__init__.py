"""Label-stratified matching of comparable people in different groups."""

from evenhand.matching.diagnostics import MatchDiagnostics, MatchSums, match_diagnostics
from evenhand.matching.neighbors import NeighborIndex
from evenhand.matching.pairs import MatchReference, Pairs, match_pairs
from evenhand.matching.space import MatchingSpace

__all__ = [
    "MatchDiagnostics",
    "MatchReference",
    "MatchSums",
    "MatchingSpace",
    "NeighborIndex",
    "Pairs",
    "match_diagnostics",
    "match_pairs",
]
