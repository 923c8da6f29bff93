"""Label-stratified matching of comparable people in different groups."""

from evenhand.matching.diagnostics import (
    Coverage,
    FeatureBalance,
    MatchDiagnostics,
    MatchReuse,
    MatchSums,
    match_diagnostics,
)
from evenhand.matching.neighbors import TIE_TOLERANCE, NeighborIndex
from evenhand.matching.pairs import BEYOND_MAX_DISTANCE, NO_ONE_OF_LABEL, MatchReference, Pairs, match_pairs
from evenhand.matching.space import CategoricalColumn, MatchingSpace, NumericColumn

__all__ = [
    "BEYOND_MAX_DISTANCE",
    "NO_ONE_OF_LABEL",
    "TIE_TOLERANCE",
    "CategoricalColumn",
    "Coverage",
    "FeatureBalance",
    "MatchDiagnostics",
    "MatchReference",
    "MatchReuse",
    "MatchSums",
    "MatchingSpace",
    "NeighborIndex",
    "NumericColumn",
    "Pairs",
    "match_diagnostics",
    "match_pairs",
]
