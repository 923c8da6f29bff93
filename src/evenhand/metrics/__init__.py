"""Numbers from arrays: the CEC score, the excess, outcome metrics, disparity tables."""
