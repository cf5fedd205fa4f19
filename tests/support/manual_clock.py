"""A clock for whatever takes one."""


class Clock:
    """Time that passes only when it is advanced."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def act(self, seconds):
        self.now += seconds
        return seconds
