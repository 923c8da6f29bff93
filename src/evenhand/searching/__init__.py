"""The search for an alternative model: candidates, constraints, the choice and its reasons."""

from evenhand.searching.choice import Constraint, parse_constraint
from evenhand.searching.confirming import Confirmation
from evenhand.searching.result import SearchResult
from evenhand.searching.search import search
from evenhand.searching.space import Candidate, default_space

__all__ = ["Candidate", "Confirmation", "Constraint", "SearchResult", "default_space", "parse_constraint", "search"]
