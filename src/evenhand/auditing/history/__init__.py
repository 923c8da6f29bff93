"""Several audits side by side: what changed between them, and whether a history of them has departed from its past."""
