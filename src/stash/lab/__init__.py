"""An emulated cluster with known truth, and ordinary training code to try things on."""
