"""What a machine lacks before it can measure, as pure functions: facts in, checks out."""
