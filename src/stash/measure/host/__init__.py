"""What a machine is: sysfs, NVML, DMI, control groups; what its cloud announces about it."""
