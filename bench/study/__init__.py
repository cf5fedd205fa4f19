"""The default study: the paper's models on an emulated fleet, held against its known truth and what was published."""
