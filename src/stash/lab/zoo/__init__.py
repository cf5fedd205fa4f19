"""The zoo: training workloads with their data pipelines, as ordinary code a user could have written."""
