"""What everything else stands on: errors, records, statistics, words and the ladder. Imports nothing of Stash."""
