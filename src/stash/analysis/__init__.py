"""Where a step's time goes: profile in, breakdown out; two profiles compared; a probe's findings. Pure."""
