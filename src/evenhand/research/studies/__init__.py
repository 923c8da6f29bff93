"""How often the audit is wrong, and how often it finds what is there: `eh.audit` on data with a known truth."""
