"""What an audit found, for people: a page, a workbook, and the schema of the JSON."""
