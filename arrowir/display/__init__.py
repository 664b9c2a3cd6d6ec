"""What notebooks show: representations in HTML."""
