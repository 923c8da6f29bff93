"""The results of an audit for readers: a page, a workbook, and the schema of the JSON."""
