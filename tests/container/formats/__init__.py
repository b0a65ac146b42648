"""One small file of each format that people upload, what they ask of it, and the right answer."""
