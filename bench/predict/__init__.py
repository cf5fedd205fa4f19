"""How wrong predictions are: each against measurements that it was not fitted to, by source, beside simple
baselines."""
