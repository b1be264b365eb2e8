"""What relay hosts post to us."""
