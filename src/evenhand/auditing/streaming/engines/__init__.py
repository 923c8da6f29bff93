"""The engines that audit batches. An engine is a function `(work, batches, advance, ...)` in a file here.

It audits batches in any order, calls `advance` as each is kept, and returns a description of who audited them.
`BatchWork.audit` does everything for one batch, wherever source and folder are visible; the result is the same to the
last bit. The first `EvenhandError` of a batch is raised unchanged; an engine that loses its workers raises a
`StreamError`. Batches that have not started by then are not started.
"""
