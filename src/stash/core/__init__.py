"""What everything else stands on: records, statistics, units, files, errors. Knows no feature."""
