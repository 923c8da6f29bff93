"""Studies of the audit and of the paper, run by `python -m studies NAME`: calibration, power, gaps and epochs.

They are no part of the installed package. `related` has metrics of other papers, and `probabilities` the worlds in
which the intervals of audits with probable groups are tested.
"""
