"""What acts on machines that may cost money: it starts them, watches them, and sees to it that they end."""
