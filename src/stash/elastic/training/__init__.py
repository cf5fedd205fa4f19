"""Asynchronous training by parameter servers: leases, gradients, updates. Knows neither machines nor Ray."""
