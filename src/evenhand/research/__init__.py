"""Studies: the comparison methods, the reproduction of the paper, the calibration of the tests."""
