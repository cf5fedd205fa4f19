"""Trains: a user's job on workers that come and go. What it rests on is planned and rented elsewhere."""
