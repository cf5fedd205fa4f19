"""Numbers with their spread: repetitions to intervals, rounds to paired differences. Knows no profiles."""
