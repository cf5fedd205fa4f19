"""What one machine is, read from /proc, /sys, NVML and its cloud; measures nothing."""
