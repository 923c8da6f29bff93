"""Models from files, without running code that a file may contain.

Nothing is imported here: the separate process that opens a file needs little of what audits it.
"""
