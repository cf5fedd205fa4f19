"""A job that takes any words: it trains as train.py does, or fails and says very much, and what acts on terminals."""

import runpy
import sys
from pathlib import Path

ACTS = "\x1b]0;owned\x07\x1b[2J\x00\x9b2J\u202e"
if "--fails" in sys.argv:
    raise ValueError(f"{ACTS} https://me:s3cr3tValue@host/ {'x' * 3_000_000} the end")
if "--prints" in sys.argv:
    for number in range(200_000):
        print(f"{number} {ACTS} --password s3cr3tValue")
    sys.exit(3)
sys.argv[1:] = []
runpy.run_path(str(Path(__file__).with_name("train.py")), run_name="__main__")
