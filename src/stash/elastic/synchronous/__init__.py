"""A script of the user under torchrun: where its agents meet, what it saves, how it is rehearsed."""
