"""Both ends of what the launcher and the job's processes tell each other, through files in the run's folder."""
