"""Both ends of what launcher and agents tell each other, through files. Standard library only."""
