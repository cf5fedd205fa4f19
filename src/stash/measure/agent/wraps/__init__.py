"""What is wrapped in torch and its frameworks, one module a kind."""
