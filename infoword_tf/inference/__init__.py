"""What a workdir can do without a trainer."""
