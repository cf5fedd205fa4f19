"""The same number with the same spread looks alike in the profile's report and in the probe's."""
