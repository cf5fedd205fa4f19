"""What plans, runs and models of fleets look like."""
