"""What is posted to us, and what we post."""
