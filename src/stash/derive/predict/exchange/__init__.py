"""What of its gradients' exchange a step waits for: which bytes travel when, over which links, and for whom."""
