"""Where the numbers are proven: a testbed with known truth, and a zoo of ordinary training code."""
