"""The truth suite: jobs whose stalls are known beforehand, profiled as users do (``python -m bench.truth``)."""
