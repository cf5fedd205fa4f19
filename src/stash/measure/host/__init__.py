"""What a machine is: sysfs, NVML, DMI, control groups; what its cloud publishes about it."""
