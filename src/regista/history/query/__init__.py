"""The list filter: Temporal's query language, parsed, checked, and asked of any history."""

from .check import field_named, parse_query
from .nodes import Field, Place, Query
from .parse import warm

__all__ = ["Field", "Place", "Query", "field_named", "parse_query", "warm"]
